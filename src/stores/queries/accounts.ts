import { type LimitingBudget, PLAYGROUND_ID, SHORT_TOKEN_SCOPES } from "../../api/principal.ts";
import type { MicroCredits } from "../../credits/amount.ts";
import type { AuditRow } from "../../credits/audit.ts";
import type { BudgetRow } from "../../credits/books.ts";
import { ADMIN_SESSION, SHORT_TOKEN } from "../admin-schema.ts";
import type { Database, IdPage } from "../database.ts";
import { ACCOUNT_VERSION, BALANCE, BUDGET, ORGANIZATION, TOKEN } from "../schema.ts";
import { allOf, isAsRead, raw, type Sql, sql } from "../sql.ts";
import type { RowOf } from "../table.ts";
import { type Person, recordOf } from "./admin.ts";
import { skipsOfMonths } from "./allowances.ts";
import { budgetsChange } from "./budgets.ts";
import { type TokenUpdate, writeTokenTerms } from "./token-changes.ts";

export type OrganizationRow = RowOf<typeof ORGANIZATION>;
/** Fields of an organization to change; absent fields stay unchanged. */
export type OrganizationUpdate = Partial<Omit<OrganizationRow, "id" | "kind" | "createdAtMs" | "erasedAtMs">>;
/** Terms that an operator agrees with an organization, and notes of it. */
export type OrganizationTerms = Pick<
  OrganizationRow,
  "limits" | "models" | "aliases" | "priceList" | "externalId" | "contacts" | "note"
>;
export type NewOrganizationRow = Pick<OrganizationRow, "id" | "name" | "kind" | "createdAtMs"> &
  Partial<OrganizationTerms>;

export type TokenRow = RowOf<typeof TOKEN>;
/** The spending cap of a token, and what all tokens of its rotations hold and have spent. */
export type TokenBudget = Record<"cap" | "held" | "spent", MicroCredits>;
export type TokenWithBudget = TokenRow & { budget: TokenBudget | null };

export interface TokenWithOrganization extends TokenRow {
  organization: OrganizationRow;
  /** True while the person who created or rotated it, or whom it stands for, is blocked. */
  isCreatorBlocked: boolean;
  limitingBudgets: LimitingBudget[];
  /** Who signed in to the session of a playground token. */
  person?: Person | null;
}

export interface Succession {
  oldId: string;
  /** The time at which the predecessor ends at the latest. */
  oldExpiresAtMs: number;
  successor: TokenRow;
  /** The present successor, in whose place the new one is written. Absent: there is none. */
  unused?: Pick<TokenRow, "id" | "revokedAtMs"> | undefined;
}

/** Organizations and tokens. A change that is given an audit record writes it in the same transaction. */
export function accountRows(database: Database) {
  return {
    ...organizations(database),
    ...tokens(database),
    ...tokenChanges(database),
    /** See `token-changes.ts`. */
    changeToken: (old: TokenWithBudget, change: TokenUpdate, audit: AuditRow) =>
      writeTokenTerms(database, old, change, audit),
  };
}

const WITHOUT_TERMS = {
  status: "active",
  ...{ keepsConversations: false, keepsResponses: true, pausesAllowances: false, tokenBounds: null },
  ...{ limits: null, models: null, aliases: null, priceList: null, externalId: null, contacts: null, note: null },
  erasedAtMs: null,
} as const;
const EMPTY_BALANCE = {
  ...{ granted: 0n, available: 0n, held: 0n, spent: 0n, expired: 0n, nextChangeAtMs: null, closedBeforeMs: null },
  ...{ budgetVersion: 0, topUp: 0n, warnAt: null, announced: null },
};

function organizations(database: Database) {
  const { findRow, findRows, writeIf } = database;
  return {
    /** Writes an organization and its balance. Returns it; undefined, and writes nothing, if another one has its `externalId`. */
    async insertOrganization(made: NewOrganizationRow, audit?: AuditRow): Promise<OrganizationRow | undefined> {
      const organization: OrganizationRow = { ...WITHOUT_TERMS, ...made };
      const { id, createdAtMs } = organization;
      const balance = BALANCE.insert({ organizationId: id, ...EMPTY_BALANCE });
      const inserted = sql`
        ${ORGANIZATION.insert(organization)} on conflict (external_id) where external_id is not null do nothing`;
      const record = recordOf(audit, { organization: [organization], balance: [{ id, createdAtMs, warnAt: null }] });
      const required = organization.externalId === null ? [inserted] : [TAKE_TURN, inserted];
      return (await writeIf(required, [balance, ...record])) ? organization : undefined;
    },
    /** Writes the thresholds of credits at which an organization is warned. Returns false if it does not exist. */
    changeCreditWarnings(id: string, warnAt: readonly MicroCredits[] | null, audit: AuditRow): Promise<boolean> {
      const change = sql`update balance set ${BALANCE.set({ warnAt })} where organization_id = ${id}`;
      return writeIf([change], recordOf(audit, { balance: [{ id, warnAt }] }));
    },
    organization: (id: string) => findRow(ORGANIZATION)`select * from organization where id = ${id}`,
    /** Returns the organization with an id, or else with this external id; never the playground's or an erased one. */
    organizationNamed: (name: string) =>
      findRow(ORGANIZATION)`
        select * from organization where (id = ${name} or external_id = ${name}) and kind = 'standard' and erased_at is null
        order by id <> ${name} limit 1`,
    organizations: ({ after, limit }: IdPage) =>
      findRows(ORGANIZATION)`select * from organization where id > ${after ?? ""} order by id limit ${limit}`,
    /**
     * Writes the fields of a change that differ from the stored ones, so that concurrent changes of others are preserved, with
     * the audit record that `auditOf` makes of them. Returns the changed organization, undefined if it does not exist, "taken"
     * if another one has its new `externalId`, and "closed" instead of another state, and for an erased one.
     */
    async changeOrganization(
      id: string,
      change: OrganizationUpdate,
      auditOf: (before: OrganizationUpdate, after: OrganizationUpdate) => AuditRow,
    ): Promise<OrganizationRow | "taken" | "closed" | undefined> {
      const { externalId = null } = change;
      for (;;) {
        const [row] = await database.find(sql`select * from organization where id = ${id}`);
        if (row === undefined) return undefined;
        const old = ORGANIZATION.fromRecord(row);
        const isFinal =
          old.erasedAtMs !== null || (old.status === "closed" && (change.status ?? "closed") !== "closed");
        if (isFinal) return "closed";
        const isTaken = sql`select id from organization as other where external_id = ${externalId} and other.id <> ${id}`;
        if (externalId !== null && (await database.find(isTaken)).length > 0) return "taken";
        const isChanged = (field: keyof OrganizationUpdate) =>
          change[field] !== undefined && JSON.stringify(change[field]) !== JSON.stringify(old[field]);
        const fields = (Object.keys(change) as (keyof OrganizationUpdate)[]).filter(isChanged);
        if (fields.length === 0) return old;
        // Written only if the previous values are still those that were read; otherwise read again.
        const update = sql`
          update organization set ${ORGANIZATION.set(pick(change, fields))}
          where id = ${id} and ${isAsRead(ORGANIZATION.columns, row)}
            and not exists (${isTaken})`;
        const resumes = old.pausesAllowances && change.pausesAllowances === false;
        const skips = resumes ? await skipsOfMonths(database, id) : [];
        const changed = pick(change, fields);
        const record = recordOf(auditOf(pick(old, fields), changed), { organization: [{ id, ...changed }] });
        const required = fields.includes("externalId") ? [TAKE_TURN, update] : [update];
        if (await writeIf(required, [...skips, ...record])) return { ...old, ...change };
      }
    },
  };
}

/** Locks a row that every store has, so that changes of external ids see each other: one of two waits for the other. */
const TAKE_TURN = sql`update organization set name = name where id = ${PLAYGROUND_ID}`;

function pick(values: OrganizationUpdate, fields: readonly (keyof OrganizationUpdate)[]): OrganizationUpdate {
  return Object.fromEntries(fields.map((field) => [field, values[field]]));
}

/** The columns of the organization of a token, whose own have the same names. */
const ORGANIZATION_COLUMNS = raw(
  ORGANIZATION.columns.map((name) => `organization.${name} as organization_${name}`).join(", "),
);

function tokens({ find, findRow, findRows }: Database) {
  const limitingBudgets = async ({ organizationId, callerId }: TokenRow): Promise<LimitingBudget[]> => {
    const of = sql`organization_id = ${organizationId} and limits is not null`;
    const rows = await findRows(BUDGET)`select * from budget where ${of} order by id`;
    return rows.filter(({ callerIds }) => callerIds?.includes(callerId) !== false);
  };
  const withOrganization = async (condition: Sql): Promise<TokenWithOrganization | undefined> => {
    const [row] = await find(sql`
      select token.*, ${ORGANIZATION_COLUMNS},
        (select max(blocked_at) from identity where id in (token.created_by, token.rotated_by)) as creator_blocked_at,
        exists (select 1 from budget where budget.organization_id = organization.id and limits is not null) as is_limited
      from token join organization on organization.id = token.organization_id where ${condition}`);
    if (row === undefined) return undefined;
    const token = TOKEN.fromRecord(row);
    const organization = ORGANIZATION.fromCells(ORGANIZATION.columns.map((name) => row[`organization_${name}`]));
    // A boolean, or an integer on SQLite.
    const budgets = Number(row.is_limited) === 1 ? await limitingBudgets(token) : [];
    return { ...token, organization, isCreatorBlocked: row.creator_blocked_at !== null, limitingBudgets: budgets };
  };
  const shortToken = async (hash: Uint8Array): Promise<TokenWithOrganization | undefined> => {
    const short = await findRow(SHORT_TOKEN)`
        select short_token.* from short_token
        left join operator on operator.id = short_token.operator_id
        left join identity on identity.id = short_token.operator_id
        where short_token.hash = ${hash} and operator.revoked_at is null and identity.blocked_at is null`;
    if (short === undefined) return undefined;
    const { sessionHash, tokenId } = short;
    const session =
      sessionHash === null
        ? null
        : await findRow(ADMIN_SESSION)`select * from admin_session where hash = ${sessionHash}`;
    const token = await withOrganization(sql`token.id = ${tokenId}`);
    if (session === undefined || token === undefined) return undefined;
    const expiresAtMs = Math.min(short.expiresAtMs, token.expiresAtMs ?? Number.POSITIVE_INFINITY);
    const person = session?.person ?? null;
    const pinned = person === null ? token.pinned : { ...token.pinned, ...person.pins };
    return {
      ...token,
      person,
      pinned,
      expiresAtMs,
      scopes: token.scopes.filter((scope) => SHORT_TOKEN_SCOPES.includes(scope)),
    };
  };
  return {
    async tokenByHash(hash: Uint8Array): Promise<TokenWithOrganization | undefined> {
      return (await withOrganization(sql`token.hash = ${hash}`)) ?? shortToken(hash);
    },
    /** Returns a number that changes with what any token may do: while it stays, so does a token that was read after it. */
    async accountVersion(): Promise<number> {
      const row = await findRow(ACCOUNT_VERSION)`select * from account_version where id = 1`;
      return row?.version ?? 0;
    },
    async token(id: string): Promise<TokenWithBudget | undefined> {
      const [row] = await find(sql`${TOKENS_WITH_BUDGETS} where token.id = ${id}`);
      return row && withBudget(row);
    },
  };
}

function tokenChanges({ write, writeIf }: Database) {
  return {
    /** Writes a token and its cap. Returns false, and writes nothing, if its creator has `countMax` active ones there. */
    insertToken(token: TokenRow, cap: BudgetRow | null, audit?: AuditRow, countMax?: number): Promise<boolean> {
      const budget = cap === null ? [] : [budgetsChange(token.organizationId), BUDGET.insert(cap)];
      const rows = { token: [token], budget: cap === null ? [] : [cap] };
      const room = countMax === undefined ? [] : roomFor(token, countMax);
      return writeIf([...room, ...budget, TOKEN.insert(token)], recordOf(audit, rows));
    },
    /** Revokes a token. Returns false if it does not exist or was already revoked; then nothing is written. */
    async revokeToken(id: string, atMs: number, audit?: AuditRow): Promise<boolean> {
      const revoke = sql`update token set revoked_at = ${atMs} where id = ${id} and revoked_at is null`;
      return writeIf([revoke], recordOf(audit, { token: [{ id, revokedAtMs: atMs }] }));
    },
    /**
     * Writes the successor of a token, which ends it, and revokes a present one. Returns false, and writes nothing, if the
     * token has another successor or was revoked, or the present one was used, rotated or revoked since it was read.
     */
    async replaceToken({ oldId, oldExpiresAtMs, successor, unused }: Succession, audit?: AuditRow): Promise<boolean> {
      const isAsRead =
        unused === undefined ? sql`successor_id is null and revoked_at is null` : sql`successor_id = ${unused.id}`;
      const name = sql`update token set successor_id = ${successor.id} where id = ${oldId} and ${isAsRead}`;
      const revokedAtMs = unused?.revokedAtMs ?? successor.createdAtMs;
      const isUnused = allOf(
        sql`id = ${unused?.id ?? null} and last_used_at is null and successor_id is null`,
        unused?.revokedAtMs === null && sql`revoked_at is null`,
      );
      const revoke = sql`update token set revoked_at = ${revokedAtMs} where ${isUnused}`;
      const expiry = sql`
        update token set expires_at = ${oldExpiresAtMs}
        where id = ${oldId} and (expires_at is null or expires_at > ${oldExpiresAtMs})`;
      const required = unused === undefined ? [name] : [name, revoke];
      const old = { id: oldId, successorId: successor.id, expiresAtMs: oldExpiresAtMs };
      const rows = [old, successor, ...(unused === undefined ? [] : [{ id: unused.id, revokedAtMs }])];
      return writeIf(required, [expiry, TOKEN.insert(successor), ...recordOf(audit, { token: rows })]);
    },
    /** Records when tokens were last used. Times before the recorded ones change nothing. */
    async noteUses(uses: readonly { tokenId: string; atMs: number }[]) {
      if (uses.length === 0) return;
      await write(
        uses.map(
          ({ tokenId, atMs }) => sql`
            update token set last_used_at = ${atMs}
            where id = ${tokenId} and (last_used_at is null or last_used_at < ${atMs})`,
        ),
      );
    },
  };
}

/** Returns statements that change a row each if the creator of a token has fewer than `max` active ones; a rotation counts once. */
function roomFor({ organizationId, createdBy, createdAtMs }: TokenRow, max: number): Sql[] {
  const count = sql`
    select count(distinct caller_id) from token
    where organization_id = ${organizationId} and created_by = ${createdBy} and kind = 'secret'
      and revoked_at is null and (expires_at is null or expires_at > ${createdAtMs})`;
  return roomIn(organizationId, count, max);
}

/**
 * Returns statements that change a row each if a count is below `max`. The first one locks the organization (for the service, the
 * playground's), so that the second one counts what others have written meanwhile.
 */
export function roomIn(organizationId: string | null, count: Sql, max: number): Sql[] {
  const lock = sql`update organization set name = name where id = ${organizationId ?? PLAYGROUND_ID}`;
  return [lock, sql`${lock} and (${count}) < ${max}`];
}

export const BUDGET_COLUMNS = sql`budget.amount as cap, budget_use.held, budget_use.spent`;
export const BUDGETS_OF_TOKENS = sql`
  left join budget on budget.organization_id = token.organization_id and budget.cap_of = token.caller_id
  left join budget_use on budget_use.organization_id = budget.organization_id and budget_use.budget_id = budget.id`;
const TOKENS_WITH_BUDGETS = sql`select token.*, ${BUDGET_COLUMNS} from token ${BUDGETS_OF_TOKENS}`;

/** Converts a row of a token with its cap. */
export function withBudget(row: Record<string, unknown>): TokenWithBudget {
  const { cap, held, spent } = row as Record<"cap" | "held" | "spent", bigint | null>;
  // A cap has no counter before the first request.
  return { ...TOKEN.fromRecord(row), budget: cap === null ? null : { cap, held: held ?? 0n, spent: spent ?? 0n } };
}
