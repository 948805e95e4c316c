import { useState } from "react";
import type { NewCredit, Organization } from "../../api/types.ts";
import { formatAmount } from "../../format/numbers.ts";
import { TextField } from "../../ui/field.tsx";
import { readCredits, shownError } from "../read-form.ts";
import { BookingForm, lineOrNull, useBooking } from "./booking-form.tsx";

interface RefundFormProps {
  organization: Organization;
  onClose: () => void;
}

/** Refunds credits that were spent: as goodwill, or to correct one charge. */
export function RefundForm({ organization, onClose }: RefundFormProps) {
  const [amount, setAmount] = useState("");
  const [holdId, setHoldId] = useState("");
  const [reference, setReference] = useState("");
  const [note, setNote] = useState("");
  const [isSubmitted, setSubmitted] = useState(false);
  const refund = useBooking<NewCredit>(organization.id, "credits", onClose);
  const credits = readCredits(amount);
  const submit = () => {
    setSubmitted(true);
    if ("error" in credits) return;
    const why = { hold_id: lineOrNull(idOf(holdId)), reference: lineOrNull(reference), note: lineOrNull(note) };
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
      <TextField
        label="Credits"
        inputMode="decimal"
        value={amount}
        error={shownError(credits, amount, isSubmitted)}
        onValue={setAmount}
      />
      <TextField
        label="Request"
        hint="URL or ID of the charged request. Leave blank for a goodwill refund."
        value={holdId}
        onValue={setHoldId}
      />
      <TextField
        label="Reference"
        hint="Duplicate references are ignored."
        maxLength={200}
        value={reference}
        onValue={setReference}
      />
      <TextField label="Note" hint="Shown in the statement." maxLength={200} value={note} onValue={setNote} />
    </BookingForm>
  );
}

/** Extracts the ID from the URL of a request's page; other text is returned unchanged. */
function idOf(text: string): string {
  const [, id = text] = /\/requests\/([^/?#]+)/.exec(text) ?? [];
  return id;
}
