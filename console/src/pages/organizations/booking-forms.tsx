import { type ReactNode, useState } from "react";
import { useAction } from "../../api/actions.ts";
import { send } from "../../api/client.ts";
import type {
  Booking,
  CreditRequest,
  Grant,
  NewCredit,
  NewCreditRequest,
  NewGrant,
  NewRevocation,
  Organization,
  Redemption,
} from "../../api/types.ts";
import { formatAmount } from "../../format/numbers.ts";
import { formatDate } from "../../format/times.ts";
import { DialogForm } from "../../ui/dialog.tsx";
import { Segments, TextField } from "../../ui/field.tsx";
import { type ExpiryChoice, ExpiryFields } from "../form-fields.tsx";
import { type Read, readCredits, readCreditsUpTo, readExpiry, readPriority, shownError } from "../read-form.ts";
import { referenceLabel } from "./statement-values.ts";

/** Returns the action that books credits of an organization. `what` is the last segment of its path. */
function useBooking<Input extends object, Output extends { repeated: boolean } = Booking>(
  organizationId: string,
  what: string,
  onDone: (booking: Output) => void,
) {
  const path = `/admin/v1/organizations/${encodeURIComponent(organizationId)}/${what}`;
  return useAction(
    (input: Input, key) => send<Output>("POST", path, input, key),
    ["organizations", "overview", "requests"],
    (booking) => booking.repeated || onDone(booking),
  );
}

interface FormProps {
  organization: Organization;
  onClose: () => void;
}

interface BookingFormProps {
  title: string;
  action: string;
  danger?: boolean;
  booking: { isPending: boolean; isError: boolean; error: unknown; data: { repeated: boolean } | undefined };
  /** Says why nothing was done, although the request was accepted. */
  repeated?: string;
  /** Says what will be booked; null while the input is invalid. */
  summary: string | null;
  onSubmit: () => void;
  onClose: () => void;
  children: ReactNode;
}

/** Form for a booking. Shows what will be booked, and reports a reference that was already used. */
function BookingForm({
  booking,
  summary,
  repeated = "This reference was already used. Nothing was booked.",
  children,
  ...dialog
}: BookingFormProps) {
  return (
    <DialogForm {...dialog} attempt={booking}>
      {children}
      <Summary text={summary} />
      {booking.data?.repeated && (
        <p className="field-error" role="alert">
          {repeated}
        </p>
      )}
    </DialogForm>
  );
}

/** Preview of what submitting a form will do. */
export function Summary({ text }: { text: string | null }) {
  return (
    <p className="summary" role="status">
      {text}
    </p>
  );
}

interface CreditsFieldProps {
  label?: string;
  text: string;
  read: Read<number>;
  isSubmitted: boolean;
  onText: (text: string) => void;
}

/** Field for an amount of credits. */
export function CreditsField({ label = "Credits", text, read, isSubmitted, onText }: CreditsFieldProps) {
  const error = shownError(read, text, isSubmitted);
  return <TextField label={label} inputMode="decimal" value={text} error={error} onValue={onText} />;
}

interface NoteFieldProps {
  hint?: string;
  text: string;
  onText: (text: string) => void;
}

function NoteField({ hint = "Shown in the statement.", text, onText }: NoteFieldProps) {
  return <TextField label="Note" hint={hint} maxLength={200} value={text} onValue={onText} />;
}

/** Trims a text; null if it is blank. */
function lineOrNull(text: string): string | null {
  return text.trim() === "" ? null : text.trim();
}

/** Asks for credits of the own organization. `onSent` runs once the request was sent. */
export function RequestForm({ organization, onClose, onSent }: FormProps & { onSent: () => void }) {
  const [amount, setAmount] = useState("");
  const [note, setNote] = useState("");
  const [isSubmitted, setSubmitted] = useState(false);
  const request = useBooking<NewCreditRequest, CreditRequest>(organization.id, "credit-requests", onSent);
  const credits = readCredits(amount);
  const submit = () => {
    setSubmitted(true);
    if ("value" in credits) request.mutate({ amount: credits.value, note: lineOrNull(note) });
  };
  return (
    <BookingForm
      title="Request credits"
      action="Send request"
      booking={request}
      repeated="You have already asked today. Nothing was sent."
      summary={"value" in credits ? `Asks for ${formatAmount(credits.value)} credits for ${organization.name}.` : null}
      onSubmit={submit}
      onClose={onClose}
    >
      <p>The people who receive the warnings of your organization are notified. Nothing is granted automatically.</p>
      <CreditsField text={amount} read={credits} isSubmitted={isSubmitted} onText={setAmount} />
      <NoteField hint="For example what the credits are for." text={note} onText={setNote} />
    </BookingForm>
  );
}

/** Redeems the code of a voucher. `onRedeemed` runs with what was granted. */
export function RedeemForm({
  organization,
  onClose,
  onRedeemed,
}: FormProps & { onRedeemed: (credits: number) => void }) {
  const [code, setCode] = useState("");
  const [isSubmitted, setSubmitted] = useState(false);
  const redemption = useBooking<Redemption>(organization.id, "redemptions", ({ amount }) => onRedeemed(amount));
  const read: Read<string> = code.trim() === "" ? { error: "Enter a code." } : { value: code.trim() };
  const submit = () => {
    setSubmitted(true);
    if ("value" in read) redemption.mutate({ code: read.value });
  };
  return (
    <BookingForm
      title="Redeem voucher"
      action="Redeem voucher"
      booking={redemption}
      repeated="Your organization has already redeemed this voucher."
      summary={null}
      onSubmit={submit}
      onClose={onClose}
    >
      <TextField
        label="Code"
        hint="Upper and lower case, spaces and dashes make no difference."
        maxLength={100}
        autoComplete="off"
        value={code}
        error={shownError(read, code, isSubmitted)}
        onValue={setCode}
      />
    </BookingForm>
  );
}

export function GrantForm({ organization, onClose }: FormProps) {
  // Fixed when the form opens, so that a retry sends the same expiry.
  const [openedAtMs] = useState(() => Date.now());
  const [amount, setAmount] = useState("");
  const [reference, setReference] = useState("");
  const [priority, setPriority] = useState("0");
  const [expiry, setExpiry] = useState<ExpiryChoice>("never");
  const [day, setDay] = useState("");
  const [isSubmitted, setSubmitted] = useState(false);
  const grant = useBooking<NewGrant>(organization.id, "grants", onClose);
  const credits = readCredits(amount);
  const end = readExpiry(expiry, day, openedAtMs);
  const rank = readPriority(priority);
  const submit = () => {
    setSubmitted(true);
    if ("error" in credits || "error" in end || "error" in rank) return;
    const terms = { expires_at: end.value, priority: rank.value, reference: lineOrNull(reference) };
    grant.mutate({ amount: credits.value, ...terms });
  };
  return (
    <BookingForm
      title="Grant credits"
      action="Grant credits"
      booking={grant}
      summary={"value" in credits && "value" in end ? grantSummary(credits.value, organization.name, end.value) : null}
      onSubmit={submit}
      onClose={onClose}
    >
      <CreditsField text={amount} read={credits} isSubmitted={isSubmitted} onText={setAmount} />
      <TextField
        label="Reference"
        hint="For example an invoice number. Duplicate references are ignored."
        maxLength={200}
        value={reference}
        onValue={setReference}
      />
      <ExpiryFields
        label="Expires"
        choice={expiry}
        day={day}
        error={shownError(end, day, isSubmitted)}
        onChoice={setExpiry}
        onDay={setDay}
      />
      <TextField
        label="Priority"
        hint="Grants with a lower number are spent first."
        inputMode="numeric"
        value={priority}
        error={shownError(rank, priority, isSubmitted)}
        onValue={setPriority}
      />
    </BookingForm>
  );
}

function grantSummary(credits: number, name: string, expiresAt: string | null): string {
  const expiry = expiresAt === null ? "" : `, which expire on ${formatDate(expiresAt)}`;
  return `Grants ${formatAmount(credits)} credits to ${name}${expiry}.`;
}

interface RefundFormProps {
  organization: Pick<Organization, "id" | "name">;
  /** The request to refund, with the charge that was not refunded yet. */
  charge?: { requestId: string; left: number };
  onClose: () => void;
}

/** Refunds credits that were spent: as goodwill, or to correct one charge. */
export function RefundForm({ organization, charge, onClose }: RefundFormProps) {
  const [amount, setAmount] = useState(charge === undefined ? "" : String(charge.left));
  const [request, setRequest] = useState(charge?.requestId ?? "");
  const [reference, setReference] = useState("");
  const [note, setNote] = useState("");
  const [isSubmitted, setSubmitted] = useState(false);
  const refund = useBooking<NewCredit>(organization.id, "credits", onClose);
  const credits = readCredits(amount);
  const submit = () => {
    setSubmitted(true);
    if ("error" in credits) return;
    const why = { request_id: lineOrNull(idOf(request)), reference: lineOrNull(reference), note: lineOrNull(note) };
    refund.mutate({ amount: credits.value, ...why });
  };
  return (
    <BookingForm
      title="Refund credits"
      action="Refund credits"
      booking={refund}
      summary={"value" in credits ? `Refunds ${formatAmount(credits.value)} credits to ${organization.name}.` : null}
      onSubmit={submit}
      onClose={onClose}
    >
      <p>Refunded credits can be spent again. You can refund at most the amount spent.</p>
      <CreditsField text={amount} read={credits} isSubmitted={isSubmitted} onText={setAmount} />
      <TextField
        label="Request"
        hint="URL or ID of the charged request. Leave blank for a goodwill refund."
        value={request}
        onValue={setRequest}
      />
      <TextField
        label="Reference"
        hint="Duplicate references are ignored."
        maxLength={200}
        value={reference}
        onValue={setReference}
      />
      <NoteField text={note} onText={setNote} />
    </BookingForm>
  );
}

/** Extracts the ID from the URL of a request's page; other text is returned unchanged. */
function idOf(text: string): string {
  const [, id = text] = /\/requests\/([^/?#]+)/.exec(text) ?? [];
  return id;
}

interface RevokeFormProps extends FormProps {
  /** Null to revoke from any grant. */
  grant: Grant | null;
}

const EXTENTS = [
  ["some", "Specific amount"],
  ["all", "All"],
] as const;

/** Revokes credits that are neither spent nor held: a specific amount, or all. */
export function RevokeForm({ organization, grant, onClose }: RevokeFormProps) {
  const [extent, setExtent] = useState<(typeof EXTENTS)[number][0]>("some");
  const [amount, setAmount] = useState("");
  const [note, setNote] = useState("");
  const [isSubmitted, setSubmitted] = useState(false);
  const revoke = useBooking<NewRevocation>(organization.id, "revocations", onClose);
  const available = grant?.remaining ?? organization.credits.available;
  const isAll = extent === "all";
  const credits = readCreditsUpTo(amount, available);
  const submit = () => {
    setSubmitted(true);
    if (!isAll && "error" in credits) return;
    const wanted = isAll || "error" in credits ? { all: true } : { amount: credits.value };
    revoke.mutate({ ...wanted, grant_id: grant?.id ?? null, note: lineOrNull(note) });
  };
  const source = grant === null ? organization.name : referenceLabel(grant.reference ?? grant.id);
  return (
    <BookingForm
      title={grant === null ? "Revoke credits" : `Revoke credits of ${source}`}
      action="Revoke credits"
      danger
      booking={revoke}
      summary={
        isAll
          ? fullRevocationSummary(available, source)
          : "value" in credits
            ? revocationSummary(credits.value, available, source)
            : null
      }
      onSubmit={submit}
      onClose={onClose}
    >
      <p>{formatAmount(available)} credits can be revoked. Credits held for requests in progress are not affected.</p>
      <Segments label="Amount" value={extent} options={EXTENTS} onValue={setExtent} />
      {!isAll && <CreditsField text={amount} read={credits} isSubmitted={isSubmitted} onText={setAmount} />}
      <NoteField text={note} onText={setNote} />
    </BookingForm>
  );
}

function revocationSummary(credits: number, available: number, source: string): string {
  const left = Math.round((available - credits) * 1e6) / 1e6;
  return `Revokes ${formatAmount(credits)} credits of ${source}. ${formatAmount(left)} credits remain.`;
}

function fullRevocationSummary(available: number, source: string): string {
  return `Revokes all available credits of ${source}, currently ${formatAmount(available)}.`;
}
