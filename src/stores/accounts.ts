import { type Selectable, sql } from "kysely";
import type { Scope } from "../contract/scope.ts";
import { optionalNumber } from "./rows.ts";
import type { AccountRows, LimitSettings, OrganizationRow, TokenRow, TokenWithBudget } from "./store.ts";
import type { OrganizationTable, PortableDatabase, TokenTable } from "./tables.ts";

/** The rows of organizations and tokens, the same for both stores. */
export function accountRows(database: PortableDatabase): AccountRows {
  const { kysely } = database;
  const insertToken = (token: TokenRow) => kysely.insertInto("token").values(tokenToTable(token));
  return {
    async insertOrganization({ id, name, kind, createdAtMs }) {
      await database.write([
        kysely.insertInto("organization").values({ id, name, kind, created_at: createdAtMs }).compile(),
        kysely
          .insertInto("balance")
          .values({ organization_id: id, granted: 0, available: 0, held: 0, spent: 0, expired: 0 })
          .compile(),
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
    async insertToken(token, cap) {
      const { organizationId: organization_id, id: token_id } = token;
      const budget = kysely.insertInto("token_balance");
      await database.write([
        insertToken(token).compile(),
        ...(cap === null ? [] : [budget.values({ organization_id, token_id, cap, held: 0, spent: 0 }).compile()]),
      ]);
    },
    async tokenByHash(hash) {
      const row = await kysely
        .selectFrom("token")
        .innerJoin("organization", "organization.id", "token.organization_id")
        .selectAll("token")
        .select("organization.kind as organization_kind")
        .where("token.hash", "=", hash)
        .executeTakeFirst();
      return row && { ...tokenFromTable(row), organizationKind: row.organization_kind };
    },
    async token(id) {
      const row = await tokensWithBudget(kysely).where("token.id", "=", id).executeTakeFirst();
      return row && withBudget(row);
    },
    tokens: (page) => tokens(kysely, page),
    async revokeToken(id, atMs) {
      const result = await kysely
        .updateTable("token")
        .set({ revoked_at: atMs })
        .where("id", "=", id)
        .where("revoked_at", "is", null)
        .executeTakeFirst();
      return result.numUpdatedRows > 0n;
    },
    async replaceToken(oldId, oldExpiresAtMs, successor) {
      await database.write([
        kysely
          .updateTable("token")
          .set({ expires_at: oldExpiresAtMs })
          .where("id", "=", oldId)
          .where((eb) => eb.or([eb("expires_at", "is", null), eb("expires_at", ">", BigInt(oldExpiresAtMs))]))
          .compile(),
        insertToken(successor).compile(),
        leaveBudget(kysely, oldId, successor).compile(),
      ]);
    },
  };
}

async function tokens(
  kysely: PortableDatabase["kysely"],
  { organizationId, after, limit }: Parameters<AccountRows["tokens"]>[0],
): Promise<TokenWithBudget[]> {
  let query = tokensWithBudget(kysely).orderBy("token.id").limit(limit);
  if (organizationId !== null) query = query.where("token.organization_id", "=", organizationId);
  if (after !== null) query = query.where("token.id", ">", after);
  return (await query.execute()).map(withBudget);
}

function tokensWithBudget(kysely: PortableDatabase["kysely"]) {
  return kysely
    .selectFrom("token")
    .leftJoin("token_balance", (join) =>
      join
        .onRef("token_balance.organization_id", "=", "token.organization_id")
        .onRef("token_balance.token_id", "=", "token.id"),
    )
    .selectAll("token")
    .select(["token_balance.cap", "token_balance.held", "token_balance.spent"]);
}

/** What the predecessor's cap leaves; nothing is inserted where it has none. */
function leaveBudget(kysely: PortableDatabase["kysely"], oldId: string, { organizationId, id }: TokenRow) {
  const left = sql<bigint>`case when cap > held + spent then cap - held - spent else 0 end`;
  return kysely
    .insertInto("token_balance")
    .columns(["organization_id", "token_id", "cap", "held", "spent"])
    .expression((from) =>
      from
        .selectFrom("token_balance")
        .select([
          "organization_id",
          sql<string>`${sql.lit(id)}`.as("token_id"),
          left.as("cap"),
          sql<bigint>`0`.as("held"),
          sql<bigint>`0`.as("spent"),
        ])
        .where("organization_id", "=", organizationId)
        .where("token_id", "=", oldId),
    );
}

type BudgetColumns = { cap: bigint | null; held: bigint | null; spent: bigint | null };

function withBudget({ cap, held, spent, ...token }: Selectable<TokenTable> & BudgetColumns): TokenWithBudget {
  const hasCap = cap !== null && held !== null && spent !== null;
  return { ...tokenFromTable(token), budget: hasCap ? { cap, held, spent } : null };
}

function organizationFromTable(row: Selectable<OrganizationTable>): OrganizationRow {
  return { id: row.id, name: row.name, kind: row.kind, createdAtMs: Number(row.created_at) };
}

function tokenFromTable(row: Selectable<TokenTable>): TokenRow {
  return {
    id: row.id,
    organizationId: row.organization_id,
    name: row.name,
    hash: row.hash,
    prefix: row.prefix,
    scopes: JSON.parse(row.scopes) as Scope[],
    models: row.models === null ? null : (JSON.parse(row.models) as string[]),
    limits: row.limits === null ? null : (JSON.parse(row.limits) as Partial<LimitSettings>),
    createdAtMs: Number(row.created_at),
    expiresAtMs: optionalNumber(row.expires_at),
    revokedAtMs: optionalNumber(row.revoked_at),
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
    models: token.models === null ? null : JSON.stringify(token.models),
    limits: token.limits === null ? null : JSON.stringify(token.limits),
    created_at: token.createdAtMs,
    expires_at: token.expiresAtMs,
    revoked_at: token.revokedAtMs,
  };
}
