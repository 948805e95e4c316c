import { useState } from "react";
import { useAction } from "../../api/actions.ts";
import { ApiFailure, send } from "../../api/client.ts";
import type { NewReceiver, Receiver, ReceiverChange, ReceiverWithSecret } from "../../api/types.ts";
import { useAccess } from "../../shell/session.ts";
import { DialogForm } from "../../ui/dialog.tsx";
import { Checks, Field, Segments, SelectField, TextField } from "../../ui/field.tsx";
import { Pick } from "../pick.tsx";
import { showSecret } from "../tokens/secret.tsx";
import { FORMATS, kindChoices } from "./kinds.ts";

const AFFECTED = ["receivers", "deliveries", "audit"];

interface Draft {
  name: string;
  format: Receiver["format"];
  target: string;
  /** Empty: the events of the whole service. */
  organizationId: string;
  /** Null: all. */
  kinds: Set<string> | null;
}
type Errors = Partial<Record<keyof Draft, string>>;

function draftErrors({ name, target, kinds }: Draft): Errors {
  return {
    ...(name.trim() === "" && { name: "Enter a name." }),
    ...(target.trim() === "" && { target: "Enter an address." }),
    ...(kinds?.size === 0 && { kinds: "Select at least one event." }),
  };
}

/** Keeps a draft with the errors of what was submitted, or that of the service. */
function useDraft(initial: Draft, error: unknown) {
  const [draft, setDraft] = useState(initial);
  const [submitted, setSubmitted] = useState<Draft | null>(null);
  const own = draftErrors(draft);
  const refused = error instanceof ApiFailure && error.param === "target" ? { target: error.message } : {};
  return {
    draft,
    errors: submitted === draft ? { ...refused, ...own } : {},
    isValid: Object.keys(own).length === 0,
    change: (changes: Partial<Draft>) => setDraft({ ...draft, ...changes }),
    submit: () => setSubmitted(draft),
  };
}

interface CreateReceiverProps {
  /** The organization whose events it gets; absent: the form asks. */
  organizationId?: string | undefined;
  onClose: () => void;
}

export function CreateReceiver({ organizationId, onClose }: CreateReceiverProps) {
  const { isServiceWide } = useAccess();
  const create = useAction(
    (receiver: NewReceiver, key) => send<ReceiverWithSecret>("POST", "/admin/v1/receivers", receiver, key),
    AFFECTED,
    (receiver) => {
      if (receiver.format === "mail") onClose();
      else showSecret({ title: "Receiver added", receiver }, onClose);
    },
  );
  const blank: Draft = { name: "", format: "webhook", target: "", organizationId: organizationId ?? "", kinds: null };
  const { draft, errors, isValid, change, submit } = useDraft(blank, create.error);
  const add = () => {
    submit();
    const { name, format, target, kinds } = draft;
    const organization = draft.organizationId === "" ? {} : { organization_id: draft.organizationId };
    const terms = { name: name.trim(), format, target: target.trim(), kinds: kinds && [...kinds] };
    if (isValid) create.mutate({ ...terms, ...organization });
  };
  return (
    <DialogForm title="Add receiver" action="Add receiver" attempt={create} onSubmit={add} onClose={onClose}>
      {isServiceWide && organizationId === undefined && (
        <Field label="Events of" hint="An organization, or the whole service with all organizations.">
          {(attributes) => (
            <Pick
              what="organizations"
              attributes={attributes}
              all="The whole service"
              value={draft.organizationId}
              onValue={(id) => change({ organizationId: id })}
            />
          )}
        </Field>
      )}
      <SelectField label="Send as" value={draft.format} options={FORMATS} onValue={(format) => change({ format })} />
      <TermFields draft={draft} errors={errors} onDraft={change} />
    </DialogForm>
  );
}

export function EditReceiver({ receiver, onClose }: ReceiverProps) {
  // The state when the dialog opened: only fields that the user changed are sent.
  const [before] = useState(receiver);
  const change = useChange(receiver, onClose);
  const kinds = before.kinds && new Set(before.kinds);
  const initial = { ...before, kinds, organizationId: before.organization_id ?? "" };
  const form = useDraft(initial, change.error);
  const save = () => {
    form.submit();
    const [name, target] = [form.draft.name.trim(), form.draft.target.trim()];
    const own = form.draft.kinds && [...form.draft.kinds];
    const changes: ReceiverChange = {
      ...(name !== before.name && { name }),
      ...(target !== before.target && { target }),
      ...(JSON.stringify(own) !== JSON.stringify(before.kinds) && { kinds: own }),
    };
    if (!form.isValid) return;
    if (Object.keys(changes).length === 0) onClose();
    else change.mutate(changes);
  };
  return (
    <DialogForm title={`Edit ${receiver.name}`} action="Save" attempt={change} onSubmit={save} onClose={onClose}>
      <TermFields draft={form.draft} errors={form.errors} onDraft={form.change} />
    </DialogForm>
  );
}

interface TermFieldsProps {
  draft: Draft;
  errors: Errors;
  onDraft: (changes: Partial<Draft>) => void;
}

function TermFields({ draft, errors, onDraft }: TermFieldsProps) {
  const { name, format, target, organizationId, kinds } = draft;
  const { isServiceWide } = useAccess();
  return (
    <>
      <TextField
        label="Name"
        hint='For example "Operations".'
        maxLength={200}
        value={name}
        error={errors.name}
        onValue={(text) => onDraft({ name: text })}
      />
      <TextField
        label={format === "mail" ? "Mail address" : "Address"}
        hint={format === "mail" ? "All events of a minute arrive in one mail." : "Begins with https://."}
        type={format === "mail" ? "email" : "url"}
        maxLength={2000}
        value={target}
        error={errors.target}
        onValue={(text) => onDraft({ target: text })}
      />
      <div className="field">
        <span className="legend-title">Events</span>
        <Segments
          label="Events"
          value={kinds === null ? "all" : "some"}
          options={[
            ["all", "All events, including new kinds"],
            ["some", "Selected events"],
          ]}
          onValue={(which) => onDraft({ kinds: which === "all" ? null : new Set() })}
        />
        {kinds !== null && (
          <Checks
            label="Selected events"
            isLong
            options={kindChoices(isServiceWide && organizationId === "")}
            chosen={kinds}
            onChosen={(chosen) => onDraft({ kinds: chosen })}
          />
        )}
        {errors.kinds && <p className="field-error">{errors.kinds}</p>}
      </div>
    </>
  );
}

export interface ReceiverProps {
  receiver: Receiver;
  onClose: () => void;
}

const pathOf = ({ id }: Receiver) => `/admin/v1/receivers/${encodeURIComponent(id)}`;

function useChange(receiver: Receiver, onDone: () => void) {
  return useAction((change: ReceiverChange) => send<Receiver>("PATCH", pathOf(receiver), change), AFFECTED, onDone);
}

export function RotateReceiver({ receiver, onClose }: ReceiverProps) {
  const rotate = useAction(
    (_: undefined, key) => send<ReceiverWithSecret>("POST", `${pathOf(receiver)}/rotate`, {}, key),
    AFFECTED,
    (rotated) => showSecret({ title: "Secret replaced", receiver: rotated }, onClose),
  );
  return (
    <DialogForm
      title={`Replace the secret of ${receiver.name}?`}
      action="Replace secret"
      attempt={rotate}
      onSubmit={() => rotate.mutate(undefined)}
      onClose={onClose}
    >
      <p>Deliveries are signed with both secrets for a day, so that the receiver can change over in that time.</p>
    </DialogForm>
  );
}

export function TestReceiver({ receiver, onClose }: ReceiverProps) {
  const test = useAction(
    (_: undefined, key) => send<unknown>("POST", `${pathOf(receiver)}/test`, {}, key),
    AFFECTED,
    onClose,
  );
  return (
    <DialogForm
      title="Send a test event?"
      action="Send test event"
      attempt={test}
      onSubmit={() => test.mutate(undefined)}
      onClose={onClose}
    >
      <p className="wrap-anywhere">{`Sends a test event to ${receiver.target}. The result appears in the list of deliveries.`}</p>
    </DialogForm>
  );
}

export function EnableReceiver({ receiver, onClose }: ReceiverProps) {
  // The state when the dialog opened: the service may disable it in the meantime.
  const [isDisabled] = useState(receiver.status === "disabled");
  const change = useChange(receiver, onClose);
  const verb = isDisabled ? "Enable" : "Disable";
  return (
    <DialogForm
      title={`${verb} ${receiver.name}?`}
      action={verb}
      danger={!isDisabled}
      attempt={change}
      onSubmit={() => change.mutate({ enabled: isDisabled })}
      onClose={onClose}
    >
      <p>
        {isDisabled
          ? "It gets events that happen from now on. To send earlier ones, send their deliveries again."
          : "It gets no events until you enable it again. Events that happen meanwhile are not sent later."}
      </p>
    </DialogForm>
  );
}

export function DeleteReceiver({ receiver, onClose }: ReceiverProps) {
  const remove = useAction((_: undefined) => send<undefined>("DELETE", pathOf(receiver)), AFFECTED, onClose);
  return (
    <DialogForm
      title={`Delete ${receiver.name}?`}
      action="Delete receiver"
      danger
      attempt={remove}
      onSubmit={() => remove.mutate(undefined)}
      onClose={onClose}
    >
      <p>Its deliveries are deleted as well. This cannot be undone.</p>
    </DialogForm>
  );
}
