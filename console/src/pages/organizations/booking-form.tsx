import type { ReactNode } from "react";
import { useAction } from "../../api/actions.ts";
import { send } from "../../api/client.ts";
import type { Booking } from "../../api/types.ts";
import { DialogForm } from "../../ui/dialog.tsx";

/** An action that books credits of an organization: the path that it is sent to, and what follows it. */
export function useBooking<Input extends object>(organizationId: string, what: string, onDone: () => void) {
  const path = `/admin/v1/organizations/${encodeURIComponent(organizationId)}/${what}`;
  return useAction(
    (input: Input, key) => send<Booking>("POST", path, input, key),
    ["organizations", "overview"],
    (booking) => booking.repeated || onDone(),
  );
}

interface BookingFormProps {
  title: string;
  action: string;
  danger?: boolean;
  booking: { isPending: boolean; isError: boolean; error: unknown; data: Booking | undefined };
  /** Sentence that says what submitting will book; null while the input is not valid. */
  summary: string | null;
  onSubmit: () => void;
  onClose: () => void;
  children: ReactNode;
}

/** A form for a booking: it shows what will be booked, and says when a reference was booked before. */
export function BookingForm({ booking, summary, children, ...dialog }: BookingFormProps) {
  return (
    <DialogForm {...dialog} attempt={booking}>
      {children}
      <Summary text={summary} />
      {booking.data?.repeated && (
        <p className="field-error" role="alert">
          This reference was already used. Nothing was booked.
        </p>
      )}
    </DialogForm>
  );
}

/** Effect of a form, read from its fields before it is submitted. */
export function Summary({ text }: { text: string | null }) {
  return (
    <p className="summary" role="status">
      {text}
    </p>
  );
}

/** Text of a line, or null where it is blank. */
export function lineOrNull(text: string): string | null {
  return text.trim() === "" ? null : text.trim();
}
