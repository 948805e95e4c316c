import type { ReactNode } from "react";
import { useAction } from "../../api/actions.ts";
import { send } from "../../api/client.ts";
import type { Booking } from "../../api/types.ts";
import { DialogForm } from "../../ui/dialog.tsx";
import { Failure } from "../../ui/states.tsx";

/** Something that the books take of an organization: where it is sent, and what happens when it is booked. */
export function useBooking<Input extends object>(organizationId: string, what: string, onDone: () => void) {
  const path = `/admin/v1/organizations/${encodeURIComponent(organizationId)}/${what}`;
  return useAction(
    (input: Input) => send<Booking>("POST", path, input),
    ["organizations", "overview"],
    (booking) => booking.repeated || onDone(),
  );
}

interface BookingFormProps {
  title: string;
  action: string;
  danger?: boolean;
  booking: { isPending: boolean; isError: boolean; error: unknown; data: Booking | undefined };
  onSubmit: () => void;
  onClose: () => void;
  children: ReactNode;
}

/** A form for a booking: what went wrong with it, and that a reference books once. */
export function BookingForm({ booking, children, ...dialog }: BookingFormProps) {
  return (
    <DialogForm
      {...dialog}
      busy={booking.isPending}
      failure={
        <>
          {booking.isError && <Failure error={booking.error} />}
          {booking.data?.repeated && (
            <p className="field-error" role="alert">
              This reference was booked before: nothing was booked now.
            </p>
          )}
        </>
      }
    >
      {children}
    </DialogForm>
  );
}

/** What was typed on a line, or null where nothing was. */
export function lineOrNull(text: string): string | null {
  return text.trim() === "" ? null : text.trim();
}
