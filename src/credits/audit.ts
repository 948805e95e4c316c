import { creditsFromMicro, formatCredits, type MicroCredits } from "./amount.ts";

/** Anonymous: somebody who presented no valid token. */
export type ActorKind = "operator" | "member" | "command" | "service" | "anonymous";

/** A change, or a sign-in. Holds no secret. */
export interface AuditRow {
  /** UUIDv7. */
  id: string;
  /** Milliseconds since 1970. */
  madeAtMs: number;
  actorKind: ActorKind;
  /** Id of the token that they came with. */
  actorId: string | null;
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
 * Audit record of a booking that somebody asks for. Its id is made before the booking; its time, subject and amount come
 * from the decision.
 */
export interface BookingAudit
  extends Pick<AuditRow, "id" | "actorKind" | "actorId" | "address" | "requestId" | "action"> {
  /** The terms that were asked for. The booked amount replaces its `amount`. */
  after: Record<string, unknown>;
  /** How `after` states the amount in credits: as a number, or as decimal text. */
  amountAs: "number" | "text";
}

/** A transition that can carry an audit record. */
export interface Audited {
  /** Written with the first booking, not with a repetition. Null or absent: the service books it by itself. */
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
export function auditRowOf(
  { amountAs, after, ...audit }: BookingAudit,
  { amount, ...booking }: AuditedBooking,
): AuditRow {
  const credits = amountAs === "number" ? creditsFromMicro(amount) : formatCredits(amount);
  return { ...audit, ...booking, before: null, after: { ...after, amount: credits } };
}
