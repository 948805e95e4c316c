import { setTimeout as sleep } from "node:timers/promises";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { createTestDatabase, hasPostgres, type TestDatabase } from "../../../test/support/postgres.ts";
import { OperatorError } from "../../errors.ts";
import { closePools, openPools, type Pools } from "./pools.ts";
import { runExclusively } from "./transact.ts";

describe.skipIf(!hasPostgres)("exclusive work on PostgreSQL", () => {
  let database: TestDatabase;
  let processes: Pools[];
  beforeEach(async () => {
    database = await createTestDatabase();
    processes = Array.from({ length: 3 }, () => openPools(database.url));
  });
  afterEach(async () => {
    await Promise.all(processes.map(closePools));
    await database.drop();
  });
  const poolOf = (index: number) => {
    const pools = processes[index];
    if (pools === undefined) throw new Error(`there is no process ${index}`);
    return pools.durable;
  };
  /** Begins exclusive work that lasts until its `end` is called. */
  async function beginWork(index: number) {
    const { promise: lasting, resolve: end } = Promise.withResolvers<string>();
    const { promise: begun, resolve: begin } = Promise.withResolvers<void>();
    const result = runExclusively(poolOf(index), () => {
      begin();
      return lasting;
    });
    await begun;
    return { end, result };
  }

  test("one process works at a time", async () => {
    let working = 0;
    const most = await Promise.all(
      processes.map((_pools, index) =>
        runExclusively(poolOf(index), async () => {
          working += 1;
          const beside = working;
          await sleep(20);
          working -= 1;
          return beside;
        }),
      ),
    );
    expect(most).toEqual([1, 1, 1]);
  });

  test("the lock of a process that dies is released; finished work whose connection broke is not repeated", async () => {
    const { end, result } = await beginWork(0);
    const next = runExclusively(poolOf(1), async () => "next");
    await poolOf(2).query(`
      SELECT pg_terminate_backend(pid) FROM pg_locks
      WHERE locktype = 'advisory' AND granted AND database = (SELECT oid FROM pg_database WHERE datname = current_database())`);
    expect(await next).toBe("next");
    end("done");
    expect(await result).toBe("done");
  });

  test("a process waits for the lock as long as the work may last, and not longer", async () => {
    const { end, result } = await beginWork(0);
    const late = runExclusively(poolOf(1), async () => "late", 100);
    await expect(late).rejects.toBeInstanceOf(OperatorError);
    end("done");
    expect(await result).toBe("done");
  });

  test("work that fails releases the lock and rejects", async () => {
    const failing = runExclusively(poolOf(0), () => Promise.reject(new Error("the work failed")));
    await expect(failing).rejects.toThrow("the work failed");
    expect(await runExclusively(poolOf(1), async () => "next")).toBe("next");
  });
});
