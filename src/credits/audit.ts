import type { AUDIT_ENTRY } from "../stores/admin-schema.ts";
import type { RowOf } from "../stores/table.ts";
import { creditsFromMicro, type MicroCredits } from "./amount.ts";

export type AuditRow = RowOf<typeof AUDIT_ENTRY>;

/**
 * Audit record of a requested booking. Its id is made before the booking; its time, subject and amount come from the
 * decision.
 */
export interface BookingAudit
  extends Pick<AuditRow, "id" | "actorKind" | "actorId" | "actorName" | "address" | "requestId" | "action"> {
  /** The requested terms. The booked amount replaces `amount`. */
  after: Record<string, unknown>;
}

/** A transition that can carry an audit record. */
export interface Audited {
  /** Written with the first booking, not with a repetition. Null or absent for a booking of the service itself. */
  audit?: BookingAudit | null;
}

/** Subject and amount of a booking, as decided. */
export interface AuditedBooking {
  organizationId: string;
  subjectId: string;
  amount: MicroCredits;
  madeAtMs: number;
}

/** Completes the audit record of a booking. */
export function auditRowOf({ after, ...audit }: BookingAudit, { amount, ...booking }: AuditedBooking): AuditRow {
  return { ...audit, ...booking, before: null, after: { ...after, amount: creditsFromMicro(amount) } };
}
