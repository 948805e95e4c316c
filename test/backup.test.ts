import { execFile, spawn } from "node:child_process";
import { once } from "node:events";
import {
  closeSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  openSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  statSync,
  writeFileSync,
  writeSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { DatabaseSync } from "node:sqlite";
import { promisify } from "node:util";
import { afterAll, beforeAll, expect, test } from "vitest";
import { runTollgate, splitStore } from "./support/command-line.ts";
import { mountSmallDisk, NoSmallDiskError } from "./support/small-disk.ts";

/** More than what `node:sqlite` copies in one step by default, so that a copy in steps would begin again at every write. */
const PAGES_LEAST = 400;

const directory = mkdtempSync(join(tmpdir(), "tollgate-backup-"));
const dataDir = join(directory, "data");
const run = (...words: string[]) => runTollgate(words, directory);

/** A process that books holds and settlements without a pause, as one service does, and prints a line after each batch. */
const WRITER = `
  import { openSqliteStore } from ${JSON.stringify(new URL("../src/stores/sqlite/sqlite.ts", import.meta.url).href)};
  import { uuidV7 } from ${JSON.stringify(new URL("../src/internals/ids.ts", import.meta.url).href)};
  const { books, accounts } = await openSqliteStore({ dataDir: ${JSON.stringify(dataDir)}, role: "service" });
  const organizationId = "org_load";
  await accounts.insertOrganization({ id: organizationId, name: "", kind: "standard", createdAtMs: 1 });
  await books.apply("durable", [{ kind: "grant", organizationId, grantId: "grant_load", amount: 1_000_000_000n,
    effectiveAtMs: null, expiresAtMs: null, priority: 1, reference: null }]);
  const price = 1_000_000n;
  const prices = { input: price, cachedInput: price, cacheWrite: price, output: price, reasoning: price };
  for (;;) {
    const holds = Array.from({ length: 20 }, () => ({ kind: "hold", callerId: "t", least: 5n, most: 5n, lifeMs: 600_000, owner: "o", facts: { holdId:
      uuidV7(Date.now()), organizationId, tokenId: "t", requestId: "r", model: "m", upstream: "u", prices, metadata: null, idempotencyKey: null } }));
    await books.apply("holds", holds);
    await books.apply("durable", holds.slice(10).map(({ facts }) => ({ kind: "settle", facts, basis: "reported",
      end: "complete", tokens: { input: 1, cachedInput: 0, cacheWrite: 0, output: 2, reasoning: 0 } })));
    console.log("booked");
  }`;

beforeAll(async () => {
  const { code } = await run("org", "create", "Kept", "--credits", "5", "--data-dir", dataDir);
  expect(code).toBe(0);
});
afterAll(() => rmSync(directory, { recursive: true, force: true }));

function pagesOf(path: string): number {
  const database = new DatabaseSync(path, { readOnly: true });
  const row = database.prepare("PRAGMA page_count").get();
  database.close();
  return Number(row?.page_count);
}

test("a backup completes while a service keeps writing, is complete, and only its owner may read it", async () => {
  const writer = spawn(process.execPath, ["--input-type=module", "-e", WRITER], {
    stdio: ["ignore", "pipe", "inherit"],
  });
  const exited = once(writer, "exit");
  const lines = createInterface({ input: writer.stdout })[Symbol.asyncIterator]();
  try {
    do expect((await lines.next()).value).toBe("booked");
    while (pagesOf(join(dataDir, "tollgate.db")) < PAGES_LEAST);
    const file = join(directory, "backup.db");
    const backup = run("store", "backup", file, "--data-dir", dataDir, "--json");
    let batches = 0;
    let ended: Awaited<typeof backup> | undefined;
    backup.then((result) => {
      ended = result;
    });
    for (; ended === undefined; batches += 1) await lines.next();
    expect(ended).toMatchObject({ code: 0, stderr: "" });
    expect(batches).toBeGreaterThan(0);
    expect(JSON.parse(ended.stdout)).toMatchObject({ ok: true, file, bytes: statSync(file).size, violations: [] });
    expect(JSON.parse(ended.stdout).events).toBeGreaterThan(0);
    expect(statSync(file).mode & 0o777).toBe(0o600);
    expect(readdirSync(directory).sort()).toEqual(["backup.db", "data"]);
  } finally {
    writer.kill("SIGKILL");
    await exited;
  }
});

test("a backup is restored by putting it in the place of the database", async () => {
  const restored = join(directory, "restored");
  mkdirSync(restored, { mode: 0o700 });
  renameSync(join(directory, "backup.db"), join(restored, "tollgate.db"));
  const verified = await run("ledger", "verify", "--data-dir", restored, "--json");
  expect(JSON.parse(verified.stdout)).toMatchObject({ ok: true, violations: [] });
  expect((await run("org", "list", "--data-dir", restored)).stdout).toContain("Kept");
});

test("a backup never replaces a file", async () => {
  const file = join(directory, "precious.db");
  writeFileSync(file, "precious");
  const { code, stdout, stderr } = await run("store", "backup", file, "--data-dir", dataDir);
  expect({ code, stdout }).toEqual({ code: 1, stdout: "" });
  expect(stderr).toBe(`tollgate: ${file}: already exists; name a new file\n`);
  expect(readFileSync(file, "utf8")).toBe("precious");
});

test("a backup of a damaged database fails and leaves nothing behind", async () => {
  const damaged = join(directory, "damaged");
  const name = join(damaged, "tollgate.db");
  expect((await run("org", "create", "Damaged", "--data-dir", damaged)).code).toBe(0);
  const database = new DatabaseSync(name);
  database.exec("PRAGMA wal_checkpoint(TRUNCATE)");
  const page = database.prepare("SELECT rootpage, page_size FROM sqlite_schema, pragma_page_size WHERE name = ?");
  const { rootpage, page_size } = page.get("organization") as { rootpage: number; page_size: number };
  database.close();
  const file = openSync(name, "r+");
  writeSync(file, Buffer.alloc(page_size, 0xa5), 0, page_size, (rootpage - 1) * page_size);
  closeSync(file);
  const before = readdirSync(directory);
  const { code, stderr } = await run("store", "backup", join(directory, "copy.db"), "--data-dir", damaged);
  expect(code).toBe(1);
  expect(stderr).toMatch(/^tollgate: The copy is damaged: [^\n]+\n$/);
  expect(readdirSync(directory)).toEqual(before);
});

/** Returns the reasons of the failed backups that a store warns of. */
function warnedBackups(folder: string): string[] {
  const database = new DatabaseSync(join(folder, "tollgate.db"), { readOnly: true });
  try {
    const rows = database.prepare("select data from event where kind = 'backup.failed'").all();
    return rows.map(({ data }) => JSON.parse(String(data)).reason);
  } finally {
    database.close();
  }
}

test("a backup to where nothing can be written says why, and is warned of", async () => {
  const warned = join(directory, "warned");
  expect((await run("org", "create", "Warned", "--data-dir", warned)).code).toBe(0);
  const backup = (file: string) => run("store", "backup", file, "--data-dir", warned);
  const missing = join(directory, "missing", "backup.db");
  expect((await backup(missing)).stderr).toBe(`tollgate: ${missing}: cannot be written: there is no such directory\n`);
  expect(existsSync(join(directory, "missing"))).toBe(false);
  expect(warnedBackups(warned)).toEqual([`${missing}: cannot be written: there is no such directory`]);
});

test("a backup to a full disk says so and leaves nothing behind", async ({ skip }) => {
  const place = join(directory, "small");
  mkdirSync(place);
  const disk = await mountSmallDisk(place, 1).catch((error: unknown) => {
    if (error instanceof NoSmallDiskError) return undefined;
    throw error;
  });
  if (disk === undefined) return skip("this machine mounts no file system of its own");
  try {
    await disk.fill();
    const main = new URL("../src/main.ts", import.meta.url).pathname;
    const [program = "", ...before] = [...disk.launcher, process.execPath, main];
    const words = ["store", "backup", join(place, "backup.db"), "--data-dir", dataDir];
    const failed = await promisify(execFile)(program, [...before, ...words], { cwd: directory }).catch(
      (error) => error,
    );
    expect(failed.code).toBe(1);
    expect(splitStore(failed.stderr).stderr).toMatch(
      /^tollgate: \S+backup\.db: cannot be written: the disk is full\n$/,
    );
    expect(readdirSync(disk.outside)).toEqual(["filler"]);
  } finally {
    await disk.remove();
  }
});

test("a folder without a store has nothing to back up, nor has a PostgreSQL that cannot be reached", async () => {
  const nowhere = await run("store", "backup", "copy.db", "--data-dir", "nowhere");
  expect(nowhere.stderr).toMatch(/^tollgate: There is no store in \S+nowhere\. /);
  const postgres = await runTollgate(["store", "backup", "copy.db"], directory, {
    DATABASE_URL: "postgres://a:b@127.0.0.1:1/c",
  });
  expect(postgres).toMatchObject({
    code: 1,
    stderr: expect.stringMatching(/^tollgate: The database at 127\.0\.0\.1:1\/c cannot be used: /),
  });
  expect(existsSync(join(directory, "copy.db")) || existsSync(join(directory, "nowhere"))).toBe(false);
});
