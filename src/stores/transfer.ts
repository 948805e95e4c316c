import { dirname } from "node:path";
import { StoreCopy } from "./copy.ts";
import { openPostgresDestination, openPostgresSide } from "./postgres/copy-side.ts";
import { openSqliteSide } from "./sqlite/copy-side.ts";
import { openSqliteDriver } from "./sqlite/sqlite.ts";

/** Partitions are created for so long ahead, as a service does. */
const AHEAD_MS = 62 * 86_400_000;

/** Copies a PostgreSQL store, as it is at one moment, into the empty file of a SQLite database in a folder of its own. */
export async function copyFromPostgres(url: string, databasePath: string): Promise<void> {
  const driver = await openSqliteDriver({ dataDir: dirname(databasePath), role: "command" });
  await driver.close();
  await using sides = new AsyncDisposableStack();
  const from = sides.adopt(await openPostgresSide(url), (side) => side.close());
  const to = sides.adopt(openSqliteSide(databasePath, "write"), (side) => side.close());
  await new StoreCopy(from, to).complete();
}

export type TransferToPostgres = Awaited<ReturnType<typeof openTransferToPostgres>>;

/**
 * Opens the file of a SQLite store, and an empty PostgreSQL or one with an incomplete copy, on which no service starts until it
 * is marked as complete. Rejects with OperatorError if one of them cannot be used.
 */
export async function openTransferToPostgres(databasePath: string, url: string, clock: () => number) {
  await using opened = new AsyncDisposableStack();
  const to = opened.adopt(await openPostgresDestination(url), (side) => side.close());
  const from = opened.adopt(openSqliteSide(databasePath, "read"), (side) => side.close());
  const copy = new StoreCopy(from, to);
  const makePartitions = async () => {
    const nowMs = clock();
    await to.makePartitions((await copy.firstRequestMs()) ?? nowMs, nowMs + AHEAD_MS);
  };
  const sides = opened.move();
  return {
    /** Copies the rows that never change, while a service may write to the source. */
    async copyAhead(): Promise<void> {
      await makePartitions();
      await copy.copyAhead(clock(), to.copiedAtMs, async (table, copiedAtMs) => {
        await to.noteCopied(table, copiedAtMs);
        to.copiedAtMs.set(table, copiedAtMs);
      });
      await to.analyze();
    },
    /**
     * Copies everything else, while no service runs on the source, and compares both sides. Resolves with the number of rows
     * of each table.
     */
    async complete(): Promise<Record<string, number>> {
      if (to.copiedAtMs.size === 0) await makePartitions();
      return copy.complete(to.copiedAtMs);
    },
    /** Lets services start on the copy. */
    markComplete: () => to.markComplete(),
    analyze: () => to.analyze(),
    close: () => sides.disposeAsync(),
    [Symbol.asyncDispose]: () => sides.disposeAsync(),
  };
}
