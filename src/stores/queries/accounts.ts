import { type Selectable, sql } from "kysely";
import { type Scope, SHORT_TOKEN_SCOPES } from "../../api/principal.ts";
import { toOptionalNumber } from "../schema.ts";
import type {
  AccountRows,
  LimitSettings,
  OrganizationChange,
  OrganizationRow,
  TokenRow,
  TokenWithBudget,
  TokenWithOrganization,
} from "../store.ts";
import type { OrganizationTable, PortableDatabase, TokenTable } from "../tables.ts";
import { insertAuditQuery, recordOf } from "./admin.ts";

/** The rows of organizations and tokens, the same for both stores. */
export function accountRows(database: PortableDatabase): AccountRows {
  return { ...organizations(database), ...tokens(database), ...tokenChanges(database) };
}

function organizations({ kysely, write, writeIf }: PortableDatabase) {
  return {
    async insertOrganization({ id, name, kind, limits = null, createdAtMs }, audit) {
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
    async organization(id) {
      const row = await kysely.selectFrom("organization").selectAll().where("id", "=", id).executeTakeFirst();
      return row && organizationFromTable(row);
    },
    async organizations({ after, limit }) {
      let query = kysely.selectFrom("organization").selectAll().orderBy("id").limit(limit);
      if (after !== null) query = query.where("id", ">", after);
      return (await query.execute()).map(organizationFromTable);
    },
    async changeOrganization(id, change, recordOf) {
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
        // Written only over the values that the record names as those before; otherwise read again.
        for (const field of fields) update = update.where(COLUMNS[field], "is not distinct from", row[COLUMNS[field]]);
        const audit = recordOf(pick(old, fields), pick(change, fields));
        if (await writeIf([update.compile()], [insertAuditQuery(kysely, audit)])) return { ...old, ...change };
      }
    },
  } satisfies Partial<AccountRows>;
}

const COLUMNS = {
  name: "name",
  status: "status",
  limits: "limits",
  keepsConversations: "keeps_conversations",
} as const satisfies Record<keyof OrganizationChange, keyof OrganizationTable>;
const CHANGEABLE = Object.keys(COLUMNS) as (keyof OrganizationChange)[];

/** The value of a field as its column holds it. */
function columnOf(field: keyof OrganizationChange, { limits = null, ...values }: OrganizationChange) {
  if (field === "limits") return encodeJson(limits);
  if (field === "keepsConversations") return values.keepsConversations ? 1 : 0;
  return values[field];
}

function pick(values: OrganizationChange, fields: (keyof OrganizationChange)[]): OrganizationChange {
  return Object.fromEntries(fields.map((field) => [field, values[field]]));
}

function tokens({ kysely }: PortableDatabase) {
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
    async tokenByHash(hash) {
      const row = await withOrganization().where("token.hash", "=", hash).executeTakeFirst();
      return row === undefined ? shortToken(hash) : tokenWithOrganization(row);
    },
    async token(id) {
      const row = await tokensWithBudget(kysely).where("token.id", "=", id).executeTakeFirst();
      return row && withBudget(row);
    },
    tokens: (page) => tokenPage(kysely, page),
  } satisfies Partial<AccountRows>;
}

function tokenChanges({ kysely, write, writeIf }: PortableDatabase) {
  const insertToken = (token: TokenRow) => kysely.insertInto("token").values(tokenToTable(token)).compile();
  const change = () => kysely.updateTable("token");
  const succeed = (oldId: string, oldExpiresAtMs: number, successor: TokenRow) => [
    change()
      .set({ expires_at: oldExpiresAtMs })
      .where("id", "=", oldId)
      .where((eb) => eb.or([eb("expires_at", "is", null), eb("expires_at", ">", BigInt(oldExpiresAtMs))]))
      .compile(),
    insertToken(successor),
    shareCap(kysely, oldId, successor).compile(),
  ];
  return {
    async insertToken(token, cap, audit) {
      const { organizationId: organization_id, id: token_id } = token;
      const budget = kysely.insertInto("token_balance");
      await write([
        insertToken(token),
        ...(cap === null ? [] : [budget.values({ organization_id, token_id, cap, held: 0, spent: 0 }).compile()]),
        ...recordOf(kysely, audit),
      ]);
    },
    async revokeToken(id, atMs, audit) {
      const revoke = change().set({ revoked_at: atMs }).where("id", "=", id).where("revoked_at", "is", null);
      return writeIf([revoke.compile()], recordOf(kysely, audit));
    },
    async replaceToken(oldId, oldExpiresAtMs, successor, audit) {
      const name = change().set({ successor_id: successor.id }).where("id", "=", oldId);
      const once = name.where("successor_id", "is", null).where("revoked_at", "is", null);
      const rest = [...succeed(oldId, oldExpiresAtMs, successor), ...recordOf(kysely, audit)];
      return writeIf([once.compile()], rest);
    },
    async replaceSuccessor({ oldId, unusedId, oldExpiresAtMs, atMs, successor }, audit) {
      const name = change().set({ successor_id: successor.id }).where("id", "=", oldId);
      const revoke = change()
        .set({ revoked_at: sql<bigint>`coalesce(revoked_at, ${atMs})` })
        .where("id", "=", unusedId)
        .where("last_used_at", "is", null)
        .where("successor_id", "is", null);
      const required = [name.where("successor_id", "=", unusedId).compile(), revoke.compile()];
      return writeIf(required, [...succeed(oldId, oldExpiresAtMs, successor), ...recordOf(kysely, audit)]);
    },
    async noteUses(uses) {
      if (uses.length === 0) return;
      await write(
        uses.map(({ tokenId, atMs }) =>
          kysely
            .updateTable("token")
            .set({ last_used_at: atMs })
            .where("id", "=", tokenId)
            .where((eb) => eb.or([eb("last_used_at", "is", null), eb("last_used_at", "<", BigInt(atMs))]))
            .compile(),
        ),
      );
    },
  } satisfies Partial<AccountRows>;
}

export function organizationFromTable(row: Selectable<OrganizationTable>): OrganizationRow {
  const { id, name, kind, status, limits } = row;
  const keepsConversations = row.keeps_conversations === 1n;
  const createdAtMs = Number(row.created_at);
  return { id, name, kind, status, limits: decodeLimits(limits), createdAtMs, keepsConversations };
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

async function tokenPage(
  kysely: PortableDatabase["kysely"],
  { organizationId, after, limit }: Parameters<AccountRows["tokens"]>[0],
): Promise<TokenWithBudget[]> {
  let query = tokensWithBudget(kysely).orderBy("token.id").limit(limit);
  if (organizationId !== null) query = query.where("token.organization_id", "=", organizationId);
  if (after !== null) query = query.where("token.id", ">", after);
  return (await query.execute()).map(withBudget);
}

/** Tokens, with what is left to them of their caps. */
export function tokensWithBudget(kysely: PortableDatabase["kysely"]) {
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

/** The successor points to where its predecessor's cap is; nothing is inserted where that has none. */
function shareCap(kysely: PortableDatabase["kysely"], oldId: string, { organizationId, id }: TokenRow) {
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

function decodeLimits(text: string | null): Partial<LimitSettings> | null {
  return text === null ? null : (JSON.parse(text) as Partial<LimitSettings>);
}

function encodeJson(value: object | null): string | null {
  return value === null ? null : JSON.stringify(value);
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
