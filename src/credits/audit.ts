import type { ActorKind } from "../api/admin/roles.ts";
import { creditsFromMicro, type MicroCredits } from "./amount.ts";

/** A change, or a sign-in. Holds no secret. */
export interface AuditRow {
  /** UUIDv7. */
  id: string;
  /** Milliseconds since 1970. */
  madeAtMs: number;
  actorKind: ActorKind;
  /** Id of the operator, or of the token that was presented. */
  actorId: string | null;
  /** Name of the operator or the token, as it was then. */
  actorName: string | null;
  address: string | null;
  requestId: string | null;
  /** Such as `token.revoke`. */
  action: string;
  organizationId: string | null;
  subjectId: string | null;
  before: Record<string, unknown> | null;
  after: Record<string, unknown> | null;
}

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
