import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import {
  chmodSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  renameSync,
  rmSync,
  statSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { DatabaseSync } from "node:sqlite";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { grantOf, holdOf, one, randomId, settleOf } from "../../../test/stores/fixture.ts";
import { OperatorError, StoreUnavailableError } from "../../errors.ts";
import { type Database, databaseOver } from "../database.ts";
import { raw } from "../sql.ts";
import { type Store, storeOver } from "../store.ts";
import { Connection, LOG_BYTES } from "./connection.ts";
import { migrate, sqliteMigrations } from "./migrate.ts";
import { openSqliteDriver, openSqliteStore, type SqliteDriver, type SqliteOptions } from "./sqlite.ts";

let parent: string;
let dataDir: string;
const stores: Store[] = [];
const children: ChildProcess[] = [];

beforeEach(() => {
  parent = mkdtempSync(join(tmpdir(), "tollgate-sqlite-"));
  dataDir = join(parent, "data");
});

afterEach(async () => {
  for (const child of children.splice(0)) child.kill("SIGKILL");
  for (const store of stores.splice(0).reverse()) await store.close();
  rmSync(parent, { recursive: true });
});

interface Parts {
  store: Store;
  database: Database;
  writer: SqliteDriver["writer"];
}

async function openParts(options: Partial<SqliteOptions> = {}): Promise<Parts> {
  const driver = await openSqliteDriver({ dataDir, role: "service", ...options });
  const store = storeOver(driver);
  stores.push(store);
  return { store, database: databaseOver(driver), writer: driver.writer };
}

async function open(options: Partial<SqliteOptions> = {}): Promise<Store> {
  return (await openParts(options)).store;
}

async function refusal(options: Partial<SqliteOptions> = {}): Promise<string> {
  const error: unknown = await open(options).then(
    () => undefined,
    (reason: unknown) => reason,
  );
  expect(error).toBeInstanceOf(OperatorError);
  const { message } = error as OperatorError;
  expect(message).not.toContain("\n");
  return message;
}

async function organization(store: Store, microCredits: bigint): Promise<string> {
  const id = randomId("org");
  await store.accounts.insertOrganization({ id, name: "Life", kind: "standard", createdAtMs: 1 });
  await one(store.books, grantOf(id, microCredits), "durable");
  return id;
}

/** Runs the body of a module, with the store's functions in scope, in a child process; returns the lines it prints. */
function startChild(body: string): { child: ChildProcess; lines: AsyncIterator<string> } {
  const source = `
    import { openSqliteStore } from ${JSON.stringify(new URL("./sqlite.ts", import.meta.url).href)};
    import { v7 } from ${JSON.stringify(import.meta.resolve("uuid"))};
    const dataDir = ${JSON.stringify(dataDir)};
    ${body}`;
  const child = spawn(process.execPath, ["--input-type=module", "-e", source], {
    stdio: ["ignore", "pipe", "inherit"],
  });
  children.push(child);
  return { child, lines: createInterface({ input: child.stdout })[Symbol.asyncIterator]() };
}

async function kill(child: ChildProcess): Promise<void> {
  child.kill("SIGKILL");
  await once(child, "exit");
}

/** Code for startChild that books an even number of holds at a time and ends half of them, until it is killed. */
const booking = (count: number) => `
  const { books, accounts } = await openSqliteStore({ dataDir, role: "service" });
  const organizationId = "org_child";
  await accounts.insertOrganization({ id: organizationId, name: "", kind: "standard", createdAtMs: 1 });
  await books.apply("durable", [{ kind: "grant", organizationId, grantId: "grant_child", amount: 1_000_000n,
    effectiveAtMs: null, expiresAtMs: null, priority: 1, reference: null }]);
  const price = 1_000_000n;
  const prices = { input: price, cachedInput: price, cacheWrite: price, output: price, reasoning: price };
  for (;;) {
    const holds = Array.from({ length: ${count} }, () => ({ kind: "hold", callerId: "t", least: 5n, most: 5n, lifeMs: 60_000, owner: "owner_1",
      facts: { holdId: v7(), organizationId, tokenId: "t", requestId: "r", model: "m", upstream: "u", prices, metadata: null, idempotencyKey: null } }));
    await books.apply("holds", holds);
    await books.apply("durable", holds.slice(${count} / 2).map(({ facts }) => ({ kind: "settle", facts, basis: "reported",
      end: "complete", tokens: { input: 1, cachedInput: 0, cacheWrite: 0, output: 2, reasoning: 0 } })));
    console.log("booked");
  }`;

/** Expects at least the acknowledged number of holds, and books without violations. */
async function expectBooked(count: number): Promise<void> {
  const store = await open();
  const { holds, events, violations } = await store.books.verify("org_child");
  expect(violations).toEqual([]);
  expect(holds).toBeGreaterThanOrEqual(count);
  expect(events).toBeGreaterThanOrEqual(count / 2);
  expect((await store.books.balance("org_child"))?.spent).toBe(BigInt(events) * 3n);
}

describe("one service owns a data directory", () => {
  test("a second service in the same process is refused, until the first is closed", async () => {
    const first = await open();
    expect(await refusal()).toBe(`Another Tollgate service is running on the data directory ${dataDir}.`);
    await first.ping();
    await first.close();
    await (await open()).ping();
  });

  test("a service in another process owns it until it is killed, and commands work meanwhile", async () => {
    const { child, lines } = startChild(`
      const store = await openSqliteStore({ dataDir, role: "service" });
      console.log("open");
      // The lock of an unreferenced store could be collected.
      setInterval(() => store.kind, 1_000);`);
    expect((await lines.next()).value).toBe("open");
    expect(await refusal()).toContain(dataDir);
    const command = await open({ role: "command" });
    const id = await organization(command, 5n);
    expect(await one(command.books, holdOf(id, 5n), "holds")).toMatchObject({ outcome: "held" });
    await kill(child);
    const successor = await open();
    expect(await successor.books.balance(id)).toMatchObject({ available: 0n, held: 5n });
  });

  test("processes that open a new directory at once create its schema once", async () => {
    const opened = await Promise.all(Array.from({ length: 6 }, () => open({ role: "command" })));
    for (const store of opened) expect(await store.accounts.organization("org_playground")).toBeDefined();
  });
});

describe("durability", () => {
  test("a reopened store contains everything, and no log remains", async () => {
    const first = await open();
    const id = await organization(first, 100n);
    const hold = holdOf(id, 10n);
    await one(first.books, hold, "holds");
    await first.close();
    expect(existsSync(join(dataDir, "tollgate.db-wal"))).toBe(false);
    const second = await open();
    expect(await one(second.books, settleOf(hold, 4), "durable")).toMatchObject({ charged: 4n, available: 96n });
    expect(await second.books.verify(id)).toMatchObject({ holds: 1, events: 1, violations: [] });
  });

  test("acknowledged bookings survive kill -9", async () => {
    const { child, lines } = startChild(booking(20));
    for (let booked = 0; booked < 50; booked += 1) expect((await lines.next()).value).toBe("booked");
    await kill(child);
    await expectBooked(50 * 20);
  });

  test("under load the log gets its full size at once; acknowledged bookings then survive kill -9, too", async () => {
    // Each batch is enough load, however few a busy machine completes.
    const { child, lines } = startChild(booking(1_000));
    const log = join(dataDir, "tollgate.db-wal");
    let booked = 0;
    for (; booked < 1 || statSync(log).size < LOG_BYTES; booked += 1) expect((await lines.next()).value).toBe("booked");
    for (let more = 0; more < 4; more += 1, booked += 1) expect((await lines.next()).value).toBe("booked");
    await kill(child);
    await expectBooked(booked * 1_000);
  });

  test("the log is copied into the database while the service runs", async () => {
    const store = await open();
    const id = await organization(store, 1_000_000n);
    const database = join(dataDir, "tollgate.db");
    const before = statSync(database).size;
    await store.books.apply(
      "holds",
      Array.from({ length: 500 }, () => holdOf(id, 1n)),
    );
    await expect.poll(() => statSync(database).size).toBeGreaterThan(before);
  });
});

describe("a file or directory that cannot be used", () => {
  test("the data directory and its files are accessible to their owner only", async () => {
    const store = await open();
    await organization(store, 1n);
    const modeOf = (path: string) => (statSync(path).mode & 0o777).toString(8);
    expect(modeOf(dataDir)).toBe("700");
    for (const name of ["tollgate.db", "tollgate.db-wal", "service.lock"]) {
      expect(modeOf(join(dataDir, name))).toBe("600");
    }
  });

  test("a data directory that is a file, or below one, is refused", async () => {
    const file = join(parent, "file");
    writeFileSync(file, "");
    expect(await refusal({ dataDir: file })).toBe(`Cannot use the data directory ${file}: it is not a directory.`);
    expect(await refusal({ dataDir: join(file, "data") })).toContain("a part of its path is not a directory");
  });

  test.skipIf(process.getuid?.() === 0)(
    "a directory without the right to write is the operator's mistake",
    async () => {
      mkdirSync(dataDir, { mode: 0o500 });
      expect(await refusal()).toBe(`Cannot use the data directory ${dataDir}: permission denied.`);
      chmodSync(dataDir, 0o700);
      await (await open()).ping();
    },
  );

  test("a file that is not a database is refused and stays unchanged", async () => {
    mkdirSync(dataDir);
    const path = join(dataDir, "tollgate.db");
    writeFileSync(path, "This was never a database. ".repeat(400));
    const { size, mtimeMs } = statSync(path);
    expect(await refusal()).toBe(`Cannot use the database ${path}: the file is not a database.`);
    expect(statSync(path)).toMatchObject({ size, mtimeMs });
    rmSync(path);
    await (await open()).ping();
  });

  test("a directory in place of the database is refused", async () => {
    mkdirSync(join(dataDir, "tollgate.db"), { recursive: true });
    expect(await refusal()).toContain("the file cannot be opened");
  });

  test("the database of another program is refused", async () => {
    mkdirSync(dataDir);
    const path = join(dataDir, "tollgate.db");
    const other = new DatabaseSync(path);
    other.exec("CREATE TABLE song (title TEXT)");
    other.close();
    const before = readFileSync(path);
    expect(await refusal()).toBe(`The file ${path} is a database of another program.`);
    expect(readFileSync(path)).toEqual(before);
  });

  test("a store gets the migrations of a later release, all of them or none", async () => {
    await (await open()).close();
    const databasePath = join(dataDir, "tollgate.db");
    const connection = new Connection({ databasePath, busyTimeoutMs: 1_000 });
    const further = (version: number, text: string) => ({ version, name: `${version}.sql`, sql: text, checksum: text });
    const [good, bad] = [further(2, "CREATE TABLE two (id INTEGER)"), further(3, "CREATE TABLE three (")];
    const versions = () => connection.read({ sql: "SELECT version FROM schema_migration", parameters: [] });
    expect(() => migrate(connection, databasePath, [...sqliteMigrations(), good, bad], 7)).toThrow(/incomplete input/);
    expect(versions()).toEqual([{ version: 1n }]);
    expect(migrate(connection, databasePath, [...sqliteMigrations(), good], 7)).toEqual({ from: 1, to: 2 });
    expect(versions()).toEqual([{ version: 1n }, { version: 2n }]);
    connection.close();
    expect(await refusal()).toMatch(
      / was written by a newer Tollgate, .*: its schema is 2, this one, \S+, knows up to 1\./,
    );
  });

  test("a newer schema, or one from another text, is refused", async () => {
    await (await open()).close();
    const path = join(dataDir, "tollgate.db");
    const beside = new DatabaseSync(path);
    beside.exec("INSERT INTO schema_migration VALUES (9999, '9999_later.sql', 'x', 1, '2.0.0', NULL)");
    expect(await refusal()).toMatch(/^The database .* was written by a newer Tollgate, 2\.0\.0: its schema is 9999/);
    beside.exec("DELETE FROM schema_migration WHERE version = 9999");
    beside.exec("UPDATE schema_migration SET checksum = 'other', committed_at = 0");
    const other = /^The database \S+ was written by an older Tollgate, \S+: its schema 1 is other, that of this one, /;
    for (const creates of [true, false]) expect(await refusal({ role: "command", creates })).toMatch(other);
    beside.close();
  });
});

describe("a store that stops working", () => {
  const pages = (parts: Parts, pragma: string) => parts.database.find(raw(`PRAGMA ${pragma}`));

  test("a full disk makes the store unavailable until there is room, and loses nothing", async () => {
    const parts = await openParts();
    const { books } = parts.store;
    const id = await organization(parts.store, 1_000_000n);
    const [row] = await pages(parts, "page_count");
    await pages(parts, `max_page_count = ${Number(row?.page_count) + 8}`);
    let held = 0;
    const fill = async () => {
      for (;;) {
        await books.apply("holds", Array.from({ length: 50 }, () => holdOf(id, 1n)) as [ReturnType<typeof holdOf>]);
        held += 50;
      }
    };
    const error: unknown = await fill().catch((reason: unknown) => reason);
    expect(error).toBeInstanceOf(StoreUnavailableError);
    expect((error as Error).message).toContain("the disk is full");
    await expect(one(books, grantOf(id, 1n, { reference: "x".repeat(100_000) }), "durable")).rejects.toBeInstanceOf(
      StoreUnavailableError,
    );
    expect((await books.balance(id))?.held).toBe(BigInt(held));
    expect((await books.verify(id)).violations).toEqual([]);
    await pages(parts, "max_page_count = 1000000");
    expect(await one(books, holdOf(id, 1n), "holds")).toMatchObject({ outcome: "held" });
    expect((await books.verify(id)).violations).toEqual([]);
  });

  test("a nearly full disk stores no conversations but still books charges", async () => {
    const store = await open({ droppableRoomLeastBytes: Number.MAX_SAFE_INTEGER });
    const row = { organizationId: "org_playground", holdId: "h", endedAtMs: 1, isTruncated: false, request: "{}" };
    await expect(store.conversations.insert([{ ...row, answer: null }])).rejects.toThrow(StoreUnavailableError);
    expect(await one(store.books, grantOf("org_playground", 5n), "durable")).toMatchObject({ outcome: "granted" });
    await store.ping();
  });

  test("a transaction of another process that does not end makes the store unavailable until it does", async () => {
    const store = await open({ busyTimeoutMs: 100 });
    const id = await organization(store, 10n);
    const beside = new DatabaseSync(join(dataDir, "tollgate.db"));
    beside.exec("BEGIN IMMEDIATE");
    for (const durability of ["holds", "durable"] as const) {
      await expect(one(store.books, holdOf(id, 1n), durability)).rejects.toBeInstanceOf(StoreUnavailableError);
    }
    const name = { id: randomId("org"), name: "Later", kind: "standard", createdAtMs: 1 } as const;
    await expect(store.accounts.insertOrganization(name)).rejects.toBeInstanceOf(StoreUnavailableError);
    expect(await store.books.balance(id)).toMatchObject({ available: 10n });
    beside.exec("ROLLBACK");
    beside.close();
    await store.accounts.insertOrganization(name);
    expect(await one(store.books, holdOf(id, 1n), "holds")).toMatchObject({ outcome: "held" });
  });

  test("a worker that dies fails its requests, and the next call starts another", async () => {
    const { store, writer } = await openParts({ busyTimeoutMs: 500 });
    const id = await organization(store, 1_000_000n);
    // Its lock keeps the worker, and the next one, from booking anything.
    const beside = new DatabaseSync(join(dataDir, "tollgate.db"));
    beside.exec("BEGIN IMMEDIATE");
    const asked = Array.from({ length: 2_000 }, () => one(store.books, holdOf(id, 1n), "durable"));
    const killed = writer.kill();
    const results = await Promise.allSettled(asked);
    await killed;
    beside.exec("ROLLBACK");
    beside.close();
    for (const result of results) {
      expect(result).toMatchObject({
        status: "rejected",
        reason: { name: "StoreUnavailableError", mayBeBooked: true },
      });
    }
    expect(await one(store.books, holdOf(id, 1n), "holds")).toMatchObject({ outcome: "held" });
    expect((await store.books.verify(id)).violations).toEqual([]);
  });

  test("a missing file makes the store unavailable and is never created again", async () => {
    const { store, writer } = await openParts();
    const id = await organization(store, 1_000n);
    await store.books.verify(id);
    await writer.kill();
    const path = join(dataDir, "tollgate.db");
    renameSync(path, `${path}.away`);
    for (let i = 0; i < 3; i += 1) await expect(store.ping()).rejects.toBeInstanceOf(StoreUnavailableError);
    expect(existsSync(path)).toBe(false);
    renameSync(`${path}.away`, path);
    await store.ping();
    expect(await store.books.balance(id)).toMatchObject({ available: 1_000n });
  });

  test("a closed store is unavailable", async () => {
    const store = await openSqliteStore({ dataDir, role: "command" });
    await store.close();
    await store.close();
    await expect(store.ping()).rejects.toBeInstanceOf(StoreUnavailableError);
  });
});
