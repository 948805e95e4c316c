import { join, resolve } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import type { Command } from "commander";
import { auditRow, COMMAND_ACTOR } from "../admin/audit.ts";
import { loadStoreSettings } from "../config/sources.ts";
import { eventOf } from "../credits/warnings.ts";
import { OperatorError } from "../errors.ts";
import { uuidV7 } from "../internals/ids.ts";
import type { Verification } from "../ledger/verify.ts";
import { facts } from "../operations/command.ts";
import type { TransferToPostgres } from "../stores/copy.ts";
import { migrateStore } from "../stores/open.ts";
import { rememberPlace, type StorePlace } from "../stores/place.ts";
import { addCommand, type CommonFlags, print, type Terminal } from "./command.ts";
import { verifyAll } from "./ledger.ts";
import { openCommandStore, printStore, storeSettings } from "./workspace.ts";

const HOUR_MS = 3_600_000;
const LOOK_EVERY_MS = 100;

interface CopyFlags extends CommonFlags {
  to: string;
  wait?: boolean;
}

export function addStore(program: Command, terminal: Terminal): void {
  const store = program.command("store").description("the database");
  const add = (usage: string, description: string) => addCommand(store, usage, description);
  add("backup <file>", "Copy the store into a new SQLite file and verify the copy; the service may be running").action(
    (file: string, flags: CommonFlags) =>
      backUp(terminal, flags, resolve(file)).catch(async (error: unknown) => {
        await warnOfBackup(terminal, flags, error);
        throw error;
      }),
  );
  add("migrate", "Create the store, or migrate its schema; services of the earlier version may be running").action(
    (flags: CommonFlags) => migrate(terminal, flags),
  );
  add("copy", "Copy the SQLite store of the data directory into an empty PostgreSQL and verify the copy")
    .requiredOption("--to <address>", "address of the database: postgres://user@host:port/name")
    .option(
      "--wait",
      "wait for the service to stop; without it, a running service ends the command after the first part",
    )
    .action((flags: CopyFlags) => copyStore(terminal, flags));
  add(
    "restore <file>",
    "Put a backup into a data directory without a store, or into an empty PostgreSQL; stop the service first",
  ).action((file: string, flags: CommonFlags) => restore(terminal, flags, resolve(file)));
}

async function backUp(terminal: Terminal, flags: CommonFlags, path: string): Promise<void> {
  using copy = await copyToFile(terminal, flags, path);
  const found = await verifyCopy(terminal, flags, { database: null, dataDir: copy.directory });
  copy.keep();
  await recordBackup(terminal, flags, { bytes: copy.bytes, books_balance: found.ok });
  const text = facts({ file: path, size: `${copy.bytes} bytes`, books: booksText(found) });
  print(terminal, flags, { json: { ...found, file: path, bytes: copy.bytes }, text });
  if (found.ok) return;
  terminal.exitWith(1);
  terminal.error(`tollgate: the backup is whole, but its books do not balance: ${found.violations[0]?.message}`);
}

async function recordBackup(terminal: Terminal, flags: CommonFlags, after: Record<string, unknown>): Promise<void> {
  const { clock } = terminal;
  await using store = await openCommandStore(terminal, await storeSettings(flags));
  const change = { action: "store.backup", organizationId: null, subjectId: null, after };
  await store.admin.insertAudit(auditRow(COMMAND_ACTOR, change, { clock, newId: () => uuidV7(clock()) }));
}

async function copyToFile(terminal: Terminal, flags: CommonFlags, path: string) {
  const place = await storeSettings(flags);
  const { database, dataDir } = place;
  await expectStore(terminal, place);
  const { copyDatabase, makeDatabase } = await import("../stores/sqlite/backup.ts");
  if (database === null) return copyDatabase(dataDir, path);
  const { copyFromPostgres } = await import("../stores/copy.ts");
  return makeDatabase(path, (to) => copyFromPostgres(database, to));
}

/** Writes an event of a backup that failed, once an hour. A store that cannot be used is reported by the backup itself. */
async function warnOfBackup(terminal: Terminal, flags: CommonFlags, error: unknown): Promise<void> {
  const nowMs = terminal.clock();
  const reason = error instanceof Error ? error.message : String(error);
  const period = [Math.floor(nowMs / HOUR_MS)];
  const event = eventOf("backup.failed", { organizationId: null, nowMs, period }, { reason });
  try {
    await using store = await openCommandStore(terminal, await storeSettings(flags));
    await store.events.insertEvents([event]);
  } catch {
    // A store that cannot be opened takes no event.
  }
}

async function migrate(terminal: Terminal, flags: CommonFlags): Promise<void> {
  const place = await storeSettings(flags);
  const { from, to } = await migrateStore({ ...place, clock: terminal.clock });
  await printStore(terminal, place, from === 0);
  const migrated = from === 0 ? "created" : `migrated from ${from}`;
  const text = `schema  ${to}, ${from === to ? "nothing to do" : migrated}`;
  print(terminal, flags, { json: { ok: true, from: from === 0 ? null : from, to }, text });
}

/** Copies in two parts, so that the service pauses only for the second: what never changes while it runs, and then the rest. */
async function copyStore(terminal: Terminal, flags: CopyFlags): Promise<void> {
  const { to: url } = flags;
  if (!/^postgres(ql)?:\/\//i.test(url)) {
    throw new OperatorError("--to must be the address of a PostgreSQL database: postgres://user@host:port/name.");
  }
  // A copy that was interrupted at its end may have made PostgreSQL the kind of the directory already.
  const { dataDir } = await loadStoreSettings({ flags });
  const source = { database: null, dataDir };
  await expectStore(terminal, source);
  const [{ openTransferToPostgres }, { databasePathOf }] = await Promise.all([
    import("../stores/copy.ts"),
    import("../stores/sqlite/directory.ts"),
  ]);
  await using transfer = await openTransferToPostgres(databasePathOf(dataDir), url, terminal.clock);
  await expectBooks(terminal, flags, source);
  await transfer.copyAhead();
  const { rows, pausedMs } = await copyWhileStopped(terminal, flags, dataDir, transfer);
  await transfer.analyze();
  const found = await expectBooks(terminal, flags, { database: url, dataDir });
  print(terminal, flags, { json: { ...found, rows, pausedMs }, text: facts({ books: booksText(found) }) });
}

/** Copies the second part, and compares both sides, while no service can start on either of them. */
async function copyWhileStopped(terminal: Terminal, flags: CopyFlags, dataDir: string, transfer: TransferToPostgres) {
  using lock = new DisposableStack();
  lock.defer(await lockStopped(terminal, flags, dataDir));
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
}

/** Locks the data directory, so that no service starts on it; with `--wait` as soon as the running one has stopped. */
async function lockStopped(terminal: Terminal, { wait, json }: CopyFlags, dataDir: string): Promise<() => void> {
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

async function restore(terminal: Terminal, flags: CommonFlags, path: string): Promise<void> {
  const place = await storeSettings(flags);
  const found = await restoreTo(terminal, flags, path, place);
  await printStore(terminal, place, true);
  const to = place.database === null ? place.dataDir : "PostgreSQL";
  print(terminal, flags, {
    json: { ...found, file: path },
    text: facts({ restored: path, to, books: booksText(found) }),
  });
}

/** Restores a copy of the backup, which is migrated if it is from an older release. No service runs on the data directory. */
async function restoreTo(terminal: Terminal, flags: CommonFlags, path: string, { database, dataDir }: StorePlace) {
  const [directory, { copyBackup, makeDatabase }] = await Promise.all([
    import("../stores/sqlite/directory.ts"),
    import("../stores/sqlite/backup.ts"),
  ]);
  directory.createDataDirectory(dataDir);
  using lock = new DisposableStack();
  const expectEmpty = () => {
    if (database === null) directory.expectNoDatabase(dataDir);
  };
  // In a directory that no service has used, a file that is no backup leaves no lock behind.
  const isUsed = directory.hasLock(dataDir);
  if (isUsed) lock.defer(directory.lockDirectory(dataDir));
  expectEmpty();
  const destination = database === null ? directory.databasePathOf(dataDir) : join(dataDir, "restore");
  using copy = await makeDatabase(destination, async (to) => copyBackup(path, to));
  const migrated = await openCommandStore(terminal, { database: null, dataDir: copy.directory }, true);
  await migrated.close();
  if (!isUsed) lock.defer(directory.lockDirectory(dataDir));
  expectEmpty();
  if (database === null) {
    const found = await expectBooks(terminal, flags, { database, dataDir: copy.directory });
    copy.keep();
    return found;
  }
  const { openTransferToPostgres } = await import("../stores/copy.ts");
  await using transfer = await openTransferToPostgres(copy.path, database, terminal.clock);
  await transfer.complete();
  await transfer.analyze();
  const found = await expectBooks(terminal, flags, { database, dataDir, isCopyTarget: true });
  await transfer.markComplete();
  return found;
}

type Place = Parameters<typeof openCommandStore>[1];

/** Prints the place of a store. Rejects with OperatorError if there is none, or one of another version. */
async function expectStore(terminal: Terminal, place: StorePlace): Promise<void> {
  const store = await openCommandStore(terminal, place);
  await store.close();
  await printStore(terminal, place);
}

async function verifyCopy(terminal: Terminal, flags: CommonFlags, place: Place): Promise<Verification> {
  await using store = await openCommandStore(terminal, place);
  return await verifyAll(store, flags);
}

/** Verifies the books of a source or of a copy. Rejects with OperatorError if they do not balance. */
async function expectBooks(terminal: Terminal, flags: CommonFlags, place: Place): Promise<Verification> {
  const found = await verifyCopy(terminal, flags, place);
  if (!found.ok) throw new OperatorError(`The books do not balance: ${found.violations[0]?.message ?? ""}`);
  return found;
}

function booksText({ ok, organizations, holds, events }: Verification): string {
  const books = ok ? "they balance" : "they do not balance";
  return `${books}: ${organizations} organizations, ${holds} holds, ${events} charges`;
}
