import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, expect, test, vi } from "vitest";
import { type Store, storeOver } from "../store.ts";
import type { WorkerLink } from "./link.ts";
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

/** Returns the names of the functions of a thread that are called from now on. */
function callsOf(link: WorkerLink): string[] {
  const names: string[] = [];
  const call = link.call.bind(link) as (name: string, ...parameters: unknown[]) => Promise<never>;
  vi.spyOn(link, "call").mockImplementation((name, ...parameters) => {
    names.push(name);
    return call(name, ...parameters);
  });
  return names;
}

test("after a write, another thread than the one that writes copies the log", async () => {
  const calls = callsOf(driver.side);
  const ofWriter = callsOf(driver.writer);
  await store.ping();
  await expect.poll(() => calls).toEqual(["checkpoint"]);
  expect(ofWriter).not.toContain("checkpoint");
});

test("a long read does not wait for the thread that writes", async () => {
  const calls = callsOf(driver.side);
  const ofWriter = callsOf(driver.writer);
  await store.books.verify("org_none");
  expect(new Set(calls)).toEqual(new Set(["snapshot"]));
  expect(ofWriter).toEqual([]);
});
