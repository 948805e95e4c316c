import { rmSync } from "node:fs";
import { mkdtemp } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import pg from "pg";
import { describe, expect, test } from "vitest";
import { createTestDatabase, hasPostgres } from "../../test/support/postgres.ts";
import type { Transition } from "../credits/books.ts";
import { BudgetCache } from "./budget-cache.ts";
import type { Database } from "./database.ts";
import type { SqlDialect } from "./driver.ts";
import { readRows as readPostgresRows } from "./postgres/book-rows.ts";
import { closePools, openPools } from "./postgres/pools.ts";
import { openPostgresStore, POSTGRES_DIALECT } from "./postgres/postgres.ts";
import { transact } from "./postgres/transact.ts";
import { requestRows } from "./queries/requests.ts";
import { type Statement, statementOf } from "./sql.ts";
import { readRows as readSqliteRows } from "./sqlite/book-rows.ts";
import { Connection } from "./sqlite/connection.ts";
import { openSqliteDriver } from "./sqlite/sqlite.ts";

const ORGANIZATION = "org_indexed";
const ROWS = 20_000;

/** One transition of each kind that names a reference. */
function referring(): Transition[] {
  const common = { organizationId: ORGANIZATION, amount: 1n, reference: "reference 7" };
  const adjustment = { ...common, adjustmentId: "adjustment_new", note: null };
  const times = { effectiveAtMs: null, expiresAtMs: null, priority: 0 };
  return [
    { kind: "grant", ...common, grantId: "grant_new", ...times },
    { kind: "revoke", ...adjustment, grantId: null },
    { kind: "credit", ...adjustment, adjustmentId: "credit_new", holdId: null, expiresAtMs: null, priority: 0 },
  ];
}

/** SQL that fills an organization with used-up grants and adjustments that have references. */
function filling(series: string, n: string): string[] {
  return [
    `INSERT INTO credit_grant
       (organization_id, id, source, amount, revoked, remaining, is_used_up, state, effective_at, priority, reference, created_at)
     ${series} SELECT '${ORGANIZATION}', 'grant_' || ${n}, 'grant', 1, 0, 0, 1, 'active', 1, 0, 'reference ' || ${n}, 1 FROM series`,
    `INSERT INTO adjustment (organization_id, id, kind, amount, draws, is_all, reference, made_at)
     ${series} SELECT '${ORGANIZATION}', 'adjustment_' || ${n}, 'revoke', 1, '[]', 0, 'reference ' || ${n}, 1 FROM series`,
    "ANALYZE",
  ];
}

/** Returns the statement that looks up a provider's id. */
async function providerLookup(dialect: SqlDialect, place: (index: number) => string): Promise<Statement> {
  const statements: Statement[] = [];
  const snapshot: Database["snapshot"] = async (queries) => {
    statements.push(...queries.map((query) => statementOf(query, place)));
    return [[]];
  };
  await requestRows({ ...dialect, snapshot } as Database).idOfProviderResponse("chatcmpl-7");
  return statements[0] ?? { sql: "", parameters: [] };
}

describe("the lookup of a reference, or of a provider's id, uses an index", () => {
  test("on SQLite", async () => {
    const dataDir = await mkdtemp(join(tmpdir(), "tollgate-references-"));
    const { dialect, close } = await openSqliteDriver({ dataDir, role: "service" });
    await close();
    const texts = new Set<string>();
    class Recording extends Connection {
      override prepare(...words: Parameters<Connection["prepare"]>) {
        texts.add(words[0]);
        return super.prepare(...words);
      }
    }
    const connection = new Recording({ databasePath: join(dataDir, "tollgate.db"), busyTimeoutMs: 1_000 });
    const series = `WITH RECURSIVE series (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM series WHERE n < ${ROWS})`;
    for (const statement of filling(series, "n")) connection.script(statement);
    const rows = readSqliteRows(connection, new BudgetCache(), referring(), 1);
    expect(rows.grants.map(({ id }) => id)).toEqual(["grant_7"]);
    expect(rows.adjustments.map(({ id }) => id)).toEqual(["adjustment_7"]);
    texts.add((await providerLookup(dialect, () => "?")).sql);
    const plans = [...texts].map((text) => {
      const steps = connection.prepare(`EXPLAIN QUERY PLAN ${text}`).all(...Array.from(text.matchAll(/\?/g), () => ""));
      return steps.map(({ detail }) => String(detail)).join("; ");
    });
    const byBlock = "SEARCH request USING INDEX request_provider_response_id (<expr>=? AND provider_response_id=?)";
    expect(plans).toContainEqual(expect.stringContaining(byBlock));
    connection.close();
    rmSync(dataDir, { recursive: true });
    expect(plans.filter((plan) => /SCAN (?!block|CONSTANT ROW)/.test(plan))).toEqual([]);
    expect(plans).toContainEqual(
      "SEARCH credit_grant USING INDEX credit_grant_reference (organization_id=? AND reference=?)",
    );
    expect(plans).toContainEqual(
      "SEARCH adjustment USING INDEX adjustment_reference (organization_id=? AND kind=? AND reference=?)",
    );
  });

  test.skipIf(!hasPostgres)("on PostgreSQL", async () => {
    const database = await createTestDatabase();
    await (await openPostgresStore({ url: database.url, role: "service" })).close();
    const beside = new pg.Client({ connectionString: database.url });
    await beside.connect();
    const series = `WITH series (n) AS (SELECT generate_series(1, ${ROWS}))`;
    for (const statement of filling(series, "n")) await beside.query(statement);
    const asked: { text: string; values: unknown[] }[] = [];
    const pools = openPools(database.url);
    const rows = await transact(pools.durable, { kind: "booking", isRepeatable: true }, (transaction) => {
      const planned = transaction.planned.bind(transaction);
      transaction.planned = (text, values) => {
        if (text.includes(".reference = ")) asked.push({ text, values });
        return planned(text, values);
      };
      return readPostgresRows(transaction, new BudgetCache(), referring());
    });
    expect(rows.grants.map(({ id }) => id)).toEqual(["grant_7"]);
    expect(rows.adjustments.map(({ id }) => id)).toEqual(["adjustment_7"]);
    const planOf = async (text: string, values: unknown[]) => {
      const { rows: lines } = await beside.query<Record<string, string>>(`EXPLAIN ${text}`, values);
      return lines.map((line) => line["QUERY PLAN"]).join("\n");
    };
    const plans = [];
    for (const { text, values } of asked) plans.push(await planOf(text, values));
    const { sql, parameters } = await providerLookup(POSTGRES_DIALECT, (index) => `$${index}`);
    // An empty table is read as fast without an index.
    await beside.query("SET enable_seqscan = off");
    const lookup = await planOf(sql, [...parameters]);
    await beside.end();
    await closePools(pools);
    await database.drop();
    expect(plans).toHaveLength(2);
    expect(plans.filter((plan) => plan.includes("Seq Scan"))).toEqual([]);
    expect(plans).toContainEqual(expect.stringContaining("using credit_grant_reference on credit_grant"));
    expect(plans).toContainEqual(expect.stringContaining("using adjustment_reference on adjustment"));
    expect(lookup).not.toContain("Seq Scan");
    expect(lookup).toMatch(/Scan (on|using) request_\w*provider_response_id/);
  });
});
