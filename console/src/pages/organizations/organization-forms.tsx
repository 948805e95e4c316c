import { useState } from "react";
import { useLocation } from "wouter";
import { useAction } from "../../api/actions.ts";
import { send } from "../../api/client.ts";
import type { Limits, NewOrganization, Organization, OrganizationChange } from "../../api/types.ts";
import { DialogForm } from "../../ui/dialog.tsx";
import { Checks, Field, TextField } from "../../ui/field.tsx";
import { LimitsFields } from "../form-fields.tsx";
import { limitTexts, NO_LIMITS, readLimits, readWarnings, shownError } from "../read-form.ts";

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

interface EditProps {
  organization: Organization;
  onClose: () => void;
}

/** Returns the action that changes the given fields of an organization. */
export function useChange({ organization, onClose }: EditProps) {
  const path = `/admin/v1/organizations/${encodeURIComponent(organization.id)}`;
  return useAction(
    (change: OrganizationChange) => send<Organization>("PATCH", path, change),
    ["organizations", "overview"],
    onClose,
  );
}

export function EditOrganization({ organization, onClose }: EditProps) {
  // The state when the dialog opened: only fields that the user changed are sent.
  const [before] = useState(organization);
  const [name, setName] = useState(before.name);
  const [limits, setLimits] = useState(() => limitTexts(before.limits));
  const [wrong, setWrong] = useState<{ name: keyof Limits; error: string }>();
  const change = useChange({ organization, onClose });
  const warningsBefore = warningTexts(before);
  const [warnings, setWarnings] = useState(warningsBefore);
  const warnAt = readWarnings(warnings);
  const isNameless = name.trim() === "";
  const submit = () => {
    const read = readLimits(limits);
    setWrong("error" in read && read.wrong !== undefined ? { name: read.wrong, error: read.error } : undefined);
    if ("error" in read || "error" in warnAt || isNameless) return;
    const hasNewLimits = JSON.stringify(limits) !== JSON.stringify(limitTexts(before.limits));
    const changes = {
      ...(name.trim() !== before.name && { name: name.trim() }),
      ...(hasNewLimits && { limits: read.value }),
      ...(warnings !== warningsBefore && { credit_warnings: warnAt.value }),
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
      <Field
        label="Credit warnings"
        hint="Credits at which to warn, one amount per line, in addition to 50, 20, 5 and 0 % of the last top-up."
        error={shownError(warnAt, warnings, false)}
      >
        {(attributes) => (
          <textarea {...attributes} rows={3} value={warnings} onChange={({ target }) => setWarnings(target.value)} />
        )}
      </Field>
    </DialogForm>
  );
}

function warningTexts({ credit_warnings }: Organization): string {
  return (credit_warnings ?? []).join("\n");
}

export function PauseOrganization({ organization, onClose }: { organization: Organization; onClose: () => void }) {
  // The state when the dialog opened: another operator may change it in the meantime.
  const [isPaused] = useState(organization.status === "paused");
  const [pausesAllowances, setPausesAllowances] = useState(false);
  const change = useChange({ organization, onClose });
  return (
    <DialogForm
      title={`${isPaused ? "Resume" : "Pause"} ${organization.name}?`}
      action={isPaused ? "Resume" : "Pause"}
      danger={!isPaused}
      attempt={change}
      onSubmit={() =>
        change.mutate(isPaused ? { status: "active" } : { status: "paused", pauses_allowances: pausesAllowances })
      }
      onClose={onClose}
    >
      {isPaused ? (
        <p>
          Its tokens can be used again.
          {organization.pauses_allowances && " Its allowances continue with the next month that begins."}
        </p>
      ) : (
        <>
          <p>
            Answers in progress are completed and charged. New requests with its tokens are refused with 403
            organization_paused until you resume it. Credits, tokens and limits stay as they are.
          </p>
          {organization.kind === "standard" && (
            <Checks
              label="Monthly allowances"
              hint="Months that begin while the organization is paused are then not granted."
              options={[["allowances", "Pause its allowances as well"]]}
              chosen={new Set(pausesAllowances ? ["allowances"] : [])}
              onChosen={(chosen) => setPausesAllowances(chosen.size > 0)}
            />
          )}
        </>
      )}
    </DialogForm>
  );
}
