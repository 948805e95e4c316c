import type { Selectable } from "kysely";
import type { LimitSettings, OrganizationKind } from "../../api/principal.ts";
import type { AuditRow } from "../../credits/audit.ts";
import type { Database } from "../database.ts";
import type { OrganizationTable } from "../tables.ts";
import { insertAuditQuery, recordOf } from "./admin.ts";

export interface OrganizationRow {
  id: string;
  name: string;
  kind: OrganizationKind;
  /** Suspended: its tokens are refused; running requests continue. */
  status: OrganizationStatus;
  /** Limits that differ from those of the service. */
  limits: Partial<LimitSettings> | null;
  createdAtMs: number;
  /** True if prompts and answers are stored for some time. */
  keepsConversations: boolean;
}

/** Fields of an organization to change; absent fields stay unchanged. */
export type OrganizationChange = Partial<Pick<OrganizationRow, "name" | "status" | "limits" | "keepsConversations">>;
export type OrganizationStatus = "active" | "suspended" | "closed";
export type NewOrganizationRow = Omit<OrganizationRow, "status" | "limits" | "keepsConversations"> &
  Partial<Pick<OrganizationRow, "limits">>;

export interface IdPage {
  /** Id of the last row seen. */
  after: string | null;
  limit: number;
}

export function organizationRows({ kysely, write, writeIf }: Database) {
  return {
    /** Writes the organization and its empty balance. */
    async insertOrganization({ id, name, kind, limits = null, createdAtMs }: NewOrganizationRow, audit?: AuditRow) {
      await write([
        kysely
          .insertInto("organization")
          .values({ id, name, kind, limits: encodeJson(limits), created_at: createdAtMs })
          .compile(),
        kysely
          .insertInto("balance")
          .values({ organization_id: id, granted: 0, available: 0, held: 0, spent: 0, expired: 0 })
          .compile(),
        ...recordOf(kysely, audit),
      ]);
    },
    async organization(id: string): Promise<OrganizationRow | undefined> {
      const row = await kysely.selectFrom("organization").selectAll().where("id", "=", id).executeTakeFirst();
      return row && organizationFromTable(row);
    },
    async organizations({ after, limit }: IdPage): Promise<OrganizationRow[]> {
      let query = kysely.selectFrom("organization").selectAll().orderBy("id").limit(limit);
      if (after !== null) query = query.where("id", ">", after);
      return (await query.execute()).map(organizationFromTable);
    },
    /**
     * Writes the fields of a change that differ from the stored ones, and no others, so that concurrent changes of
     * different fields are all kept. `recordOf` makes the audit record from those fields before and after; if none
     * differs, nothing is written. Returns the changed organization, undefined if it does not exist.
     */
    async changeOrganization(
      id: string,
      change: OrganizationChange,
      recordOf: (before: OrganizationChange, after: OrganizationChange) => AuditRow,
    ): Promise<OrganizationRow | undefined> {
      for (;;) {
        const row = await kysely.selectFrom("organization").selectAll().where("id", "=", id).executeTakeFirst();
        if (row === undefined) return undefined;
        const old = organizationFromTable(row);
        const fields = CHANGEABLE.filter(
          (field) => change[field] !== undefined && columnOf(field, change) !== columnOf(field, old),
        );
        if (fields.length === 0) return old;
        let update = kysely
          .updateTable("organization")
          .set(Object.fromEntries(fields.map((field) => [COLUMNS[field], columnOf(field, change)])))
          .where("id", "=", id);
        // Written only if the previous values are still those of the audit record; otherwise read again.
        for (const field of fields) update = update.where(COLUMNS[field], "is not distinct from", row[COLUMNS[field]]);
        const audit = recordOf(pick(old, fields), pick(change, fields));
        if (await writeIf([update.compile()], [insertAuditQuery(kysely, audit)])) return { ...old, ...change };
      }
    },
  };
}

const COLUMNS = {
  name: "name",
  status: "status",
  limits: "limits",
  keepsConversations: "keeps_conversations",
} as const satisfies Record<keyof OrganizationChange, keyof OrganizationTable>;
const CHANGEABLE = Object.keys(COLUMNS) as (keyof OrganizationChange)[];

/** Returns the value of a field as its column contains it. */
function columnOf(field: keyof OrganizationChange, { limits = null, ...values }: OrganizationChange) {
  if (field === "limits") return encodeJson(limits);
  if (field === "keepsConversations") return values.keepsConversations ? 1 : 0;
  return values[field];
}

function pick(values: OrganizationChange, fields: (keyof OrganizationChange)[]): OrganizationChange {
  return Object.fromEntries(fields.map((field) => [field, values[field]]));
}

export function organizationFromTable(row: Selectable<OrganizationTable>): OrganizationRow {
  const { id, name, kind, status, limits } = row;
  const keepsConversations = row.keeps_conversations === 1n;
  const createdAtMs = Number(row.created_at);
  return { id, name, kind, status, limits: decodeLimits(limits), createdAtMs, keepsConversations };
}

export function decodeLimits(text: string | null): Partial<LimitSettings> | null {
  return text === null ? null : (JSON.parse(text) as Partial<LimitSettings>);
}

export function encodeJson(value: object | null): string | null {
  return value === null ? null : JSON.stringify(value);
}
