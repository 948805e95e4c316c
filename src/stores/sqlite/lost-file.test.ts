import {
  copyFileSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  renameSync,
  rmSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, expect, test } from "vitest";
import { grantOf, holdOf, one, randomId } from "../../../test/stores/fixture.ts";
import { type Store, storeOver } from "../store.ts";
import { openSqliteDriver } from "./sqlite.ts";

let dataDir: string;
const stores: Store[] = [];

beforeEach(() => {
  dataDir = mkdtempSync(join(tmpdir(), "tollgate-lost-file-"));
});
afterEach(async () => {
  for (const store of stores.splice(0).reverse()) await store.close();
  rmSync(dataDir, { recursive: true });
});

async function open(role: "service" | "command" = "service") {
  const driver = await openSqliteDriver({ dataDir, role });
  const store = storeOver(driver);
  stores.push(store);
  return { store, writer: driver.writer };
}

/** Returns the error of a call; undefined if it succeeds. */
function failureOf(call: Promise<unknown>): Promise<unknown> {
  return call.then(
    () => undefined,
    (reason: unknown) => reason,
  );
}

test.each(["tollgate.db", "tollgate.db-wal"])("a %s that was replaced makes the store unavailable", async (name) => {
  const { store } = await open();
  const id = randomId("org");
  await store.accounts.insertOrganization({ id, name: "Lost", kind: "standard", createdAtMs: 1 });
  await one(store.books, grantOf(id, 1_000n), "durable");
  await store.books.verify(id);
  const path = join(dataDir, name);
  renameSync(path, `${path}.away`);
  copyFileSync(`${path}.away`, path);
  const unavailable = {
    name: "StoreUnavailableError",
    message: expect.stringContaining(`${path} was removed or repl`),
  };
  // Every thread notices it, also one that starts later.
  await expect.poll(() => failureOf(store.ping()), { timeout: 60_000 }).toMatchObject(unavailable);
  await expect.poll(() => failureOf(store.books.verify(id)), { timeout: 60_000 }).toMatchObject(unavailable);
  for (const durability of ["holds", "durable"] as const) {
    await expect(one(store.books, holdOf(id, 1n), durability)).rejects.toMatchObject({ mayBeBooked: false });
  }
  await expect(store.accounts.organization(id)).rejects.toMatchObject(unavailable);
  renameSync(`${path}.away`, path);
  expect(await one(store.books, holdOf(id, 1n), "holds")).toMatchObject({ outcome: "held", available: 999n });
  expect((await store.books.verify(id)).violations).toEqual([]);
});

test("a thread that starts after the file was replaced does not use the new one", async () => {
  const { store, writer } = await open();
  const path = join(dataDir, "tollgate.db");
  renameSync(path, `${path}.away`);
  copyFileSync(`${path}.away`, path);
  await writer.kill();
  await expect(store.ping()).rejects.toThrow(`${path} was removed or replaced`);
  await expect(store.books.verify("org_playground")).rejects.toThrow(`${path} was removed or replaced`);
});

test("a command creates no store while a service runs whose file is missing", async () => {
  const { store } = await open();
  const path = join(dataDir, "tollgate.db");
  renameSync(path, `${path}.away`);
  await expect(open("command")).rejects.toThrow(
    `A Tollgate service is running on the data directory ${dataDir}, but the file ${path} is missing. Put it back if it was moved; otherwise stop the service first.`,
  );
  expect(existsSync(path)).toBe(false);
  await store.close();
  await (await open("command")).store.ping();
  await (await open()).store.ping();
});

test("no store is created where the spool of a lost one remains", async () => {
  const spool = join(dataDir, "spool");
  mkdirSync(spool);
  writeFileSync(join(spool, "0191.jsonl"), "");
  for (const role of ["service", "command"] as const) {
    await expect(openSqliteDriver({ dataDir, role })).rejects.toThrow(
      `The file ${join(dataDir, "tollgate.db")} is missing, but ${spool} has the spool of a service that used it. Put the file back, or restore`,
    );
  }
  expect(readdirSync(dataDir)).toEqual(["spool"]);
  renameSync(spool, `${spool}.away`);
  await open();
});
