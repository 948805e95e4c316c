import type { Role } from "../../api/admin/roles.ts";
import { ADMIN_SESSION, OPERATOR } from "../admin-schema.ts";
import type { Database } from "../database.ts";
import { BALANCE, GRANT, ORGANIZATION } from "../schema.ts";
import { allOf, equal, join, raw, sql } from "../sql.ts";
import { BUDGET_COLUMNS, BUDGETS_OF_TOKENS, type OrganizationRow, withBudget } from "./accounts.ts";
import type { OperatorRow } from "./admin.ts";

export type ListedOrganization = Awaited<ReturnType<ReturnType<typeof directoryRows>["organizations"]>>[number];
export type ListedToken = Awaited<ReturnType<ReturnType<typeof directoryRows>["tokens"]>>[number];
/** A session with its holder: an operator, the token of a member, or a person at an identity provider. */
export type ListedSession = Awaited<ReturnType<ReturnType<typeof directoryRows>["sessions"]>>[number];

export interface NewestFirst {
  /** The last row seen. */
  before: { createdAtMs: number; id: string } | null;
  limit: number;
}

export interface OrganizationSearch extends NewestFirst {
  /** Null: every one. */
  id: string | null;
  /** Part of the name, or a whole id, own or external. */
  search: string | null;
  /** Absent or null: every one. */
  externalId?: string | null;
  status: OrganizationRow["status"] | null;
  /** Days to add up charges of: the first milliseconds of the first one, and of the first one after them. */
  spentIn: { fromDay: number; toDay: number };
}

export interface TokenSearch extends NewestFirst {
  id: string | null;
  organizationId: string | null;
  /** Only tokens with a secret that this person created; null: all tokens. */
  createdBy: string | null;
  /** Part of the name, a whole id, or the prefix of the secret. */
  search: string | null;
  status: "active" | "expired" | "revoked" | null;
  /** Only tokens that expire before this time. */
  expiresBeforeMs?: number | null;
  /** The time by which tokens have expired. */
  nowMs: number;
}

export interface SessionSearch {
  /** The last row seen. */
  before: { createdAtMs: number; hash: Uint8Array } | null;
  /** Sessions that have expired at this time are left out, and those whose last request was before `seenAfterMs`. */
  nowMs: number;
  seenAfterMs: number;
  limit: number;
}

/** Searches of organizations, tokens, grants, operators and sessions, the newest first. They run concurrently with writes. */
export function directoryRows({ read, readRows }: Database) {
  return {
    /** Returns organizations with their charges of the days whose sums are stored. */
    async organizations(page: OrganizationSearch) {
      const rows = await read<{ charged: bigint }>(organizationQuery(page));
      return rows.map((row) => ({
        organization: ORGANIZATION.fromRecord(row),
        balance: BALANCE.fromRecord(row),
        charged: row.charged,
      }));
    },
    async tokens(page: TokenSearch) {
      const rows = await read<Record<string, unknown>>(tokenQuery(page));
      return rows.map((row) => ({ token: withBudget(row), organizationName: row.organization_name as string }));
    },
    grants: ({ organizationId, before, limit }: NewestFirst & { organizationId: string }) =>
      readRows(GRANT)`
        select * from credit_grant
        where ${allOf(sql`organization_id = ${organizationId}`, isBefore("credit_grant", before))}
        order by created_at desc, id desc limit ${limit}`,
    /** Returns grants with this reference or id, of one organization or of all (null). */
    async grantsNamed(name: string, organizationId: string | null, limit: number) {
      const named = (column: string) => sql`
        select credit_grant.*, organization.name as organization_name from organization cross join credit_grant
        where credit_grant.organization_id = organization.id and ${equal({ "organization.id": organizationId })}
          and ${raw(column)} = ${name}`;
      const both = sql`${named("credit_grant.reference")} union ${named("credit_grant.id")} limit ${limit}`;
      const rows = await read<Record<string, unknown>>(both);
      return rows.map((row) => ({ grant: GRANT.fromRecord(row), organizationName: row.organization_name as string }));
    },
    operators: ({ before, limit }: NewestFirst): Promise<OperatorRow[]> =>
      readRows(OPERATOR)`
          select * from operator where ${allOf(isBefore("operator", before))}
          order by created_at desc, id desc limit ${limit}`,
    async sessions(search: SessionSearch) {
      const rows = await read<Record<string, unknown>>(sessionQuery(search));
      return rows.map((row) => {
        const session = ADMIN_SESSION.fromRecord(row);
        return {
          session,
          role: session.person?.role ?? (row.role as Role),
          holderName: session.person?.name ?? (row.holder_name as string),
          organizationId: session.person?.organizationId ?? (row.organization_id as string | null),
        };
      });
    },
  };
}

function organizationQuery({ id, search, externalId = null, status, before, limit, spentIn }: OrganizationSearch) {
  const days = sql`usage_day where usage_day.organization_id = organization.id and dimension = 'model'
    and day >= ${spentIn.fromDay} and day < ${spentIn.toDay}`;
  const wanted = allOf(
    equal({ "organization.id": id, "organization.external_id": externalId, "organization.status": status }),
    search !== null &&
      sql`(organization.id = ${search} or external_id = ${search} or ${contains("organization.name", search)})`,
    isBefore("organization", before),
  );
  return sql`
    select organization.*, balance.*, (select cast(coalesce(sum(charged), 0) as bigint) from ${days}) as charged
    from organization join balance on balance.organization_id = organization.id
    where ${wanted} order by organization.created_at desc, organization.id desc limit ${limit}`;
}

function sessionQuery({ before, nowMs, seenAfterMs, limit }: SessionSearch) {
  const wanted = allOf(
    sql`admin_session.expires_at > ${nowMs} and admin_session.seen_at > ${seenAfterMs}`,
    sql`operator.revoked_at is null and token.revoked_at is null`,
    sql`(token.expires_at is null or token.expires_at > ${nowMs})`,
    before !== null && sql`(admin_session.created_at, admin_session.hash) < (${before.createdAtMs}, ${before.hash})`,
  );
  return sql`
    select admin_session.*, coalesce(operator.role, 'member') as role,
      coalesce(operator.name, token.name) as holder_name, token.organization_id as organization_id
    from admin_session left join operator on operator.id = admin_session.operator_id
      left join token on token.id = admin_session.token_id
    where ${wanted} order by admin_session.created_at desc, admin_session.hash desc limit ${limit}`;
}

function tokenQuery({ id, organizationId, createdBy, search, status, nowMs, before, limit, ...rest }: TokenSearch) {
  const { expiresBeforeMs = null } = rest;
  const isRevoked = sql`token.revoked_at is not null`;
  const hasExpired = sql`(token.expires_at is not null and token.expires_at <= ${nowMs})`;
  const wanted = allOf(
    equal({ "token.id": id, "token.organization_id": organizationId, "token.created_by": createdBy }),
    createdBy !== null && sql`token.kind = 'secret'`,
    search !== null && sql`(token.id = ${search} or token.prefix = ${search} or ${contains("token.name", search)})`,
    status === "revoked" && isRevoked,
    status === "expired" && sql`not ${isRevoked} and ${hasExpired}`,
    status === "active" && sql`not ${isRevoked} and not ${hasExpired}`,
    expiresBeforeMs !== null && sql`token.expires_at < ${expiresBeforeMs}`,
    isBefore("token", before),
  );
  return sql`
    select token.*, ${BUDGET_COLUMNS}, organization.name as organization_name
    from token ${BUDGETS_OF_TOKENS} join organization on organization.id = token.organization_id
    where ${wanted} order by token.created_at desc, token.id desc limit ${limit}`;
}

/**
 * Searches without regard to case. A database may know the case of ASCII letters only (SQLite, and PostgreSQL with the locale
 * C), so the text is also searched with a capital first letter, and all in capitals. Wildcards are escaped.
 */
function contains(column: string, search: string) {
  const small = search.toLowerCase();
  const spellings = new Set([search, small, small.slice(0, 1).toUpperCase() + small.slice(1), search.toUpperCase()]);
  const isLike = [...spellings].map((text) => {
    const pattern = `%${text.replace(/[\\%_]/g, "\\$&")}%`;
    return sql`lower(${raw(column)}) like lower(${pattern}) escape '\\'`;
  });
  return sql`(${join(isLike, " or ")})`;
}

/** Restricts a table to the rows that follow a page, the newest first. */
export function isBefore(table: string, before: NewestFirst["before"]) {
  return before !== null && sql`(${raw(table)}.created_at, ${raw(table)}.id) < (${before.createdAtMs}, ${before.id})`;
}
