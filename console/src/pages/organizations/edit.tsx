import { useState } from "react";
import { useAction } from "../../api/actions.ts";
import { send } from "../../api/client.ts";
import type { Limits, Organization, OrganizationChange } from "../../api/types.ts";
import { DialogForm } from "../../ui/dialog.tsx";
import { TextField } from "../../ui/field.tsx";
import { Failure } from "../../ui/states.tsx";
import { LimitsFields } from "../limits-fields.tsx";
import { limitTexts, readLimits } from "../read-form.ts";

interface EditProps {
  organization: Organization;
  onClose: () => void;
}

/** A change of an organization, as the pages make it. */
export function useChange({ organization, onClose }: EditProps) {
  const path = `/admin/v1/organizations/${encodeURIComponent(organization.id)}`;
  return useAction(
    (change: OrganizationChange) => send<Organization>("PATCH", path, change),
    ["organizations", "overview"],
    onClose,
  );
}

export function EditOrganization({ organization, onClose }: EditProps) {
  const [name, setName] = useState(organization.name);
  const [limits, setLimits] = useState(() => limitTexts(organization.limits));
  const [wrong, setWrong] = useState<{ name: keyof Limits; error: string }>();
  const change = useChange({ organization, onClose });
  const isNameless = name.trim() === "";
  const submit = () => {
    const read = readLimits(limits);
    setWrong("error" in read && read.wrong !== undefined ? { name: read.wrong, error: read.error } : undefined);
    if ("value" in read && !isNameless) change.mutate({ name: name.trim(), limits: read.value });
  };
  return (
    <DialogForm
      title="Name and limits"
      action="Save"
      busy={change.isPending}
      failure={change.isError && <Failure error={change.error} />}
      onSubmit={submit}
      onClose={onClose}
    >
      <TextField
        label="Name"
        maxLength={200}
        value={name}
        error={isNameless ? "Give it a name." : null}
        onValue={setName}
      />
      <LimitsFields texts={limits} wrong={wrong} onTexts={setLimits} />
    </DialogForm>
  );
}
