import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, expect, test, vi } from "vitest";
import { type Store, storeOver } from "../store.ts";
import { WorkerLink } from "./link.ts";
import { openSqliteDriver, type SqliteDriver } from "./sqlite.ts";

let dataDir: string;
let driver: SqliteDriver;
let store: Store;

beforeEach(async () => {
  dataDir = mkdtempSync(join(tmpdir(), "tollgate-threads-"));
  driver = await openSqliteDriver({ dataDir, role: "service" });
  store = storeOver(driver);
});

afterEach(async () => {
  await store.close();
  rmSync(dataDir, { recursive: true });
});

/** Returns the kinds of the requests that a thread gets from now on. */
function kindsOf(link: WorkerLink): string[] {
  const kinds: string[] = [];
  const send = link.request.bind(link);
  vi.spyOn(link, "request").mockImplementation((request) => {
    kinds.push(request.kind);
    return send(request);
  });
  return kinds;
}

test("the thread that writes copies the log after few writes, and another thread after many", async () => {
  const kinds = kindsOf(driver.writer);
  await store.ping();
  await expect.poll(() => kinds).toContain("checkpoint");
  expect(driver.side.running).toBe(false);
  await Promise.all(Array.from({ length: 10 }, () => store.ping()));
  await expect.poll(() => driver.side.running).toBe(true);
});

test("looking for grants that are due starts no second thread", async () => {
  expect(await store.books.dueOrganizations({ after: null, limit: 10 })).toEqual([]);
  expect(driver.side.running).toBe(false);
});

test("the second thread ends when memory is released, and the next long read starts it again", async () => {
  const read = () => store.books.verify("org_none");
  await read();
  expect(driver.side.running).toBe(true);
  await store.releaseMemory();
  expect(driver.side.running).toBe(false);
  await read();
  expect(driver.side.running).toBe(true);
});

test("reads that come while the thread ends are answered by another one", async () => {
  await store.books.verify("org_none");
  const released = store.releaseMemory();
  const reads = await Promise.all(Array.from({ length: 5 }, () => store.books.verify("org_none")));
  expect(reads).toHaveLength(5);
  await released;
});

test("a thread with an idle time ends by itself, and the next request starts another", async () => {
  const options = { databasePath: join(dataDir, "tollgate.db"), busyTimeoutMs: 1_000, idleMs: 1 };
  const link = new WorkerLink("idle", options);
  const read = () => link.request({ kind: "run", statement: { sql: "SELECT 1 AS one", parameters: [] } });
  for (let turn = 0; turn < 2; turn += 1) {
    expect(await read()).toMatchObject({ rows: [{ one: 1n }] });
    await expect.poll(() => link.running).toBe(false);
  }
  await link.close();
});
