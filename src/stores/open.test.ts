import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { grantOf, holdOf, one, randomId } from "../../test/stores/fixture.ts";
import { keepLog } from "../../test/support/log.ts";
import { createTestDatabase, hasPostgres, type TestDatabase } from "../../test/support/postgres.ts";
import { PostgresProxy } from "../../test/support/postgres-proxy.ts";
import { OperatorError, StoreUnavailableError } from "../errors.ts";
import { StoreAbsentError } from "./driver.ts";
import { openServiceStore } from "./open.ts";

const NO_SERVER = "postgres://someone:secret@127.0.0.1:1/books";

const dataDir = mkdtempSync(join(tmpdir(), "tollgate-test-"));
afterAll(() => rmSync(dataDir, { recursive: true, force: true }));

const open = (database: string, longestWaitMs: number, onAbsent: (reason: Error) => void = () => {}) =>
  openServiceStore({ database, dataDir, clock: Date.now, log: keepLog(), longestWaitMs, onAbsent });

test("a start that does not wait for the database fails at once", async () => {
  await expect(open(NO_SERVER, 0)).rejects.toBeInstanceOf(StoreAbsentError);
});

test("a start that waits in vain fails with the reason", async () => {
  const reasons: string[] = [];
  const { store, arrived } = await open(NO_SERVER, 300, ({ message }) => reasons.push(message));
  const reason = /^The database at 127\.0\.0\.1:1\/books cannot be used: connect ECONNREFUSED/;
  await expect(arrived).rejects.toThrow(reason);
  expect(reasons).toEqual([expect.stringMatching(reason)]);
  await store.close();
});

describe.skipIf(!hasPostgres)("a store behind a network that is down", () => {
  let database: TestDatabase;
  let proxy: PostgresProxy;
  beforeAll(async () => {
    database = await createTestDatabase();
    proxy = await PostgresProxy.open(database.url);
  });
  afterAll(async () => {
    await proxy.close();
    await database.drop();
  });

  test("the store rejects every call until the database can be reached, and works from then on", async () => {
    await proxy.leave();
    const { store, arrived } = await open(proxy.url, 60_000);
    const id = randomId("org");
    const hold = holdOf(id, 30n);
    const asked = () => [
      store.ping(),
      store.books.balance(id),
      store.books.apply("holds", [hold]),
      store.accounts.organization(id),
      store.accounts.tokenByHash(new Uint8Array(32)),
    ];
    for (const answer of await Promise.allSettled(asked())) {
      expect(answer).toMatchObject({ status: "rejected", reason: expect.any(StoreUnavailableError) });
    }
    await proxy.comeBack();
    await arrived;
    await store.ping();
    await store.accounts.insertOrganization({ id, name: "Late", kind: "standard", createdAtMs: Date.now() });
    await one(store.books, grantOf(id, 100n), "durable");
    expect(await one(store.books, hold, "holds")).toMatchObject({ outcome: "held", available: 70n });
    await store.close();
    await expect(store.ping()).rejects.toBeInstanceOf(StoreUnavailableError);
  });

  test("a database that stopped answering is not waited for again, and works as soon as it answers", async () => {
    const impatient = new URL(proxy.url);
    impatient.searchParams.set("query_timeout", "300");
    const { store } = await open(impatient.href, 0);
    await store.ping();
    proxy.isFrozen = true;
    const asked = () =>
      Promise.allSettled([
        store.ping(),
        store.books.balance("org_playground"),
        store.books.apply("holds", [holdOf("org_playground", 1n)]),
        store.books.verify("org_playground"),
      ]);
    const refused = {
      status: "rejected",
      reason: { name: "StoreUnavailableError", message: "The store is unavailable." },
    };
    const all = [refused, refused, refused, refused];
    await expect.poll(asked, { timeout: 120_000 }).toMatchObject(all);
    for (let time = 0; time < 3; time += 1) expect(await asked()).toMatchObject(all);
    proxy.isFrozen = false;
    await expect
      .poll(
        () =>
          store.ping().then(
            () => true,
            () => false,
          ),
        { timeout: 120_000 },
      )
      .toBe(true);
    expect(await store.books.balance("org_playground")).toBeDefined();
    await store.close();
  }, 300_000);

  test("a start does not wait for a database that denies access", async () => {
    const wrong = new URL(proxy.url);
    wrong.password = "not-this-one";
    const refused = open(wrong.href, 60_000);
    await expect(refused).rejects.toBeInstanceOf(OperatorError);
    await expect(refused).rejects.not.toBeInstanceOf(StoreAbsentError);
  });

  test("the wait ends at once if the database denies access, and the store can be closed while it waits", async () => {
    await proxy.leave();
    const wrong = new URL(proxy.url);
    wrong.password = "not-this-one";
    const [refused, closed] = [await open(wrong.href, 60_000), await open(proxy.url, 60_000)];
    await closed.store.close();
    await closed.arrived;
    await proxy.comeBack();
    await expect(refused.arrived).rejects.toThrow("password authentication failed");
    await refused.store.close();
  });
});
