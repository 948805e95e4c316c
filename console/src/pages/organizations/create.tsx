import { useState } from "react";
import { useLocation } from "wouter";
import { useAction } from "../../api/actions.ts";
import { send } from "../../api/client.ts";
import type { Limits, NewOrganization, Organization } from "../../api/types.ts";
import { DialogForm } from "../../ui/dialog.tsx";
import { TextField } from "../../ui/field.tsx";
import { Failure } from "../../ui/states.tsx";
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
    (made: NewOrganization) => send<Organization>("POST", "/admin/v1/organizations", made),
    ["organizations", "overview"],
    ({ id }) => go(`/organizations/${encodeURIComponent(id)}`),
  );
  const submit = () => {
    const own = readLimits(limits);
    const wrong = "error" in own && own.wrong !== undefined ? { name: own.wrong, error: own.error } : undefined;
    setErrors({
      name: name.trim() === "" ? "Give it a name." : undefined,
      limit: wrong,
    });
    if (name.trim() !== "" && "value" in own) create.mutate({ name: name.trim(), limits: own.value });
  };
  return (
    <DialogForm
      title="Create organization"
      action="Create organization"
      busy={create.isPending}
      failure={create.isError && <Failure error={create.error} />}
      onSubmit={submit}
      onClose={onClose}
    >
      <TextField
        label="Name"
        hint="Its page, which opens next, is where it is granted credits."
        maxLength={200}
        value={name}
        error={errors.name}
        onValue={setName}
      />
      <LimitsFields texts={limits} wrong={errors.limit} onTexts={setLimits} />
    </DialogForm>
  );
}
