import { sql } from "kysely";
import type { MicroCredits } from "../../credits/amount.ts";
import type { BalanceRow, GrantRow } from "../../credits/books.ts";
import { type Database, read } from "../database.ts";
import { BALANCE, GRANT, ORGANIZATION } from "../schema.ts";
import {
  type BudgetColumns,
  type OrganizationRow,
  type OrganizationStatus,
  type TokenWithBudget,
  tokensWithBudget,
  withBudget,
} from "./accounts.ts";

export interface ListedOrganization {
  organization: OrganizationRow;
  balance: BalanceRow;
  /** Charges of the days whose sums are stored, and the first of these days with a request; null if there is none. */
  spent: { amount: MicroCredits; fromDay: number } | null;
}

export interface ListedToken {
  token: TokenWithBudget;
  organizationName: string;
}

interface NewestFirst {
  /** The last row seen. */
  before: { createdAtMs: number; id: string } | null;
  limit: number;
}

export interface OrganizationSearch extends NewestFirst {
  /** Null: every one. */
  id: string | null;
  /** Part of the name, or a whole id. */
  search: string | null;
  status: OrganizationStatus | null;
  /** Days to add up charges of: the first milliseconds of the first one, and of the first one after them. */
  spentIn: { fromDay: number; toDay: number };
}

export interface TokenSearch extends NewestFirst {
  id: string | null;
  organizationId: string | null;
  /** Part of the name, a whole id, or the prefix of the secret. */
  search: string | null;
  status: "active" | "expired" | "revoked" | null;
  /** The time by which tokens have expired. */
  nowMs: number;
}

export interface GrantSearch extends NewestFirst {
  organizationId: string;
  id: string | null;
}

export type DirectoryRows = ReturnType<typeof directoryRows>;

/** Searches of organizations, tokens and grants, the newest first. They run beside the writes. */
export function directoryRows(database: Database) {
  return {
    async organizations(page: OrganizationSearch): Promise<ListedOrganization[]> {
      const rows = await read<{ charged: bigint; from_day: bigint | null }>(
        database,
        organizationQuery(database, page),
      );
      return rows.map((row) => ({
        organization: ORGANIZATION.fromRecord(row),
        balance: BALANCE.fromRecord(row),
        spent: row.from_day === null ? null : { amount: row.charged, fromDay: Number(row.from_day) },
      }));
    },
    async tokens(page: TokenSearch): Promise<ListedToken[]> {
      const rows = await read<BudgetColumns & { organization_name: string }>(database, tokenQuery(database, page));
      return rows.map((row) => ({ token: withBudget(row), organizationName: row.organization_name }));
    },
    async grants(page: GrantSearch): Promise<GrantRow[]> {
      return (await read<object>(database, grantQuery(database, page))).map(GRANT.fromRecord);
    },
  };
}

function organizationQuery({ kysely }: Database, page: OrganizationSearch) {
  const { id, search, status, before, limit, spentIn } = page;
  const days = sql`usage_day where usage_day.organization_id = organization.id and dimension = 'model'
    and day >= ${BigInt(spentIn.fromDay)} and day < ${BigInt(spentIn.toDay)}`;
  let query = kysely
    .selectFrom("organization")
    .innerJoin("balance", "balance.organization_id", "organization.id")
    .selectAll("organization")
    .selectAll("balance")
    .select([
      sql<bigint>`(select cast(coalesce(sum(charged), 0) as bigint) from ${days})`.as("charged"),
      sql<bigint | null>`(select min(day) from ${days})`.as("from_day"),
    ])
    .orderBy("organization.created_at", "desc")
    .orderBy("organization.id", "desc")
    .limit(limit);
  if (id !== null) query = query.where("organization.id", "=", id);
  if (status !== null) query = query.where("organization.status", "=", status);
  if (search !== null) {
    query = query.where((eb) => eb.or([eb("organization.id", "=", search), contains("organization.name", search)]));
  }
  if (before !== null) query = query.where(isBefore("organization", before));
  return query;
}

function tokenQuery(database: Database, page: TokenSearch) {
  const { id, organizationId, search, before, limit } = page;
  let query = tokensWithBudget(database.kysely)
    .innerJoin("organization", "organization.id", "token.organization_id")
    .select("organization.name as organization_name")
    .orderBy("token.created_at", "desc")
    .orderBy("token.id", "desc")
    .limit(limit);
  if (id !== null) query = query.where("token.id", "=", id);
  if (organizationId !== null) query = query.where("token.organization_id", "=", organizationId);
  if (search !== null) {
    query = query.where((eb) =>
      eb.or([eb("token.id", "=", search), eb("token.prefix", "=", search), contains("token.name", search)]),
    );
  }
  const isRevoked = sql<boolean>`token.revoked_at IS NOT NULL`;
  const hasExpired = sql<boolean>`(token.expires_at IS NOT NULL AND token.expires_at <= ${BigInt(page.nowMs)})`;
  if (page.status === "revoked") query = query.where(isRevoked);
  if (page.status === "expired") query = query.where(sql<boolean>`NOT ${isRevoked} AND ${hasExpired}`);
  if (page.status === "active") query = query.where(sql<boolean>`NOT ${isRevoked} AND NOT ${hasExpired}`);
  if (before !== null) query = query.where(isBefore("token", before));
  return query;
}

function grantQuery({ kysely }: Database, { organizationId, id, before, limit }: GrantSearch) {
  let query = kysely
    .selectFrom("credit_grant")
    .selectAll()
    .where("organization_id", "=", organizationId)
    .orderBy("created_at", "desc")
    .orderBy("id", "desc")
    .limit(limit);
  if (id !== null) query = query.where("id", "=", id);
  return before === null ? query : query.where(isBefore("credit_grant", before));
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
    return sql<boolean>`lower(${sql.ref(column)}) LIKE lower(${pattern}) ESCAPE '\\'`;
  });
  return sql<boolean>`(${sql.join(isLike, sql` OR `)})`;
}

function isBefore(table: string, { createdAtMs, id }: { createdAtMs: number; id: string }) {
  const columns = sql`(${sql.ref(`${table}.created_at`)}, ${sql.ref(`${table}.id`)})`;
  return sql<boolean>`${columns} < (${BigInt(createdAtMs)}, ${id})`;
}
