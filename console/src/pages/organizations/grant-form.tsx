import { useState } from "react";
import type { NewGrant } from "../../api/types.ts";
import { TextField } from "../../ui/field.tsx";
import { type ExpiryChoice, ExpiryFields } from "../expiry-fields.tsx";
import { readCredits, readExpiry, readPriority } from "../read-form.ts";
import { BookingForm, lineOrNull, useBooking } from "./booking-form.tsx";

/** What went wrong in a field, by its name. */
type Errors = Partial<Record<"amount" | "day" | "priority", string>>;

export function GrantForm({ organizationId, onClose }: { organizationId: string; onClose: () => void }) {
  const [amount, setAmount] = useState("");
  const [reference, setReference] = useState("");
  const [priority, setPriority] = useState("0");
  const [expiry, setExpiry] = useState<ExpiryChoice>("never");
  const [day, setDay] = useState("");
  const [errors, setErrors] = useState<Errors>({});
  const grant = useBooking<NewGrant>(organizationId, "grants", onClose);
  const submit = () => {
    const credits = readCredits(amount);
    const end = readExpiry(expiry, day, Date.now());
    const rank = readPriority(priority);
    setErrors({
      ...("error" in credits && { amount: credits.error }),
      ...("error" in end && { day: end.error }),
      ...("error" in rank && { priority: rank.error }),
    });
    if ("error" in credits || "error" in end || "error" in rank) return;
    const terms = { expires_at: end.value, priority: rank.value, reference: lineOrNull(reference) };
    grant.mutate({ amount: credits.value, ...terms });
  };
  return (
    <BookingForm title="Grant credits" action="Grant credits" booking={grant} onSubmit={submit} onClose={onClose}>
      <TextField label="Credits" inputMode="decimal" value={amount} error={errors.amount} onValue={setAmount} />
      <TextField
        label="Reference"
        hint="What it is for, such as an invoice. The same reference grants once."
        maxLength={200}
        value={reference}
        onValue={setReference}
      />
      <ExpiryFields label="Lapses" choice={expiry} day={day} error={errors.day} onChoice={setExpiry} onDay={setDay} />
      <TextField
        label="Priority"
        hint="Grants with a lower number are drawn first."
        inputMode="numeric"
        value={priority}
        error={errors.priority}
        onValue={setPriority}
      />
    </BookingForm>
  );
}
