import { useState } from "react";
import { useAction } from "../../api/actions.ts";
import { send } from "../../api/client.ts";
import type { Limits, Organization, OrganizationChange } from "../../api/types.ts";
import { DialogForm } from "../../ui/dialog.tsx";
import { TextField } from "../../ui/field.tsx";
import { LimitsFields } from "../limits-fields.tsx";
import { limitTexts, readLimits } from "../read-form.ts";

interface EditProps {
  organization: Organization;
  onClose: () => void;
}

/** Changes columns of an organization; others stay as they are. */
export function useChange({ organization, onClose }: EditProps) {
  const path = `/admin/v1/organizations/${encodeURIComponent(organization.id)}`;
  return useAction(
    (change: OrganizationChange) => send<Organization>("PATCH", path, change),
    ["organizations", "overview"],
    onClose,
  );
}

export function EditOrganization({ organization, onClose }: EditProps) {
  // As it was when the dialog opened: only what the user changed since is sent.
  const [before] = useState(organization);
  const [name, setName] = useState(before.name);
  const [limits, setLimits] = useState(() => limitTexts(before.limits));
  const [wrong, setWrong] = useState<{ name: keyof Limits; error: string }>();
  const change = useChange({ organization, onClose });
  const isNameless = name.trim() === "";
  const submit = () => {
    const read = readLimits(limits);
    setWrong("error" in read && read.wrong !== undefined ? { name: read.wrong, error: read.error } : undefined);
    if ("error" in read || isNameless) return;
    const hasNewLimits = JSON.stringify(limits) !== JSON.stringify(limitTexts(before.limits));
    const changes = {
      ...(name.trim() !== before.name && { name: name.trim() }),
      ...(hasNewLimits && { limits: read.value }),
    };
    if (Object.keys(changes).length === 0) onClose();
    else change.mutate(changes);
  };
  return (
    <DialogForm title="Settings" action="Save" attempt={change} onSubmit={submit} onClose={onClose}>
      <TextField
        label="Name"
        maxLength={200}
        value={name}
        error={isNameless ? "Enter a name." : null}
        onValue={setName}
      />
      <LimitsFields texts={limits} wrong={wrong} onTexts={setLimits} />
    </DialogForm>
  );
}
