import { type Selectable, sql } from "kysely";
import { type LimitSettings, type Scope, SHORT_TOKEN_SCOPES } from "../../api/principal.ts";
import type { MicroCredits } from "../../credits/amount.ts";
import type { AuditRow } from "../../credits/audit.ts";
import type { TokenBalanceRow } from "../../credits/books.ts";
import type { Database } from "../database.ts";
import { toOptionalNumber } from "../schema.ts";
import type { TokenTable } from "../tables.ts";
import { recordOf } from "./admin.ts";
import { decodeLimits, encodeJson, type IdPage, type OrganizationRow, organizationRows } from "./organizations.ts";

export interface TokenRow {
  id: string;
  organizationId: string;
  name: string;
  /** SHA-256 of the whole token. */
  hash: Uint8Array;
  /** First characters of the token, to recognize it by. */
  prefix: string;
  scopes: Scope[];
  /** Null: every model. */
  models: string[] | null;
  /** Limits that differ from those of the service. */
  limits: Partial<LimitSettings> | null;
  createdAtMs: number;
  expiresAtMs: number | null;
  revokedAtMs: number | null;
  /** Time of the first use, later updated about once a minute. */
  lastUsedAtMs: number | null;
  /** The token that replaced this one in a rotation. */
  successorId: string | null;
}

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
  return { ...organizationRows(database), ...tokens(database), ...tokenChanges(database) };
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
    /** Returns the token of this hash, or the token that a short token of this hash stands for. */
    async tokenByHash(hash: Uint8Array): Promise<TokenWithOrganization | undefined> {
      const row = await withOrganization().where("token.hash", "=", hash).executeTakeFirst();
      return row === undefined ? shortToken(hash) : tokenWithOrganization(row);
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
  return kysely.insertInto("token").values(tokenToTable(token)).compile();
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

type TokenJoined = Selectable<TokenTable> & {
  organization_kind: OrganizationRow["kind"];
  organization_status: OrganizationRow["status"];
  organization_limits: string | null;
  organization_keeps_conversations: bigint;
};

function tokenWithOrganization(row: TokenJoined): TokenWithOrganization {
  return {
    ...tokenFromTable(row),
    organizationKind: row.organization_kind,
    organizationStatus: row.organization_status,
    organizationLimits: decodeLimits(row.organization_limits),
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

export type BudgetColumns = { cap: bigint | null; held: bigint | null; spent: bigint | null };

export function withBudget({ cap, held, spent, ...token }: Selectable<TokenTable> & BudgetColumns): TokenWithBudget {
  const hasCap = cap !== null && held !== null && spent !== null;
  return { ...tokenFromTable(token), budget: hasCap ? { cap, held, spent } : null };
}

export function tokenFromTable(row: Selectable<TokenTable>): TokenRow {
  return {
    id: row.id,
    organizationId: row.organization_id,
    name: row.name,
    hash: row.hash,
    prefix: row.prefix,
    scopes: JSON.parse(row.scopes) as Scope[],
    models: row.models === null ? null : (JSON.parse(row.models) as string[]),
    limits: decodeLimits(row.limits),
    createdAtMs: Number(row.created_at),
    expiresAtMs: toOptionalNumber(row.expires_at),
    revokedAtMs: toOptionalNumber(row.revoked_at),
    lastUsedAtMs: toOptionalNumber(row.last_used_at),
    successorId: row.successor_id,
  };
}

function tokenToTable(token: TokenRow) {
  return {
    organization_id: token.organizationId,
    id: token.id,
    name: token.name,
    hash: token.hash,
    prefix: token.prefix,
    scopes: JSON.stringify(token.scopes),
    models: encodeJson(token.models),
    limits: encodeJson(token.limits),
    created_at: token.createdAtMs,
    expires_at: token.expiresAtMs,
    revoked_at: token.revokedAtMs,
    last_used_at: token.lastUsedAtMs,
    successor_id: token.successorId,
  };
}
