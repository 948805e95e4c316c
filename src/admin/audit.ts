import type { AuditAction } from "../api/admin/audit.ts";
import type { ActorKind, AuditRow, BookingAudit } from "../credits/audit.ts";

/** Who changes something. */
export interface Actor {
  kind: ActorKind;
  /** Of the token that they came with. */
  id: string | null;
  address: string | null;
  requestId: string | null;
}

/** The service itself, and whoever may run commands beside it. */
export const SERVICE_ACTOR: Actor = { kind: "service", id: null, address: null, requestId: null };
export const COMMAND_ACTOR: Actor = { kind: "command", id: null, address: null, requestId: null };

/** What was changed; `before` and `after` hold no secret. */
export interface Change {
  action: AuditAction;
  organizationId: string | null;
  subjectId: string | null;
  before?: Record<string, unknown>;
  after?: Record<string, unknown>;
}

/** A booking that somebody asks for; `after` holds no secret. */
export interface AskedBooking extends Pick<BookingAudit, "after" | "amountAs"> {
  action: AuditAction;
}

export interface AuditTime {
  /** Milliseconds since 1970. */
  clock: () => number;
  /** A new UUIDv7. */
  newId: () => string;
}

/** The record of a change that is made now. */
export function auditRow(actor: Actor, change: Change, { clock, newId }: AuditTime): AuditRow {
  const { action, organizationId, subjectId, before = null, after = null } = change;
  return {
    id: newId(),
    madeAtMs: clock(),
    actorKind: actor.kind,
    actorId: actor.id,
    address: actor.address,
    requestId: actor.requestId,
    action,
    organizationId,
    subjectId,
    before,
    after,
  };
}
