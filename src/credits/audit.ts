import type { AUDIT_ENTRY } from "../stores/admin-schema.ts";
import type { RowOf } from "../stores/table.ts";

export type StoredAuditRow = RowOf<typeof AUDIT_ENTRY>;
/** An audit record as others read it. */
export type AuditRow = Omit<StoredAuditRow, "rows" | "checksum">;
export type AuditOfRows = Omit<StoredAuditRow, "checksum">;

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
