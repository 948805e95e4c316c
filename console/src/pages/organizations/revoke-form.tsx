import { useState } from "react";
import type { Grant, NewRevocation } from "../../api/types.ts";
import { formatExactCredits } from "../../format/numbers.ts";
import { TextField } from "../../ui/field.tsx";
import { readOptionalCredits } from "../read-form.ts";
import { BookingForm, lineOrNull, useBooking } from "./booking-form.tsx";
import { referenceInWords } from "./statement-words.ts";

interface RevokeFormProps {
  organizationId: string;
  /** Null: of any grant. */
  grant: Grant | null;
  /** What can be taken back. */
  available: number;
  onClose: () => void;
}

/** Takes credits back that are neither spent nor held. */
export function RevokeForm({ organizationId, grant, available, onClose }: RevokeFormProps) {
  const [amount, setAmount] = useState("");
  const [note, setNote] = useState("");
  const [error, setError] = useState<string | null>(null);
  const revoke = useBooking<NewRevocation>(organizationId, "revocations", onClose);
  const submit = () => {
    const credits = readOptionalCredits(amount);
    setError("error" in credits ? credits.error : null);
    if ("error" in credits) return;
    const wanted = credits.value === null ? { all: true } : { amount: credits.value };
    revoke.mutate({ ...wanted, grant_id: grant?.id ?? null, note: lineOrNull(note) });
  };
  const left = formatExactCredits(grant?.remaining ?? available);
  return (
    <BookingForm
      title={grant === null ? "Take credits back" : `Take back from ${referenceInWords(grant.reference ?? grant.id)}`}
      action="Take back"
      danger
      booking={revoke}
      onSubmit={submit}
      onClose={onClose}
    >
      <p>
        {left} credits are neither spent nor held. What is taken back is no longer there for its tokens; answers that
        are running keep what is held for them.
      </p>
      <TextField
        label="Credits"
        hint="Empty: all of them."
        inputMode="decimal"
        placeholder={left}
        value={amount}
        error={error}
        onValue={setAmount}
      />
      <TextField label="Note" hint="Why." maxLength={200} value={note} onValue={setNote} />
    </BookingForm>
  );
}
