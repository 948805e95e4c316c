import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { DatabaseSync, type SQLInputValue } from "node:sqlite";
import fc from "fast-check";
import pg from "pg";
import { v7 } from "uuid";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { grantOf, holdOf, one, randomId, settleOf } from "../../test/stores/fixture.ts";
import { bulkStatements } from "../../test/support/bulk.ts";
import { storeDigests } from "../../test/support/month-digests.ts";
import { createTestDatabase, hasPostgres, type TestDatabase } from "../../test/support/postgres.ts";
import { monthStart } from "../api/time.ts";
import { ALL_TABLES } from "./all-tables.ts";
import { copyFromPostgres, openTransferToPostgres, type TransferToPostgres } from "./copy.ts";
import { openPostgresStore } from "./postgres/postgres.ts";
import { openSqliteStore } from "./sqlite/sqlite.ts";
import type { TableShape } from "./table.ts";

let directory: string;
let databases: TestDatabase[] = [];
beforeEach(() => {
  directory = mkdtempSync(join(tmpdir(), "tollgate-copy-"));
});
afterEach(async () => {
  rmSync(directory, { recursive: true });
  for (const database of databases) await database.drop();
  databases = [];
});

async function emptyPostgres(): Promise<string> {
  const database = await createTestDatabase();
  databases.push(database);
  return database.url;
}

/** Creates a SQLite store, and returns the path of its file. */
async function emptySqlite(name = "data"): Promise<string> {
  const store = await openSqliteStore({ dataDir: join(directory, name), role: "command" });
  await store.close();
  return join(directory, name, "tollgate.db");
}

function inSqlite<T>(path: string, work: (database: DatabaseSync) => T): T {
  const database = new DatabaseSync(path, { readBigInts: true });
  try {
    return work(database);
  } finally {
    database.close();
  }
}

/** Reads every row of every table, in the order of their keys. */
function contentsOf(path: string): Record<string, unknown[]> {
  return inSqlite(path, (database) => {
    const rows = ({ name, columns, key }: TableShape) =>
      database.prepare(`SELECT ${columns.join(", ")} FROM ${name} ORDER BY ${key.join(", ")}`).all();
    return Object.fromEntries(ALL_TABLES.map((table) => [table.name, rows(table)]));
  });
}

/** Columns with few allowed values, by the values that fit all CHECK constraints of their tables. */
const ALLOWED: Record<string, SQLInputValue> = {
  "organization.kind": "standard",
  "organization.status": "paused",
  "credit_grant.source": "credit",
  "credit_grant.state": "expired",
  "credit_grant.remaining": 0n,
  "credit_grant.is_used_up": 1n,
  "credit_grant.revoked": 0n,
  "budget.time_window": "week",
  "budget_use.warned_percent": 80n,
  "request.basis": "bounded",
  "request.ending": "client_disconnected",
  "adjustment.kind": "late_settlement",
  "audit_entry.actor_kind": "anonymous",
  "operator.role": "auditor",
  "receiver.format": "slack",
  "delivery.state": "failed",
  "token.kind": "identity",
  "admin_idempotency_key.state": "answered",
  "admin_idempotency_key.status": 200n,
  "admin_idempotency_key.answer": "{}",
  "admin_session.token_id": null,
  "admin_session.person": null,
  "usage_day.dimension": "first_token",
  "closing_part.dimension": "grant",
  "refusal.count": 3n,
  "payment.amount": 5n,
  "voucher.is_revoked": 0n,
  "voucher_batch.count": 3n,
  "voucher_batch.amount": 5n,
  "voucher_batch.credit_days": 7n,
  "top_up.status": "paused",
  "top_up_charge.state": "failed",
};
/** Columns of a table that checks their sum. */
const PAYMENT_CREDITS = new Set("credits granted revoked covered returned withheld debt debt_covered".split(" "));
const FLAG = /^(is|keeps|lapses|pauses)(_|$)/;
const LARGEST = 2n ** 63n - 1n;
/** PostgreSQL's array syntax gives a meaning to some of these. */
const odd = fc.oneof(
  fc.string({ unit: "grapheme" }).map((text) => text.replaceAll("\0", "")),
  fc.constantFrom("NULL", "null", "", " ", '"', "\\", "{}", "{,}", "a,b", "\\x00", "'", "\n", "$1", "?", "ß漢🙂", "''"),
);

/** Rows of a table with odd values; the first column of the key makes them differ. */
function rowsOf({ name, columns, kinds, key }: TableShape): fc.Arbitrary<SQLInputValue[][]> {
  const cell = (column: string): fc.Arbitrary<SQLInputValue> => {
    const allowed = ALLOWED[`${name}.${column}`];
    if (allowed !== undefined) return fc.constant(allowed);
    if (kinds[column] === "bytea") return fc.uint8Array({ minLength: 32, maxLength: 32 });
    if (kinds[column] === "text")
      return column === key[0] || /id$|key|reference/.test(column) ? odd.map((text) => text + v7()) : odd;
    if (FLAG.test(column)) return fc.constantFrom(0n, 1n);
    if (name === "balance" && column !== "next_change_at") return fc.constant(0n);
    if (name === "payment" && PAYMENT_CREDITS.has(column)) return fc.constant(0n);
    return fc.oneof(fc.constantFrom(0n, 1n, LARGEST), fc.bigInt(0n, LARGEST));
  };
  return fc.array(fc.tuple(...columns.map(cell)), { minLength: 1, maxLength: 6 }) as fc.Arbitrary<SQLInputValue[][]>;
}

const everything = fc.tuple(...ALL_TABLES.map(rowsOf));

function insert(path: string, tables: SQLInputValue[][][]): void {
  inSqlite(path, (database) => {
    for (const [index, { name, columns }] of ALL_TABLES.entries()) {
      const values = columns.map(() => "?").join(", ");
      const sql = `INSERT INTO ${name} (${columns.join(", ")}) VALUES (${values}) ON CONFLICT DO NOTHING`;
      for (const row of tables[index] ?? []) database.prepare(sql).run(...row);
    }
  });
}

const clock = Date.now;

/** Copies a SQLite file into an empty PostgreSQL, or completes an incomplete copy. */
async function copyToPostgres(path: string, url: string): Promise<void> {
  const transfer = await openTransferToPostgres(path, url, clock);
  await transfer.copyAhead();
  await completeAndClose(transfer);
}

/** Returns the number of rows of each table. */
async function completeAndClose(transfer: TransferToPostgres): Promise<Record<string, number>> {
  const rows = await transfer.complete();
  await transfer.markComplete();
  await transfer[Symbol.asyncDispose]();
  return rows;
}

/** Copies a PostgreSQL back into a new SQLite file, which must have the same rows as another one. */
async function expectSameRows(url: string, path: string, name = "back"): Promise<void> {
  const back = await emptySqlite(name);
  await copyFromPostgres(url, back);
  expect(contentsOf(back)).toEqual(contentsOf(path));
}

describe.skipIf(!hasPostgres)("a copy of a store", () => {
  test("contains every table of both databases", async () => {
    const known = ALL_TABLES.map(({ name }) => name).sort();
    const path = await emptySqlite();
    const inFile = inSqlite(path, (database) =>
      database.prepare("SELECT name FROM sqlite_schema WHERE type = 'table' AND name <> 'schema_migration'").all(),
    );
    expect(inFile.map(({ name }) => name).sort()).toEqual(known);
    const url = await emptyPostgres();
    const store = await openPostgresStore({ url, role: "command" });
    await store.close();
    const client = new pg.Client({ connectionString: url });
    await client.connect();
    const { rows } = await client.query(
      `SELECT relname AS name FROM pg_class WHERE relnamespace = current_schema()::regnamespace AND relkind IN ('r', 'p')
        AND NOT relispartition AND relname <> 'schema_migration'`,
    );
    await client.end();
    expect(rows.map(({ name }) => name).sort()).toEqual(known);
  });

  test("contains every value unchanged, from SQLite to PostgreSQL and back", async () => {
    let count = 0;
    const copies = async (tables: SQLInputValue[][][]) => {
      const source = await emptySqlite(`from${count}`);
      insert(source, tables);
      const url = await emptyPostgres();
      const transfer = await openTransferToPostgres(source, url, clock);
      if (count % 2 === 0) await transfer.copyAhead();
      const rows = await completeAndClose(transfer);
      await expectSameRows(url, source, `back${count}`);
      const counts = ALL_TABLES.map(({ name }) => [name, contentsOf(source)[name]?.length]);
      expect(rows).toEqual(Object.fromEntries(counts));
      count += 1;
    };
    await fc.assert(fc.asyncProperty(everything, copies), { numRuns: 4, endOnFailure: true });
  });

  test("has the same digests of months, which PostgreSQL computes from the rows as SQLite did", async () => {
    const path = await emptySqlite();
    const nowMs = clock();
    const months = 3;
    const fromMs = monthStart(nowMs, -months);
    const organizationId = "org_digests";
    const sqlite = await openSqliteStore({ dataDir: dirname(path), role: "command" });
    await sqlite.accounts.insertOrganization({ id: organizationId, name: "é 🦊", kind: "standard", createdAtMs: 1 });
    await one(
      sqlite.books,
      grantOf(organizationId, 10_000_000n, { grantId: "grant_1", reference: 'é "🦊"\\' }),
      "durable",
    );
    inSqlite(path, (database) => {
      database.exec(`UPDATE credit_grant SET created_at = ${fromMs}`);
      const stepMs = 3 * 3_600_000;
      const bulk = { organizationId, grantId: "grant_1", count: Math.floor((nowMs - fromMs) / stepMs), fromMs, stepMs };
      for (const statement of bulkStatements("sqlite", bulk)) database.exec(statement);
    });
    await storeDigests(sqlite, organizationId);
    const digests = await sqlite.books.monthDigests(organizationId, {});
    // The month before this one is over a day after its end.
    expect([months, months - 1]).toContain(digests.length);
    const url = await emptyPostgres();
    await copyToPostgres(path, url);
    await sqlite.close();
    const postgres = await openPostgresStore({ url, role: "command" });
    expect(await postgres.books.monthDigests(organizationId, {})).toEqual(digests);
    expect((await postgres.books.verify(organizationId)).violations).toEqual([]);
    const client = new pg.Client({ connectionString: url });
    await client.connect();
    await client.query("DELETE FROM month_digest");
    await client.end();
    await storeDigests(postgres, organizationId, 7);
    expect(await postgres.books.monthDigests(organizationId, {})).toEqual(digests);
    await postgres.close();
  });

  test("has the changes that were made after its first part", async () => {
    const source = await emptySqlite();
    const [first, second] = fc.sample(everything, 2) as [SQLInputValue[][][], SQLInputValue[][][]];
    insert(source, first);
    const url = await emptyPostgres();
    const transfer = await openTransferToPostgres(source, url, clock);
    await transfer.copyAhead();
    insert(source, second);
    inSqlite(source, (database) => {
      // Some new rows have early times. Others were removed, or have lost their organization.
      database.exec("DELETE FROM conversation WHERE rowid IN (SELECT min(rowid) FROM conversation)");
      database.exec("DELETE FROM request WHERE id IN (SELECT min(id) FROM request)");
      database.exec("UPDATE audit_entry SET organization_id = NULL");
      database.exec("UPDATE organization SET name = 'changed'");
    });
    await completeAndClose(transfer);
    await expectSameRows(url, source);
  });

  test("cannot be opened until it is complete, and is completed by another copy, also of another source", async () => {
    const [source, other] = [await emptySqlite(), await emptySqlite("other")];
    const [first, second] = fc.sample(everything, 2) as [SQLInputValue[][][], SQLInputValue[][][]];
    insert(source, first);
    insert(other, second);
    const url = await emptyPostgres();
    const interrupted = await openTransferToPostgres(other, url, clock);
    await interrupted.copyAhead();
    await interrupted.complete();
    await interrupted[Symbol.asyncDispose]();
    for (const role of ["service", "command"] as const) {
      await expect(openPostgresStore({ url, role })).rejects.toThrow(/is an incomplete copy of a store\. Run tollgate/);
    }
    await copyToPostgres(source, url);
    await expectSameRows(url, source);
    await (await openPostgresStore({ url, role: "service" })).close();
  });

  test.each(["sqlite", "postgres"] as const)("of %s under load has the rows of one moment", async (kind) => {
    const url = await emptyPostgres();
    const source = await emptySqlite();
    const dataDir = dirname(source);
    const open = () =>
      kind === "sqlite" ? openSqliteStore({ dataDir, role: "service" }) : openPostgresStore({ url, role: "service" });
    const store = await open();
    const organizationId = randomId("org");
    await store.accounts.insertOrganization({ id: organizationId, name: "Busy", kind: "standard", createdAtMs: 1 });
    await one(store.books, grantOf(organizationId, 1_000_000n), "durable");
    let isDone = false;
    let charges = 0;
    const write = async () => {
      for (; !isDone; charges += 20) {
        const holds = Array.from({ length: 20 }, () => holdOf(organizationId, 5n));
        await store.books.apply("holds", holds);
        await store.books.apply(
          "durable",
          holds.slice(10).map((hold) => settleOf(hold, 3)),
        );
      }
    };
    const writing = write();
    while (charges < 200) await new Promise((resolve) => setTimeout(resolve, 5));
    const back = await emptySqlite("back");
    const copied = kind === "sqlite" ? await emptyPostgres() : url;
    const chargesBefore = charges;
    if (kind === "sqlite") await copyToPostgres(source, copied);
    await copyFromPostgres(copied, back);
    expect(charges).toBeGreaterThan(chargesBefore);
    isDone = true;
    await writing;
    await store.close();
    const copy = await openSqliteStore({ dataDir: dirname(back), role: "command" });
    const { violations, events } = await copy.books.verify(organizationId);
    expect(violations).toEqual([]);
    expect(events).toBeGreaterThanOrEqual(100);
    await copy.close();
  });

  test("is refused if the destination has an organization, or cannot be reached", async () => {
    const source = await emptySqlite();
    const url = await emptyPostgres();
    const store = await openPostgresStore({ url, role: "command" });
    await store.accounts.insertOrganization({ id: "org_a", name: "A", kind: "standard", createdAtMs: 1 });
    await store.close();
    const open = () => openTransferToPostgres(source, url, clock);
    await expect(open()).rejects.toThrow(/^The database at \S+ contains a store; name an empty database\.$/);
    const closed = openTransferToPostgres(source, "postgres://a:b@127.0.0.1:1/c", clock);
    await expect(closed).rejects.toThrow(/^The database at 127\.0\.0\.1:1\/c cannot be used: /);
  });

  test("puts requests into partitions of their months", async () => {
    const source = await emptySqlite();
    const [sample = []] = fc.sample(everything, 1);
    insert(source, sample);
    const months = ["2026-03", "2026-05"];
    inSqlite(source, (database) => {
      const { columns } = ALL_TABLES.find(({ name }) => name === "request") as TableShape;
      const rest = columns.filter((column) => column !== "id").join(", ");
      const ids = months.map((month) => v7({ msecs: Date.parse(`${month}-15T00:00:00Z`) }));
      for (const id of ids) {
        database.exec(`INSERT INTO request (id, ${rest}) SELECT '${id}', ${rest} FROM request LIMIT 1`);
      }
      database.exec(`DELETE FROM request WHERE id NOT IN ('${ids.join("', '")}')`);
    });
    const url = await emptyPostgres();
    const transfer = await openTransferToPostgres(source, url, clock);
    await transfer.complete();
    await transfer[Symbol.asyncDispose]();
    const client = new pg.Client({ connectionString: url });
    await client.connect();
    const { rows } = await client.query("SELECT tableoid::regclass::text AS name FROM request ORDER BY name");
    await client.end();
    expect(rows).toEqual(months.map((month) => ({ name: `request_${month.replace("-", "")}` })));
  });
});
