import type { AuditEntry } from "../api/admin/reports.ts";
import type { ActorKind } from "../api/admin/roles.ts";
import { isoTime } from "../api/time.ts";
import type { AuditRow } from "../credits/audit.ts";
import { timeOfId } from "../credits/request-id.ts";
import { invalidCursor } from "../errors.ts";
import type { AuditFilter } from "../stores/queries/admin.ts";
import type { Store } from "../stores/store.ts";
import { type Page, type PageRequest, pageOf } from "./directory.ts";
import { entityOf } from "./entity.ts";

/** Who makes a change. */
export interface Actor {
  kind: ActorKind;
  /** Id and name of the operator, or of the token that was presented. */
  id: string | null;
  name: string | null;
  address: string | null;
  requestId: string | null;
}

/** The service itself, and the command line. */
export const SERVICE_ACTOR: Actor = { kind: "service", id: null, name: null, address: null, requestId: null };
export const COMMAND_ACTOR: Actor = { kind: "command", id: null, name: null, address: null, requestId: null };

/** A change, with an action such as `token.revoke`; `before` and `after` hold no secret. */
export type Change = Pick<AuditRow, "action" | "organizationId" | "subjectId"> &
  Partial<Pick<AuditRow, "before" | "after">>;

export interface AuditTime {
  /** Milliseconds since 1970. */
  clock: () => number;
  /** A new UUIDv7. */
  newId: () => string;
}

/** Returns the audit record of a change that is made now. */
export function auditRow(actor: Actor, change: Change, { clock, newId }: AuditTime): AuditRow {
  const { kind: actorKind, id: actorId, name: actorName, ...origin } = actor;
  const { before = null, after = null, ...subject } = change;
  return { id: newId(), madeAtMs: clock(), actorKind, actorId, actorName, ...origin, ...subject, before, after };
}

export type AuditLog = ReturnType<typeof auditLogOver>;

/** The audit log: who changed what. */
export function auditLogOver({ rows, ...time }: AuditTime & { rows: Pick<Store["admin"], "insertAudit" | "audit"> }) {
  return {
    /** Records an action that changes nothing in the store, or a change that takes more than one transaction. */
    record: (actor: Actor, change: Change) => rows.insertAudit(auditRow(actor, change, time)),
    /** Lists entries, the newest first; the cursor is the id of the last entry of the page before. */
    async entries({ cursor, limit, ...filter }: AuditFilter & PageRequest): Promise<Page<AuditEntry>> {
      if (cursor !== null && timeOfId(cursor) === undefined) throw invalidCursor();
      const found = await rows.audit({ ...filter, before: cursor, limit: limit + 1 });
      return pageOf(found, limit, toEntry, ({ id }) => id);
    },
  };
}

function toEntry({
  actorKind: kind,
  actorId: id,
  actorName: name,
  address,
  madeAtMs: atMs,
  ...row
}: AuditRow): AuditEntry {
  return { ...entityOf("audit_entry", row), at: isoTime(atMs), actor: { kind, id, name, address } };
}
