import { useState } from "react";
import { useLocation } from "wouter";
import { useAction } from "../../api/actions.ts";
import { send } from "../../api/client.ts";
import type { Limits, NewOrganization, Organization } from "../../api/types.ts";
import { DialogForm } from "../../ui/dialog.tsx";
import { TextField } from "../../ui/field.tsx";
import { LimitsFields } from "../limits-fields.tsx";
import { NO_LIMITS, readLimits } from "../read-form.ts";

interface Errors {
  name?: string | undefined;
  limit?: { name: keyof Limits; error: string } | undefined;
}

export function CreateOrganization({ onClose }: { onClose: () => void }) {
  const [name, setName] = useState("");
  const [limits, setLimits] = useState(NO_LIMITS);
  const [errors, setErrors] = useState<Errors>({});
  const [, go] = useLocation();
  const create = useAction(
    (made: NewOrganization, key) => send<Organization>("POST", "/admin/v1/organizations", made, key),
    ["organizations", "overview"],
    ({ id }) => go(`/organizations/${encodeURIComponent(id)}`),
  );
  const submit = () => {
    const own = readLimits(limits);
    const wrong = "error" in own && own.wrong !== undefined ? { name: own.wrong, error: own.error } : undefined;
    setErrors({
      name: name.trim() === "" ? "Enter a name." : undefined,
      limit: wrong,
    });
    if (name.trim() !== "" && "value" in own) create.mutate({ name: name.trim(), limits: own.value });
  };
  return (
    <DialogForm
      title="Create organization"
      action="Create organization"
      attempt={create}
      onSubmit={submit}
      onClose={onClose}
    >
      <TextField
        label="Name"
        hint="You can grant credits on the next page."
        maxLength={200}
        value={name}
        error={errors.name}
        onValue={setName}
      />
      <LimitsFields texts={limits} wrong={errors.limit} onTexts={setLimits} />
    </DialogForm>
  );
}
