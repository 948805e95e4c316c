import { useState } from "react";
import type { Grant, NewRevocation, Organization } from "../../api/types.ts";
import { formatAmount } from "../../format/numbers.ts";
import { Segments, TextField } from "../../ui/field.tsx";
import { readCreditsUpTo, shownError } from "../read-form.ts";
import { BookingForm, lineOrNull, useBooking } from "./booking-form.tsx";
import { referenceLabel } from "./statement-values.ts";

interface RevokeFormProps {
  organization: Organization;
  /** Null to revoke from any grant. */
  grant: Grant | null;
  onClose: () => void;
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
          ? summaryOfAll(available, source)
          : "value" in credits
            ? summaryOf(credits.value, available, source)
            : null
      }
      onSubmit={submit}
      onClose={onClose}
    >
      <p>{formatAmount(available)} credits can be revoked. Credits held for requests in progress are not affected.</p>
      <Segments label="Amount" value={extent} options={EXTENTS} onValue={setExtent} />
      {!isAll && (
        <TextField
          label="Credits"
          inputMode="decimal"
          value={amount}
          error={shownError(credits, amount, isSubmitted)}
          onValue={setAmount}
        />
      )}
      <TextField label="Note" hint="Shown in the statement." maxLength={200} value={note} onValue={setNote} />
    </BookingForm>
  );
}

function summaryOf(credits: number, available: number, source: string): string {
  const left = Math.round((available - credits) * 1e6) / 1e6;
  return `Revokes ${formatAmount(credits)} credits of ${source}. ${formatAmount(left)} credits remain.`;
}

function summaryOfAll(available: number, source: string): string {
  return `Revokes all available credits of ${source}, currently ${formatAmount(available)}.`;
}
