import { useState } from "react";
import type { NewCredit } from "../../api/types.ts";
import { TextField } from "../../ui/field.tsx";
import { readCredits } from "../read-form.ts";
import { BookingForm, lineOrNull, useBooking } from "./booking-form.tsx";

/** Gives credits back that were spent: as goodwill, or to correct one charge. */
export function CreditForm({ organizationId, onClose }: { organizationId: string; onClose: () => void }) {
  const [amount, setAmount] = useState("");
  const [holdId, setHoldId] = useState("");
  const [reference, setReference] = useState("");
  const [note, setNote] = useState("");
  const [error, setError] = useState<string | null>(null);
  const give = useBooking<NewCredit>(organizationId, "credits", onClose);
  const submit = () => {
    const credits = readCredits(amount);
    setError("error" in credits ? credits.error : null);
    if ("error" in credits) return;
    const why = { hold_id: lineOrNull(idOf(holdId)), reference: lineOrNull(reference), note: lineOrNull(note) };
    give.mutate({ amount: credits.value, ...why });
  };
  return (
    <BookingForm title="Give credits back" action="Give back" booking={give} onSubmit={submit} onClose={onClose}>
      <p>Credits that were spent come back as a credit, which can be spent again. Never more than was spent.</p>
      <TextField label="Credits" inputMode="decimal" value={amount} error={error} onValue={setAmount} />
      <TextField
        label="For the request"
        hint="The address of its page, or the id in it. Empty: goodwill."
        value={holdId}
        onValue={setHoldId}
      />
      <TextField
        label="Reference"
        hint="The same reference gives back once."
        maxLength={200}
        value={reference}
        onValue={setReference}
      />
      <TextField label="Note" hint="Why." maxLength={200} value={note} onValue={setNote} />
    </BookingForm>
  );
}

/** The id in the address of a request's page, or as it was typed. */
function idOf(text: string): string {
  const [, id = text] = /\/requests\/([^/?#]+)/.exec(text) ?? [];
  return id;
}
