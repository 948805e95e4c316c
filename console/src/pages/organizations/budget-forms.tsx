import { X } from "lucide-react";
import { useState } from "react";
import { useAction } from "../../api/actions.ts";
import { ApiFailure, send } from "../../api/client.ts";
import { useTokenNames } from "../../api/queries.ts";
import type { Budget, BudgetChange, BudgetCounter, BudgetRaise, NewBudget } from "../../api/types.ts";
import { formatAmount } from "../../format/numbers.ts";
import { IconButton } from "../../ui/button.tsx";
import { DialogForm } from "../../ui/dialog.tsx";
import { Field, SelectField, TextField } from "../../ui/field.tsx";
import { LimitsFields } from "../form-fields.tsx";
import { Pick } from "../pick.tsx";
import { type LimitTexts, limitTexts, readCredits, readLimits, readOptionalCredits, shownError } from "../read-form.ts";
import { CreditsField, Summary } from "./booking-forms.tsx";
import {
  type BudgetDraft,
  type BudgetErrors,
  budgetSummary,
  coverageLabel,
  EMPTY_BUDGET,
  fieldOfParam,
  NO_TERMS,
  readBudget,
  WINDOWS,
} from "./budget-terms.ts";

const AFFECTED = ["budgets", "audit"];

const EACH = [
  ["", "All covered requests together"],
  ["token", "Each token separately"],
  ["model", "Each model separately"],
  ["metadata", "Each value of a metadata key separately"],
] as const;

interface CreateBudgetProps {
  path: string;
  organizationId: string;
  onClose: () => void;
}

export function CreateBudget({ path, organizationId, onClose }: CreateBudgetProps) {
  const [draft, setDraft] = useState(EMPTY_BUDGET);
  // The draft that was submitted: its errors are shown until it is changed.
  const [submitted, setSubmitted] = useState<BudgetDraft | null>(null);
  const nameOf = useTokenNames(draft.tokens);
  const create = useAction((budget: NewBudget, key) => send<Budget>("POST", path, budget, key), AFFECTED, onClose);
  const read = readBudget(draft);
  const submit = () => {
    setSubmitted(draft);
    if ("budget" in read) create.mutate(read.budget);
  };
  return (
    <DialogForm title="Create budget" action="Create budget" attempt={create} onSubmit={submit} onClose={onClose}>
      <p>
        Without tokens, models or metadata, it covers all requests of the organization. Only its name, its amount and
        its limits can be changed later.
      </p>
      <BudgetFields
        draft={draft}
        organizationId={organizationId}
        errors={submitted === draft ? errorsOf(read, create.error) : {}}
        nameOf={nameOf}
        onDraft={(changes) => setDraft({ ...draft, ...changes })}
      />
      <Summary text={"budget" in read ? budgetSummary(read.budget, nameOf) : null} />
    </DialogForm>
  );
}

/** Returns the errors by field: those of the form, or that of the service. */
function errorsOf(read: ReturnType<typeof readBudget>, error: unknown): BudgetErrors {
  if ("errors" in read) return read.errors;
  const field = error instanceof ApiFailure ? fieldOfParam(error.param) : null;
  return field === null || !(error instanceof ApiFailure) ? {} : { [field]: error.message };
}

interface BudgetFieldsProps {
  draft: BudgetDraft;
  organizationId: string;
  errors: BudgetErrors;
  nameOf: (tokenId: string) => string;
  onDraft: (changes: Partial<BudgetDraft>) => void;
}

function BudgetFields({ draft, organizationId, errors, nameOf, onDraft }: BudgetFieldsProps) {
  return (
    <>
      <TextField
        label="Name"
        hint='For example "2 credits a day for every user".'
        maxLength={200}
        value={draft.name}
        error={errors.name}
        onValue={(name) => onDraft({ name })}
      />
      <TokensField
        organizationId={organizationId}
        tokens={draft.tokens}
        error={errors.tokens}
        nameOf={nameOf}
        onTokens={(tokens) => onDraft({ tokens })}
      />
      <TextField
        label="Models"
        hint="Separate with commas. A * at the end matches any ending, such as sandbox/*. Leave blank for all models."
        value={draft.models}
        error={errors.models}
        onValue={(models) => onDraft({ models })}
      />
      <Field
        label="Metadata"
        hint="One key=value per line, such as team=red. Lines with the same key are alternatives. Callers whose tokens do not pin the key can choose other values."
        error={errors.metadata}
      >
        {(attributes) => (
          <textarea
            {...attributes}
            rows={2}
            value={draft.metadata}
            onChange={({ target }) => onDraft({ metadata: target.value })}
          />
        )}
      </Field>
      <AmountFields draft={draft} errors={errors} onDraft={onDraft} />
    </>
  );
}

function AmountFields({ draft, errors, onDraft }: Omit<BudgetFieldsProps, "organizationId" | "nameOf">) {
  return (
    <>
      <div className="fields">
        <SelectField
          label="The amount and the limits are for"
          value={draft.each}
          options={EACH}
          error={errors.each}
          onValue={(each) => onDraft({ each })}
        />
        {draft.each === "metadata" && (
          <TextField
            label="Metadata key"
            hint="For example user."
            maxLength={64}
            value={draft.key}
            error={errors.key}
            onValue={(key) => onDraft({ key })}
          />
        )}
      </div>
      <div className="fields">
        <TextField
          label="Credits"
          hint="Leave blank for limits alone."
          inputMode="decimal"
          value={draft.amount}
          error={errors.amount}
          onValue={(amount) => onDraft({ amount })}
        />
        <SelectField
          label="Window (UTC)"
          value={draft.window}
          options={WINDOWS}
          error={errors.window}
          onValue={(window) => onDraft({ window })}
        />
      </div>
      <LimitsFields
        texts={draft.limits}
        wrong={wrongLimit(draft.limits, errors.limits)}
        hint={LIMITS_HINT}
        onTexts={(limits) => onDraft({ limits })}
      />
    </>
  );
}

const LIMITS_HINT = "Leave blank for no limit of this budget. The limits of tokens, models and the organization stay.";

/** Returns the error of a limit with its field. */
function wrongLimit(texts: LimitTexts, error: string | undefined) {
  const { wrong: name } = readLimits(texts);
  return error === undefined || name === undefined ? undefined : { name, error };
}

interface TokensFieldProps {
  organizationId: string;
  tokens: readonly string[];
  error: string | undefined;
  nameOf: (tokenId: string) => string;
  onTokens: (tokens: string[]) => void;
}

/** Field for any number of tokens: each selection adds one. */
function TokensField({ organizationId, tokens, error, nameOf, onTokens }: TokensFieldProps) {
  return (
    <>
      <Field label="Tokens" hint="Includes the tokens that they replaced and that replace them." error={error}>
        {(attributes) => (
          <Pick
            what="tokens"
            filter={{ organization_id: organizationId, status: "active" }}
            accepts={({ id }) => !tokens.includes(id)}
            attributes={attributes}
            placeholder={tokens.length === 0 ? "All tokens" : "Add a token …"}
            value=""
            onValue={(id) => onTokens([...tokens, id])}
          />
        )}
      </Field>
      {tokens.length > 0 && (
        <ul className="chosen" aria-label="Selected tokens">
          {tokens.map((id) => (
            <li key={id}>
              <span className="wrap-anywhere">{nameOf(id)}</span>
              <IconButton
                icon={X}
                label={`Remove ${nameOf(id)}`}
                onClick={() => onTokens(tokens.filter((other) => other !== id))}
              />
            </li>
          ))}
        </ul>
      )}
    </>
  );
}

interface BudgetFormProps {
  path: string;
  budget: Budget;
  onClose: () => void;
}

export function ChangeBudget({ path, budget, onClose }: BudgetFormProps) {
  // The state when the dialog opened: only fields that the user changed are sent.
  const [before] = useState(budget);
  const [name, setName] = useState(before.name);
  const [amount, setAmount] = useState(before.amount === null ? "" : String(before.amount));
  const [limits, setLimits] = useState(() => limitTexts(before.limits));
  const change = useAction((changes: BudgetChange) => send<Budget>("PATCH", path, changes), AFFECTED, onClose);
  // An amount can be added, but not removed.
  const credits = before.amount === null ? readOptionalCredits(amount) : readCredits(amount);
  const read = readLimits(limits);
  const isNameless = name.trim() === "";
  const isEmpty = "value" in credits && credits.value === null && "value" in read && read.value === null;
  const submit = () => {
    if ("error" in credits || "error" in read || isNameless || isEmpty) return;
    const hasNewLimits = JSON.stringify(limits) !== JSON.stringify(limitTexts(before.limits));
    const changes = {
      ...(name.trim() !== before.name && { name: name.trim() }),
      ...(credits.value !== null && credits.value !== before.amount && { amount: credits.value }),
      ...(hasNewLimits && { limits: read.value }),
    };
    if (Object.keys(changes).length === 0) onClose();
    else change.mutate(changes);
  };
  return (
    <DialogForm title={`Change ${before.name}`} action="Save" attempt={change} onSubmit={submit} onClose={onClose}>
      <TextField
        label="Name"
        maxLength={200}
        value={name}
        error={isNameless ? "Enter a name." : null}
        onValue={setName}
      />
      <TextField
        label="Credits"
        hint="Applies to this window and all later ones. If it is below what is spent and held, new requests are refused; running ones continue."
        inputMode="decimal"
        value={amount}
        error={isEmpty ? NO_TERMS : shownError(credits, amount, true)}
        onValue={setAmount}
      />
      <LimitsFields
        texts={limits}
        wrong={wrongLimit(limits, "error" in read ? read.error : undefined)}
        hint={LIMITS_HINT}
        onTexts={setLimits}
      />
    </DialogForm>
  );
}

/** Adds credits to a budget, or to one value of a budget with `each`, in the current window. */
export function RaiseBudget({ path, budget, value, onClose }: BudgetFormProps & { value: string | null }) {
  const [amount, setAmount] = useState("");
  const [isSubmitted, setSubmitted] = useState(false);
  const raise = useAction(
    (terms: BudgetRaise, key) => send<BudgetCounter>("POST", `${path}/raises`, terms, key),
    AFFECTED,
    onClose,
  );
  const credits = readCredits(amount);
  const nameOf = useTokenNames(budget.each === "token" && value !== null ? [value] : []);
  const subject = value === null ? budget.name : `${nameOf(value)} in ${budget.name}`;
  const submit = () => {
    setSubmitted(true);
    if ("value" in credits) raise.mutate({ amount: credits.value, value });
  };
  return (
    <DialogForm title={`Raise ${subject}`} action="Raise budget" attempt={raise} onSubmit={submit} onClose={onClose}>
      <p>Adds credits in the current window only. Later windows have the usual amount.</p>
      <CreditsField text={amount} read={credits} isSubmitted={isSubmitted} onText={setAmount} />
      <Summary text={"value" in credits ? `Adds ${formatAmount(credits.value)} credits to ${subject}.` : null} />
    </DialogForm>
  );
}

export function DeleteBudget({ path, budget, onClose }: BudgetFormProps) {
  const remove = useAction(() => send<undefined>("DELETE", path), AFFECTED, onClose);
  const nameOf = useTokenNames(budget.selector.tokens ?? []);
  return (
    <DialogForm
      title={`Delete ${budget.name}?`}
      action="Delete budget"
      danger
      attempt={remove}
      onSubmit={() => remove.mutate(undefined)}
      onClose={onClose}
    >
      <p>
        {coverageLabel(budget.selector, nameOf)} are no longer limited by this budget. What it has counted is deleted
        with it. Other budgets stay as they are. This cannot be undone.
      </p>
    </DialogForm>
  );
}
