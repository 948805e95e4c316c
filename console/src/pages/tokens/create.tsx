import { useState } from "react";
import { useAction } from "../../api/actions.ts";
import { send } from "../../api/client.ts";
import type { NewToken, Token, TokenBounds, TokenChange, TokenWithSecret } from "../../api/types.ts";
import { formatAmount } from "../../format/numbers.ts";
import { useAccess } from "../../shell/session.ts";
import { DialogForm } from "../../ui/dialog.tsx";
import { Checks, Field, TextField } from "../../ui/field.tsx";
import { Note } from "../../ui/states.tsx";
import { ExpiryFields, LimitsFields, ModelChoice } from "../form-fields.tsx";
import { Pick } from "../pick.tsx";
import { readOptionalCredits } from "../read-form.ts";
import { boundsLabel, useTokenBounds } from "./bounds.tsx";
import { draftOf, emptyDraft, readChange, readDraft, SCOPE_LABELS, type TokenDraft } from "./draft.ts";
import { showSecret } from "./secret.tsx";

interface CreateTokenProps {
  /** Preselected organization; may be empty. */
  organizationId: string;
  onClose: () => void;
}

export function CreateToken({ organizationId, onClose }: CreateTokenProps) {
  const { may } = useAccess();
  // Fixed when the form opens, so that a retry sends the same expiry.
  const [openedAtMs] = useState(() => Date.now());
  const [draft, setDraft] = useState(() => emptyDraft(organizationId));
  const [errors, setErrors] = useState<Partial<Record<string, string>>>({});
  const make = useAction(
    (token: NewToken, key) => send<TokenWithSecret>("POST", "/admin/v1/tokens", token, key),
    ["tokens", "overview"],
    (token) => showSecret({ title: "Token created", token, showsRequests: may("requests:read") }, onClose),
  );
  const submit = () => {
    const read = readDraft(draft, openedAtMs);
    setErrors("errors" in read ? read.errors : {});
    if ("token" in read) make.mutate(read.token);
  };
  return (
    <DialogForm title="Create token" action="Create token" attempt={make} onSubmit={submit} onClose={onClose}>
      <OwnBounds />
      <DraftFields draft={draft} errors={errors} onDraft={(changes) => setDraft({ ...draft, ...changes })} />
    </DialogForm>
  );
}

export function EditToken({ token, onClose }: { token: Token; onClose: () => void }) {
  const [openedAtMs] = useState(() => Date.now());
  const [before] = useState(() => draftOf(token));
  const [draft, setDraft] = useState(before);
  const [errors, setErrors] = useState<Partial<Record<string, string>>>({});
  const path = `/admin/v1/tokens/${encodeURIComponent(token.id)}`;
  const change = useAction(
    (changes: TokenChange) => send<Token>("PATCH", path, changes),
    ["tokens", "overview"],
    onClose,
  );
  const submit = () => {
    const read = readChange(draft, before, openedAtMs);
    setErrors("errors" in read ? read.errors : {});
    if ("errors" in read) return;
    if (Object.keys(read.change).length === 0) onClose();
    else change.mutate(read.change);
  };
  return (
    <DialogForm title={`Edit ${token.name}`} action="Save" attempt={change} onSubmit={submit} onClose={onClose}>
      <OwnBounds />
      <DraftFields isEdit draft={draft} errors={errors} onDraft={(changes) => setDraft({ ...draft, ...changes })} />
    </DialogForm>
  );
}

/** States the bounds of the tokens that a person creates themselves. */
function OwnBounds() {
  const bounds = useTokenBounds();
  return bounds && <Note>{boundsLabel(bounds)} If a field is blank, its bound applies.</Note>;
}

interface DraftFieldsProps {
  /** True if the token exists: it stays in its organization. */
  isEdit?: boolean;
  draft: TokenDraft;
  errors: Partial<Record<string, string>>;
  onDraft: (changes: Partial<TokenDraft>) => void;
}

function DraftFields({ isEdit = false, draft, errors, onDraft }: DraftFieldsProps) {
  const bounds = useTokenBounds();
  const wrongLimit = (["requests_per_minute", "tokens_per_minute", "concurrent_requests"] as const)
    .map((name) => ({ name, error: errors[name] }))
    .find((one): one is { name: typeof one.name; error: string } => one.error !== undefined);
  return (
    <>
      {!isEdit && bounds === null && (
        <Field label="Organization" hint="Requests of the token are charged to it." error={errors.organizationId}>
          {(attributes) => (
            <Pick
              what="organizations"
              attributes={attributes}
              value={draft.organizationId}
              onValue={(organizationId) => onDraft({ organizationId })}
            />
          )}
        </Field>
      )}
      <TextField
        label="Name"
        hint='For example "production backend".'
        maxLength={200}
        value={draft.name}
        error={errors.name}
        onValue={(name) => onDraft({ name })}
      />
      <Checks
        label="Scopes"
        options={scopesWithin(bounds)}
        chosen={draft.scopes}
        onChosen={(scopes) => onDraft({ scopes })}
      />
      {errors.scopes && <p className="field-error">{errors.scopes}</p>}
      <ModelChoice
        models={draft.models}
        offered={bounds?.models ?? null}
        error={errors.models}
        onModels={(models) => onDraft({ models })}
      />
      <TextField
        label="Spending cap"
        hint={capHint(draft.cap, isEdit)}
        inputMode="decimal"
        value={draft.cap}
        error={errors.cap}
        onValue={(cap) => onDraft({ cap })}
      />
      <ExpiryFields
        label="Expires"
        choice={draft.expiry}
        day={draft.day}
        error={errors.day}
        onChoice={(expiry) => onDraft({ expiry })}
        onDay={(day) => onDraft({ day })}
      />
      {bounds === null && (
        <LimitsFields texts={draft.limits} wrong={wrongLimit} onTexts={(limits) => onDraft({ limits })} />
      )}
    </>
  );
}

/** Hint of the cap field: the cap that will be set. */
function capHint(text: string, isEdit: boolean): string {
  const cap = readOptionalCredits(text);
  if ("error" in cap || cap.value === null) return "Credits. Leave blank for no cap.";
  const past = isEdit ? ", with all that it has spent" : "";
  return `The token can spend ${formatAmount(cap.value)} credits in total${past}.`;
}

/** Returns the scopes that a person can choose. Only operators let a token sign in to the console. */
function scopesWithin(bounds: TokenBounds | null | undefined) {
  return bounds === null ? SCOPE_LABELS : SCOPE_LABELS.filter(([scope]) => scope !== "console:read");
}
