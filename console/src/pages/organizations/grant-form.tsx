import { useState } from "react";
import type { NewGrant, Organization } from "../../api/types.ts";
import { formatAmount } from "../../format/numbers.ts";
import { formatDate } from "../../format/times.ts";
import { TextField } from "../../ui/field.tsx";
import { type ExpiryChoice, ExpiryFields } from "../form-fields.tsx";
import { readCredits, readExpiry, readPriority, shownError } from "../read-form.ts";
import { BookingForm, lineOrNull, useBooking } from "./booking-form.tsx";

interface GrantFormProps {
  organization: Organization;
  onClose: () => void;
}

export function GrantForm({ organization, onClose }: GrantFormProps) {
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
      summary={"value" in credits && "value" in end ? summaryOf(credits.value, organization.name, end.value) : null}
      onSubmit={submit}
      onClose={onClose}
    >
      <TextField
        label="Credits"
        inputMode="decimal"
        value={amount}
        error={shownError(credits, amount, isSubmitted)}
        onValue={setAmount}
      />
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

function summaryOf(credits: number, name: string, expiresAt: string | null): string {
  const expiry = expiresAt === null ? "" : `, which expire on ${formatDate(expiresAt)}`;
  return `Grants ${formatAmount(credits)} credits to ${name}${expiry}.`;
}
