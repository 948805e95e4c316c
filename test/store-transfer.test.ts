import { cpSync, existsSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { DatabaseSync } from "node:sqlite";
import { v7 } from "uuid";
import { afterAll, afterEach, beforeEach, describe, expect, test } from "vitest";
import type { SettleTransition } from "../src/credits/books.ts";
import { NO_TOKENS } from "../src/credits/price.ts";
import { StoreUnavailableError } from "../src/errors.ts";
import { openPostgresStore } from "../src/stores/postgres/postgres.ts";
import { openSqliteStore } from "../src/stores/sqlite/sqlite.ts";
import type { Store } from "../src/stores/store.ts";
import { runCommand, runTollgate, startTollgate } from "./support/command-line.ts";
import { keepLog } from "./support/log.ts";
import { factsOf, ORGANIZATION, openLedger, until } from "./support/open-ledger.ts";
import { createTestDatabase, hasPostgres, type TestDatabase } from "./support/postgres.ts";
import { makeOrganization, type RunningService, send, startService } from "./support/service.ts";

const databases: TestDatabase[] = [];
const services: RunningService[] = [];
let directory: string;
beforeEach(() => {
  directory = mkdtempSync(join(tmpdir(), "tollgate-transfer-"));
});
afterEach(async () => {
  for (const service of services.splice(0)) await service.end();
  rmSync(directory, { recursive: true });
});
afterAll(async () => {
  for (const database of databases) await database.drop();
});

async function postgresUrl(): Promise<string> {
  const database = await createTestDatabase();
  databases.push(database);
  return database.url;
}

async function start(options: Parameters<typeof startService>[0]): Promise<RunningService> {
  const service = await startService(options);
  services.push(service);
  return service;
}

/** Runs a command with `--json` that has to succeed. */
async function json(words: string[], databaseUrl?: string): Promise<Record<string, unknown>> {
  const environment: Record<string, string> = databaseUrl === undefined ? {} : { DATABASE_URL: databaseUrl };
  const { code, stdout, stderr } = await runCommand([...words, "--json"], directory, environment);
  expect({ code, stderr }).toEqual({ code: 0, stderr: "" });
  return JSON.parse(stdout);
}

const echo = { model: "sandbox/echo", messages: [{ role: "user", content: "still here" }] };

async function ask(service: RunningService, token: string): Promise<number> {
  const answer = await send(service, "/v1/chat/completions", token, echo);
  await answer.text();
  return answer.status;
}

const BOOKS = ["organizations", "holds", "events", "violations", "moreViolations"];

describe.skipIf(!hasPostgres)("tollgate store copy", () => {
  test("moves a running service to PostgreSQL: it stops once, and the same tokens and balances are there", async () => {
    const dataDir = join(directory, "data");
    mkdirSync(dataDir);
    const before = await start({ dataDir });
    const { id, token } = await makeOrganization(before, "5");
    expect(await ask(before, token)).toBe(200);
    const url = await postgresUrl();
    const words = ["store", "copy", "--to", url, "--data-dir", dataDir];
    const early = await runCommand(words, directory);
    expect(early).toMatchObject({ code: 1, stdout: "" });
    expect(early.stderr).toMatch(/^tollgate: The first part of the copy is done, but the service is still running\./);
    expect((await runCommand(["org", "list"], directory, { DATABASE_URL: url })).stderr).toMatch(
      /^tollgate: The database at \S+ is an incomplete copy of a store\. /,
    );
    const copy = startTollgate([...words, "--wait"], directory);
    await copy.prints(/Stop the service now\.\n/);
    expect(await ask(before, token)).toBe(200);
    const shown = await before.tollgate("org", "show", id);
    await before.end();
    const ended = await copy.ended;
    expect(ended).toMatchObject({ code: 0, stderr: "", store: `SQLite in ${dataDir}` });
    // A service on the old store would spend the same credits again.
    for (const refused of [
      runTollgate(["serve", "--port", "0", "--data-dir", dataDir], directory),
      runCommand(["org", "create", "By mistake", "--data-dir", dataDir], directory),
    ]) {
      const { code, stderr, store } = await refused;
      expect({ code, store }).toEqual({ code: 1, store: null });
      expect(stderr).toMatch(
        /^tollgate: The data directory \S+ belongs to services on PostgreSQL at .* Set DATABASE_URL, .* if both are used, the same credits are spent twice\.\n$/,
      );
    }
    expect(ended.stdout).toMatch(
      /with equal sums on both sides\npause +[\d.]+ s\nnext +start the service with DATABASE_URL/,
    );
    expect(ended.stdout).toMatch(/\nbooks +they balance: 3 organizations, 2 holds, 2 charges\n$/);
    const after = await start({ dataDir, databaseUrl: url });
    expect(await after.tollgate("org", "show", id)).toEqual(shown);
    expect(await ask(after, token)).toBe(200);
    expect(await after.tollgate("ledger", "verify")).toMatchObject({ ok: true, events: 3, deadLetters: 0 });
    expect((await runCommand(words, directory)).stderr).toMatch(
      /^tollgate: The database at \S+ contains a store; name an empty database\.\n$/,
    );
  });

  test("prints one JSON document, and refuses an address that is not of PostgreSQL, and a folder without a store", async () => {
    const dataDir = join(directory, "data");
    await json(["org", "create", "Copied", "--credits", "5", "--data-dir", dataDir]);
    const copied = await json(["store", "copy", "--to", await postgresUrl(), "--data-dir", dataDir]);
    expect(Object.keys(copied)).toEqual(["ok", ...BOOKS, "rows", "pausedMs"]);
    expect(copied).toMatchObject({
      ok: true,
      organizations: 2,
      rows: { organization: 2, credit_grant: 1, request: 0 },
    });
    const refused = await runCommand(["store", "copy", "--to", "mysql://x/y", "--data-dir", dataDir], directory);
    expect(refused.stderr).toMatch(/^tollgate: --to must be the address of a PostgreSQL database: postgres:/);
    const nowhere = await runCommand(["store", "copy", "--to", "postgres://a@127.0.0.1:1/b"], directory);
    expect(nowhere.stderr).toMatch(/^tollgate: There is no store in /);
  });

  test("that is killed at any moment is completed by the next one", async () => {
    const dataDir = join(directory, "data");
    await json(["org", "create", "Killed", "--credits", "5", "--data-dir", dataDir]);
    const url = await postgresUrl();
    const words = ["store", "copy", "--to", url, "--data-dir", dataDir];
    for (const afterMs of [300, 450, 600]) {
      const copy = startTollgate(words, directory);
      setTimeout(() => copy.child.kill("SIGKILL"), afterMs);
      await copy.ended;
    }
    // The last one may have been complete before it was killed.
    const last = await runCommand(words, directory);
    expect(last.code === 0 || /contains a store/.test(last.stderr)).toBe(true);
    expect(await json(["ledger", "verify"], url)).toMatchObject({ ok: true, organizations: 2 });
  });
});

describe("tollgate store restore", () => {
  const restore = (file: string, dataDir: string) =>
    runCommand(["store", "restore", file, "--data-dir", dataDir], directory);

  test("puts a backup into an empty data directory, and never overwrites anything", async () => {
    const [from, to, file] = [join(directory, "from"), join(directory, "to"), join(directory, "backup.db")];
    await json(["org", "create", "Kept", "--credits", "5", "--data-dir", from]);
    await json(["store", "backup", file, "--data-dir", from]);
    const bytes = readFileSync(file);
    const restored = await json(["store", "restore", file, "--data-dir", to]);
    expect(restored).toEqual({
      ok: true,
      file,
      organizations: 2,
      holds: 0,
      events: 0,
      violations: [],
      moreViolations: 0,
    });
    expect(readdirSync(to).sort()).toEqual(["service.lock", "tollgate.db"]);
    const listed = (dataDir: string) => json(["org", "list", "--data-dir", dataDir]);
    expect(await listed(to)).toEqual(await listed(from));
    expect(readFileSync(file)).toEqual(bytes);
    const again = await restore(file, to);
    expect(again.stderr).toMatch(/^tollgate: \S+tollgate\.db exists already\. Move it away, together with all files/);
    // A log without its database would become part of the restored one.
    const log = join(directory, "log");
    mkdirSync(log);
    writeFileSync(join(log, "tollgate.db-wal"), "anything");
    expect((await restore(file, log)).stderr).toMatch(/^tollgate: \S+tollgate\.db-wal exists already\. /);
    expect(readdirSync(log).sort()).toEqual(["tollgate.db-wal"]);
  });

  test("refuses a backup of another commit, and leaves the file as it is", async () => {
    const [from, to, file] = [join(directory, "from"), join(directory, "to"), join(directory, "backup.db")];
    await json(["org", "create", "Old", "--credits", "5", "--data-dir", from]);
    await json(["store", "backup", file, "--data-dir", from]);
    const database = new DatabaseSync(file);
    database.exec("UPDATE schema_migration SET checksum = 'other', committed_at = 0; PRAGMA journal_mode = DELETE");
    database.close();
    const bytes = readFileSync(file);
    const { code, stderr } = await restore(file, to);
    expect(code).toBe(1);
    expect(stderr).toMatch(
      /was written by an older Tollgate, \S+: its schema 1 is other, .* There are no migrations between/,
    );
    expect(readFileSync(file)).toEqual(bytes);
    expect(readdirSync(to)).toEqual([]);
  });

  test("refuses a file that is not a backup, a damaged one, and one whose books do not balance", async () => {
    const [from, to, file] = [join(directory, "from"), join(directory, "to"), join(directory, "backup.db")];
    const { id } = await json(["org", "create", "Kept", "--credits", "5", "--data-dir", from]);
    await json(["store", "backup", file, "--data-dir", from]);
    const missing = join(directory, "missing.db");
    expect((await restore(missing, to)).stderr).toBe(
      `tollgate: ${missing}: cannot be restored: there is no such file\n`,
    );
    for (const [name, bytes, reason] of [
      ["text.db", "This is no database, and long enough for a header. ".repeat(20), /the file is not a database/],
      ["empty.db", "", /empty\.db: cannot be restored: it is not a backup of a Tollgate store/],
      ["cut.db", readFileSync(file).subarray(0, 20 * 4096), /the file is damaged|The copy is damaged/],
    ] as const) {
      writeFileSync(join(directory, name), bytes);
      const { code, stderr } = await restore(join(directory, name), to);
      expect(code).toBe(1);
      expect(stderr).toMatch(reason);
      expect(readdirSync(to)).toEqual([]);
    }
    const live = join(from, "tollgate.db");
    const inUse = new DatabaseSync(live);
    inUse.exec("UPDATE organization SET name = 'in the log'");
    expect((await restore(live, to)).stderr).toMatch(/tollgate\.db: cannot be restored: it is a database in use/);
    inUse.close();
    const database = new DatabaseSync(file);
    database.prepare("DELETE FROM credit_grant WHERE organization_id = ?").run(String(id));
    database.close();
    expect((await restore(file, to)).stderr).toMatch(
      /^tollgate: The books do not balance: The balance has granted 5000000/,
    );
    expect(readdirSync(to)).toEqual(["service.lock"]);
  });

  test("refuses a data directory on which a service runs", async () => {
    const dataDir = join(directory, "data");
    mkdirSync(dataDir);
    const service = await start({ dataDir });
    const file = join(directory, "backup.db");
    await service.tollgate("store", "backup", file);
    const refused = await restore(file, dataDir);
    expect(refused).toMatchObject({ code: 1, stderr: expect.stringMatching(/Another Tollgate service is running/) });
  });

  test.skipIf(!hasPostgres)("puts a backup of PostgreSQL into SQLite, and one of SQLite into PostgreSQL", async () => {
    const [first, second, file, back] = [await postgresUrl(), await postgresUrl(), "first.db", "second.db"];
    const made = await json(["org", "create", "Kept", "--credits", "5"], first);
    expect(await json(["store", "backup", file], first)).toMatchObject({ ok: true, organizations: 2 });
    await json(["store", "restore", file], second);
    await json(["store", "backup", back], second);
    await json(["store", "restore", back, "--data-dir", "sqlite"]);
    expect(await json(["org", "show", String(made.id), "--data-dir", "sqlite"])).toMatchObject(made);
    const refused = await runCommand(["store", "restore", file], directory, { DATABASE_URL: second });
    expect(refused.stderr).toMatch(/ contains a store; name an empty database\.\n$/);
    expect(readdirSync(join(directory, ".tollgate")).filter((name) => name.includes("partial"))).toEqual([]);
  });
});

/** Charges `cost` micro-credits. */
function settlementOf(holdId: string, cost: number): Omit<SettleTransition, "kind"> {
  const tokens = { ...NO_TOKENS, input: cost };
  return { facts: factsOf(holdId), tokens, basis: "reported", end: "complete" };
}

const KINDS = ["sqlite", "postgres"] as const;
const ROUTES = KINDS.flatMap((from) => KINDS.map((to) => ({ from, to })));

describe.each(ROUTES)("a backup of $from that is restored to $to", ({ from, to }) => {
  const needsPostgres = from === "postgres" || to === "postgres";

  test.skipIf(needsPostgres && !hasPostgres)(
    "books the spool of its data directory, each settlement once",
    async () => {
      const log = keepLog();
      const [dataDir, file] = [join(directory, "data"), join(directory, "backup.db")];
      const lost = await place(from, join(directory, "lost"));
      let isDown = false;
      const store = await lost.open();
      const apply: Store["books"]["apply"] = async (...batch) => {
        if (isDown) throw new StoreUnavailableError("down");
        return store.books.apply(...batch);
      };
      const options = { dataDir, log, clock: Date.now, holdLifeMs: 600_000, settleRetryMs: 0 };
      const ledger = await openLedger({ books: { ...store.books, apply }, ...options });
      await store.accounts.insertOrganization({ id: ORGANIZATION, name: "Spooled", kind: "standard", createdAtMs: 1 });
      const grant = { grantId: "grant_1", amount: 1_000n, effectiveAtMs: null, expiresAtMs: null };
      await ledger.book({ kind: "grant", organizationId: ORGANIZATION, ...grant, priority: 0, reference: null });
      const [booked, held, later, released] = [v7(), v7(), v7(), v7()];
      for (const holdId of [booked, held, released])
        await ledger.hold({ callerId: "tok_1", facts: factsOf(holdId), least: 100n, most: 100n });
      await ledger.settle(settlementOf(booked, 10));
      await json(["store", "backup", file, ...lost.words], lost.url);
      // The backup does not know this hold. What follows is only in the spool.
      await ledger.hold({ callerId: "tok_1", facts: factsOf(later), least: 100n, most: 100n });
      isDown = true;
      // The answer to its commit may have been lost.
      await ledger.settle(settlementOf(booked, 10));
      await ledger.settle(settlementOf(held, 20));
      await ledger.settle(settlementOf(later, 30));
      await ledger.release({ facts: factsOf(released), trace: null });
      await ledger.stop();
      await store.close();
      const spool = join(dataDir, "spool");
      expect(readdirSync(spool).filter((name) => name.endsWith(".jsonl"))).toHaveLength(1);
      cpSync(spool, join(directory, "kept"), { recursive: true });

      const restored = await place(to, dataDir);
      await json(["store", "restore", file, ...restored.words, "--data-dir", dataDir], restored.url);
      // The spool is read again after it was booked, as if the process had died before it removed the file.
      for (let times = 1; times <= 2; times += 1) {
        const opened = await restored.open();
        const next = await openLedger({ books: opened.books, ...options });
        next.start();
        await until(() => readdirSync(spool).filter((name) => name.endsWith(".jsonl")).length === 1);
        await next.stop();
        const balance = await opened.books.balance(ORGANIZATION);
        expect(balance).toMatchObject({ granted: 1_000n, available: 940n, held: 0n, spent: 60n });
        expect((await opened.books.verify(ORGANIZATION)).violations).toEqual([]);
        expect(await next.status()).toEqual({ spool: { entries: 0 }, deadLetters: { entries: 0 } });
        await opened.close();
        cpSync(join(directory, "kept"), spool, { recursive: true });
      }
      expect(existsSync(join(dataDir, "dead-letters"))).toBe(false);
    },
  );
});

/** Returns a place for a store, with the words and the address that select it for commands. */
async function place(kind: "sqlite" | "postgres", dataDir: string) {
  if (kind === "postgres") {
    const url = await postgresUrl();
    return { url, words: [], open: () => openPostgresStore({ url, role: "command" }) };
  }
  return { url: undefined, words: ["--data-dir", dataDir], open: () => openSqliteStore({ dataDir, role: "service" }) };
}
