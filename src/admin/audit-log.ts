import type { AuditEntry } from "../api/admin/audit.ts";
import { isoTime } from "../api/time.ts";
import type { AuditRow, BookingAudit } from "../credits/audit.ts";
import type { AdminRows } from "../stores/queries/admin.ts";
import { type Actor, type AskedBooking, type AuditTime, auditRow, type Change } from "./audit.ts";
import type { Page, PageRequest } from "./directory.ts";

export interface AuditLogOptions extends AuditTime {
  rows: Pick<AdminRows, "insertAudit" | "audit">;
}

/** The record of changes. */
export class AuditLog {
  readonly #options: AuditLogOptions;

  constructor(options: AuditLogOptions) {
    this.#options = options;
  }

  /** Records an action that changes nothing in the store, or a change that takes more than one transaction. */
  async record(actor: Actor, change: Change): Promise<void> {
    await this.#options.rows.insertAudit(this.changeBy(actor, change));
  }

  /** Prepares the entry of a change, to be written in the change's own transaction. */
  changeBy(actor: Actor, change: Change): AuditRow {
    return auditRow(actor, change, this.#options);
  }

  /** Prepares the entry of a booking, to be completed and written with the booking. */
  bookingBy(actor: Actor, asked: AskedBooking): BookingAudit {
    const { id: actorId, kind: actorKind, address, requestId } = actor;
    return { id: this.#options.newId(), actorKind, actorId, address, requestId, ...asked };
  }

  /** The newest first; the cursor is the id of the last entry seen. */
  async entries(
    filter: { organizationId: string | null; action: string | null } & PageRequest,
  ): Promise<Page<AuditEntry>> {
    const { cursor, limit, ...rest } = filter;
    const rows = await this.#options.rows.audit({ ...rest, before: cursor, limit: limit + 1 });
    const shown = rows.slice(0, limit);
    return { data: shown.map(toEntry), nextCursor: rows.length > limit ? (shown.at(-1)?.id ?? null) : null };
  }
}

function toEntry(row: AuditRow): AuditEntry {
  return {
    object: "audit_entry",
    id: row.id,
    at: isoTime(row.madeAtMs),
    actor: { kind: row.actorKind, id: row.actorId, address: row.address },
    action: row.action,
    organization_id: row.organizationId,
    subject_id: row.subjectId,
    before: row.before,
    after: row.after,
    request_id: row.requestId,
  };
}
