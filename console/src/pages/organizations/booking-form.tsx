import type { ReactNode } from "react";
import { useAction } from "../../api/actions.ts";
import { send } from "../../api/client.ts";
import type { Booking } from "../../api/types.ts";
import { DialogForm } from "../../ui/dialog.tsx";

/** Returns the action that books credits of an organization. `what` is the last segment of its path. */
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
  /** Says what will be booked; null while the input is invalid. */
  summary: string | null;
  onSubmit: () => void;
  onClose: () => void;
  children: ReactNode;
}

/** Form for a booking. Shows what will be booked, and reports a reference that was already used. */
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

/** Preview of what submitting a form will do. */
export function Summary({ text }: { text: string | null }) {
  return (
    <p className="summary" role="status">
      {text}
    </p>
  );
}

/** Trims a text; null if it is blank. */
export function lineOrNull(text: string): string | null {
  return text.trim() === "" ? null : text.trim();
}
