import { setTimeout as sleep } from "node:timers/promises";
import type { Command } from "commander";
import { loadStoreSettings } from "../config/sources.ts";
import { OperatorError } from "../errors.ts";
import { facts } from "../operations/command.ts";
import { rememberPlace } from "../stores/place.ts";
import type { TransferToPostgres } from "../stores/transfer.ts";
import { addCommand, type CommonFlags, print, type Terminal } from "./command.ts";
import { booksText, expectBooks, expectStore } from "./store-verification.ts";
import { printStore } from "./workspace.ts";

const LOOK_EVERY_MS = 100;

interface Flags extends CommonFlags {
  to: string;
  wait?: boolean;
}

export function addStoreCopy(store: Command, terminal: Terminal): void {
  addCommand(store, "copy", "Copy the SQLite store of the data directory into an empty PostgreSQL and verify the copy")
    .requiredOption("--to <address>", "address of the database: postgres://user@host:port/name")
    .option(
      "--wait",
      "wait for the service to stop; without it, a running service ends the command after the first part",
    )
    .action((flags: Flags) => copyStore(terminal, flags));
}

/**
 * Copies in two parts, so that the service pauses only for the second one: rows that never change while it runs, the rest
 * while the data directory is locked. The books are verified before and after the pause.
 */
async function copyStore(terminal: Terminal, flags: Flags): Promise<void> {
  const { to: url } = flags;
  if (!/^postgres(ql)?:\/\//i.test(url)) {
    throw new OperatorError("--to must be the address of a PostgreSQL database: postgres://user@host:port/name.");
  }
  // A copy that was interrupted at its end may have made PostgreSQL the kind of the directory already.
  const { dataDir } = await loadStoreSettings({ flags });
  await expectStore(terminal, { database: null, dataDir });
  await printStore(terminal, { database: null, dataDir });
  const [{ openTransferToPostgres }, { databasePathOf }] = await Promise.all([
    import("../stores/transfer.ts"),
    import("../stores/sqlite/directory.ts"),
  ]);
  const transfer = await openTransferToPostgres(databasePathOf(dataDir), url, terminal.clock);
  try {
    await expectBooks(terminal, flags, { database: null, dataDir });
    await transfer.copyAhead();
    const { rows, pausedMs } = await copyWhileStopped(terminal, flags, dataDir, transfer);
    await transfer.analyze();
    const found = await expectBooks(terminal, flags, { database: url, dataDir });
    print(terminal, flags, { json: { ...found, rows, pausedMs }, text: facts({ books: booksText(found) }) });
  } finally {
    await transfer.close();
  }
}

/** Copies the second part, and compares both sides, while no service can start on either of them. */
async function copyWhileStopped(terminal: Terminal, flags: Flags, dataDir: string, transfer: TransferToPostgres) {
  const unlock = await lockStopped(terminal, flags, dataDir);
  try {
    const lockedAtMs = terminal.clock();
    const rows = await transfer.complete();
    await rememberPlace({ database: flags.to, dataDir });
    await transfer.markComplete();
    const pausedMs = terminal.clock() - lockedAtMs;
    if (flags.json !== true) {
      const total = Object.values(rows).reduce((sum, count) => sum + count, 0);
      const next = `start the service with DATABASE_URL set to this address, on the same data directory: ${dataDir}`;
      const pause = `${(pausedMs / 1_000).toFixed(1)} s`;
      terminal.out(facts({ rows: `${total}, with equal sums on both sides`, pause, next }));
    }
    return { rows, pausedMs };
  } finally {
    unlock();
  }
}

/** Locks the data directory, so that no service starts on it; with `--wait` as soon as the running one has stopped. */
async function lockStopped(terminal: Terminal, { wait, json }: Flags, dataDir: string): Promise<() => void> {
  const { tryLockDirectory } = await import("../stores/sqlite/directory.ts");
  for (let isFirst = true; ; isFirst = false) {
    const unlock = tryLockDirectory(dataDir);
    if (unlock !== undefined) return unlock;
    if (wait !== true) {
      throw new OperatorError(
        "The first part of the copy is done, but the service is still running. Stop it and run the command again for the rest, or add --wait.",
      );
    }
    if (isFirst && json !== true) terminal.out("The first part of the copy is done. Stop the service now.");
    await sleep(LOOK_EVERY_MS);
  }
}
