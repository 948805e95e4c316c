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

test("after a write, another thread than the one that writes copies the log", async () => {
  const kinds = kindsOf(driver.side);
  const ofWriter = kindsOf(driver.writer);
  await store.ping();
  await expect.poll(() => kinds).toEqual(["checkpoint"]);
  expect(ofWriter).not.toContain("checkpoint");
});

test("a long read does not wait for the thread that writes", async () => {
  const kinds = kindsOf(driver.side);
  const ofWriter = kindsOf(driver.writer);
  await store.books.verify("org_none");
  expect(new Set(kinds)).toEqual(new Set(["snapshot"]));
  expect(ofWriter).toEqual([]);
});
