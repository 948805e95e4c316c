import { sql } from "kysely";
import { type LimitSettings, SHORT_TOKEN_SCOPES } from "../../api/principal.ts";
import type { MicroCredits } from "../../credits/amount.ts";
import type { AuditRow } from "../../credits/audit.ts";
import type { TokenBalanceRow } from "../../credits/books.ts";
import type { Database, IdPage } from "../database.ts";
import { BALANCE, ORGANIZATION, TOKEN } from "../schema.ts";
import type { RowOf } from "../table.ts";
import { insertAuditQuery, recordOf } from "./admin.ts";
import { skipsOfMonths } from "./allowances.ts";
import { changeToken, type TokenChange } from "./token-changes.ts";

export type OrganizationRow = RowOf<typeof ORGANIZATION>;
export type OrganizationStatus = OrganizationRow["status"];
/** Fields of an organization to change; absent fields stay unchanged. */
export type OrganizationChange = Partial<Pick<OrganizationRow, (typeof CHANGEABLE)[number]>>;
export type NewOrganizationRow = Pick<OrganizationRow, "id" | "name" | "kind" | "createdAtMs"> &
  Partial<Pick<OrganizationRow, "limits">>;

export type TokenRow = RowOf<typeof TOKEN>;
/** The credit cap of a token, and what the token and all that share the cap by rotations hold and have spent. */
export type TokenBudget = Pick<TokenBalanceRow, "cap" | "held" | "spent">;
export type TokenWithBudget = TokenRow & { budget: TokenBudget | null };

export interface TokenWithOrganization extends TokenRow {
  organizationKind: OrganizationRow["kind"];
  organizationStatus: OrganizationRow["status"];
  organizationLimits: Partial<LimitSettings> | null;
  organizationKeepsConversations: boolean;
}

export interface SuccessorReplacement {
  oldId: string;
  unusedId: string;
  oldExpiresAtMs: number;
  atMs: number;
  successor: TokenRow;
}

export type AccountRows = ReturnType<typeof accountRows>;

/** Organizations and tokens. A change that is given an audit record writes it in the same transaction. */
export function accountRows(database: Database) {
  return {
    ...organizations(database),
    ...tokens(database),
    ...tokenChanges(database),
    /** See `token-changes.ts`. */
    changeToken: (old: TokenWithBudget, change: TokenChange, audit: AuditRow) =>
      changeToken(database, old, change, audit),
  };
}

function organizations(database: Database) {
  const { kysely, write, writeIf } = database;
  return {
    /** Writes the organization and its empty balance. */
    async insertOrganization({ id, name, kind, limits = null, createdAtMs }: NewOrganizationRow, audit?: AuditRow) {
      const choices = { limits, keepsConversations: false, pausesAllowances: false };
      const row = { id, name, kind, status: "active", createdAtMs, ...choices } as const;
      const nothing = { granted: 0n, available: 0n, held: 0n, spent: 0n, expired: 0n };
      const balance = { organizationId: id, ...nothing, nextChangeAtMs: null, closedBeforeMs: null };
      await write([
        kysely.insertInto("organization").values(ORGANIZATION.toRecord(row)).compile(),
        kysely.insertInto("balance").values(BALANCE.toRecord(balance)).compile(),
        ...recordOf(kysely, audit),
      ]);
    },
    async organization(id: string): Promise<OrganizationRow | undefined> {
      const row = await kysely.selectFrom("organization").selectAll().where("id", "=", id).executeTakeFirst();
      return row && ORGANIZATION.fromRecord(row);
    },
    async organizations({ after, limit }: IdPage): Promise<OrganizationRow[]> {
      let query = kysely.selectFrom("organization").selectAll().orderBy("id").limit(limit);
      if (after !== null) query = query.where("id", ">", after);
      return (await query.execute()).map(ORGANIZATION.fromRecord);
    },
    /**
     * Writes the fields of a change that differ from the stored ones, and no others, so that concurrent changes of
     * different fields are all preserved. `recordOf` makes the audit record from those fields before and after; if none
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
        const old = ORGANIZATION.fromRecord(row);
        const isChanged = (field: keyof OrganizationChange) =>
          change[field] !== undefined && JSON.stringify(change[field]) !== JSON.stringify(old[field]);
        const fields = CHANGEABLE.filter(isChanged);
        if (fields.length === 0) return old;
        const values = ORGANIZATION.toChange(pick(change, fields));
        let update = kysely.updateTable("organization").set(values).where("id", "=", id);
        // Written only if the previous values are still those that were read; otherwise read again.
        for (const column of Object.keys(ORGANIZATION.toChange(pick(old, CHANGEABLE))) as (keyof typeof row)[]) {
          update = update.where(column, "is not distinct from", row[column]);
        }
        const resumes = old.pausesAllowances && change.pausesAllowances === false;
        const skips = resumes ? await skipsOfMonths(database, id) : [];
        const audit = recordOf(pick(old, fields), pick(change, fields));
        if (await writeIf([update.compile()], [...skips, insertAuditQuery(kysely, audit)]))
          return { ...old, ...change };
      }
    },
  };
}

const CHANGEABLE = ["name", "status", "limits", "keepsConversations", "pausesAllowances"] as const;

function pick(values: OrganizationChange, fields: readonly (keyof OrganizationChange)[]): OrganizationChange {
  return Object.fromEntries(fields.map((field) => [field, values[field]]));
}

function tokens({ kysely }: Database) {
  const withOrganization = () =>
    kysely
      .selectFrom("token")
      .innerJoin("organization", "organization.id", "token.organization_id")
      .selectAll("token")
      .select([
        "organization.kind as organization_kind",
        "organization.status as organization_status",
        "organization.limits as organization_limits",
        "organization.keeps_conversations as organization_keeps_conversations",
      ]);
  const shortToken = async (hash: Uint8Array): Promise<TokenWithOrganization | undefined> => {
    const short = await kysely
      .selectFrom("short_token")
      .leftJoin("admin_session", "admin_session.hash", "short_token.session_hash")
      .leftJoin("admin_token", "admin_token.id", "short_token.admin_token_id")
      .select(["short_token.token_id", "short_token.expires_at"])
      .where("short_token.hash", "=", hash)
      .where((eb) => eb.or([eb("short_token.session_hash", "is", null), eb("admin_session.hash", "is not", null)]))
      .where("admin_token.revoked_at", "is", null)
      .executeTakeFirst();
    if (short === undefined) return undefined;
    const row = await withOrganization().where("token.id", "=", short.token_id).executeTakeFirst();
    if (row === undefined) return undefined;
    const token = tokenWithOrganization(row);
    const expiresAtMs = Math.min(Number(short.expires_at), token.expiresAtMs ?? Number.POSITIVE_INFINITY);
    return { ...token, expiresAtMs, scopes: token.scopes.filter((scope) => SHORT_TOKEN_SCOPES.includes(scope)) };
  };
  return {
    /** Returns the token of this hash, or the token that a short token of this hash represents. */
    async tokenByHash(hash: Uint8Array): Promise<TokenWithOrganization | undefined> {
      const row = await withOrganization().where("token.hash", "=", hash).executeTakeFirst();
      return row === undefined ? shortToken(hash) : tokenWithOrganization(row);
    },
    /**
     * Returns a number that is another one after every change of what a token may do. As long as it stays the same, a token
     * is as it was when it was read after the number.
     */
    async accountVersion(): Promise<number> {
      const row = await kysely.selectFrom("account_version").select("version").where("id", "=", 1n).executeTakeFirst();
      return row === undefined ? 0 : Number(row.version);
    },
    async token(id: string): Promise<TokenWithBudget | undefined> {
      const row = await tokensWithBudget(kysely).where("token.id", "=", id).executeTakeFirst();
      return row && withBudget(row);
    },
    /** Returns the tokens of an organization, or of all (null), in the order of their ids. */
    async tokens({
      organizationId,
      after,
      limit,
    }: IdPage & { organizationId: string | null }): Promise<TokenWithBudget[]> {
      let query = tokensWithBudget(kysely).orderBy("token.id").limit(limit);
      if (organizationId !== null) query = query.where("token.organization_id", "=", organizationId);
      if (after !== null) query = query.where("token.id", ">", after);
      return (await query.execute()).map(withBudget);
    },
  };
}

function tokenChanges({ kysely, write, writeIf }: Database) {
  const change = () => kysely.updateTable("token");
  return {
    /** Writes a token. With a cap, its holds and charges are counted from now on. */
    async insertToken(token: TokenRow, cap: MicroCredits | null, audit?: AuditRow) {
      const { organizationId: organization_id, id: token_id } = token;
      const budget = kysely.insertInto("token_balance");
      await write([
        insertTokenQuery(kysely, token),
        ...(cap === null ? [] : [budget.values({ organization_id, token_id, cap, held: 0, spent: 0 }).compile()]),
        ...recordOf(kysely, audit),
      ]);
    },
    /**
     * Revokes a token. Returns false if it does not exist or was already revoked; then nothing is written, the audit
     * record included.
     */
    async revokeToken(id: string, atMs: number, audit?: AuditRow): Promise<boolean> {
      const revoke = change().set({ revoked_at: atMs }).where("id", "=", id).where("revoked_at", "is", null);
      return writeIf([revoke.compile()], recordOf(kysely, audit));
    },
    /**
     * Writes the successor and ends the predecessor at `oldExpiresAtMs` at the latest, in one transaction. If the
     * predecessor has a cap, both share it. Returns false if the predecessor has a successor or was revoked; then
     * nothing is written.
     */
    async replaceToken(oldId: string, oldExpiresAtMs: number, successor: TokenRow, audit?: AuditRow): Promise<boolean> {
      const name = change().set({ successor_id: successor.id }).where("id", "=", oldId);
      const once = name.where("successor_id", "is", null).where("revoked_at", "is", null);
      const rest = [...succession(kysely, oldId, oldExpiresAtMs, successor), ...recordOf(kysely, audit)];
      return writeIf([once.compile()], rest);
    },
    /**
     * Writes another successor of a token and revokes its present one, in one transaction. Returns false if its
     * successor is not `unusedId`, or that one was used or rotated; then nothing is written.
     */
    async replaceSuccessor(
      { oldId, unusedId, oldExpiresAtMs, atMs, successor }: SuccessorReplacement,
      audit?: AuditRow,
    ): Promise<boolean> {
      const name = change().set({ successor_id: successor.id }).where("id", "=", oldId);
      const revoke = change()
        .set({ revoked_at: sql<bigint>`coalesce(revoked_at, ${atMs})` })
        .where("id", "=", unusedId)
        .where("last_used_at", "is", null)
        .where("successor_id", "is", null);
      const required = [name.where("successor_id", "=", unusedId).compile(), revoke.compile()];
      return writeIf(required, [...succession(kysely, oldId, oldExpiresAtMs, successor), ...recordOf(kysely, audit)]);
    },
    /** Records when tokens were last used. Times before the recorded ones change nothing. */
    async noteUses(uses: readonly { tokenId: string; atMs: number }[]) {
      if (uses.length === 0) return;
      await write(
        uses.map(({ tokenId, atMs }) =>
          change()
            .set({ last_used_at: atMs })
            .where("id", "=", tokenId)
            .where((eb) => eb.or([eb("last_used_at", "is", null), eb("last_used_at", "<", BigInt(atMs))]))
            .compile(),
        ),
      );
    },
  };
}

function insertTokenQuery(kysely: Database["kysely"], token: TokenRow) {
  return kysely.insertInto("token").values(TOKEN.toRecord(token)).compile();
}

/** The writes that every rotation needs besides naming the successor. */
function succession(kysely: Database["kysely"], oldId: string, oldExpiresAtMs: number, successor: TokenRow) {
  const expiry = kysely
    .updateTable("token")
    .set({ expires_at: oldExpiresAtMs })
    .where("id", "=", oldId)
    .where((eb) => eb.or([eb("expires_at", "is", null), eb("expires_at", ">", BigInt(oldExpiresAtMs))]));
  return [expiry.compile(), insertTokenQuery(kysely, successor), shareCap(kysely, oldId, successor).compile()];
}

interface OrganizationColumns {
  organization_kind: OrganizationRow["kind"];
  organization_status: OrganizationRow["status"];
  organization_limits: string | null;
  organization_keeps_conversations: bigint;
}

function tokenWithOrganization(row: OrganizationColumns): TokenWithOrganization {
  const { organization_limits: limits } = row;
  return {
    ...TOKEN.fromRecord(row),
    organizationKind: row.organization_kind,
    organizationStatus: row.organization_status,
    organizationLimits: limits === null ? null : JSON.parse(limits),
    organizationKeepsConversations: row.organization_keeps_conversations === 1n,
  };
}

/** Selects tokens with their caps. */
export function tokensWithBudget(kysely: Database["kysely"]) {
  return kysely
    .selectFrom("token")
    .leftJoin("token_balance as own", (join) =>
      join.onRef("own.organization_id", "=", "token.organization_id").onRef("own.token_id", "=", "token.id"),
    )
    .leftJoin("token_balance as shared", (join) =>
      join
        .onRef("shared.organization_id", "=", "own.organization_id")
        .on("shared.token_id", "=", sql<string>`coalesce(own.budget_id, own.token_id)`),
    )
    .selectAll("token")
    .select(["shared.cap", "shared.held", "shared.spent"]);
}

/** Lets the successor share its predecessor's cap; inserts nothing if there is none. */
function shareCap(kysely: Database["kysely"], oldId: string, { organizationId, id }: TokenRow) {
  const nothing = sql<bigint>`0`;
  return kysely
    .insertInto("token_balance")
    .columns(["organization_id", "token_id", "budget_id", "cap", "held", "spent"])
    .expression((from) =>
      from
        .selectFrom("token_balance")
        .select([
          "organization_id",
          sql<string>`${sql.lit(id)}`.as("token_id"),
          sql<string>`coalesce(budget_id, token_id)`.as("budget_id"),
          nothing.as("cap"),
          nothing.as("held"),
          nothing.as("spent"),
        ])
        .where("organization_id", "=", organizationId)
        .where("token_id", "=", oldId),
    );
}

export interface BudgetColumns {
  cap: bigint | null;
  held: bigint | null;
  spent: bigint | null;
}

/** Converts a row of `tokensWithBudget`. */
export function withBudget(row: BudgetColumns): TokenWithBudget {
  const { cap, held, spent } = row;
  const hasCap = cap !== null && held !== null && spent !== null;
  return { ...TOKEN.fromRecord(row), budget: hasCap ? { cap, held, spent } : null };
}
