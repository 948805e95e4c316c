import { chmodSync, copyFileSync, existsSync, linkSync, mkdtempSync, renameSync, rmSync, statSync } from "node:fs";
import { dirname } from "node:path";
import { backup, DatabaseSync } from "node:sqlite";
import { OperatorError } from "../../errors.ts";
import { syncPath } from "../../internals/directory.ts";
import { missingStore } from "../migrations.ts";
import { unavailableReason } from "./connection.ts";
import { databasePathOf, FILE_REASONS, findDatabase, makeFile } from "./directory.ts";

/** All pages in one step: SQLite starts over if another process writes between two steps. */
const PAGES_A_STEP = 2 ** 31 - 1;
const BUSY_TIMEOUT_MS = 5_000;

/** Copies the database of a data directory, also while a service runs. Fails like `makeDatabase`. */
export async function copyDatabase(dataDir: string, destination: string) {
  const source = findDatabase(dataDir);
  if (source === undefined) throw missingStore(dataDir);
  return makeDatabase(destination, async (path) => {
    using database = new DatabaseSync(source, { readOnly: true, timeout: BUSY_TIMEOUT_MS });
    await backup(database, path, { rate: PAGES_A_STEP });
  });
}

/** Creates a database next to its destination, which `fill` writes, and checks it. Rejects with OperatorError, leaving nothing. */
export async function makeDatabase(destination: string, fill: (path: string) => Promise<void>) {
  refuseExisting(destination);
  const directory = makeFolder(destination);
  const path = databasePathOf(directory);
  const remove = () => rmSync(directory, { recursive: true, force: true });
  const onSignal = () => {
    remove();
    process.exit(1);
  };
  for (const signal of SIGNALS) process.once(signal, onSignal);
  const discard = () => {
    remove();
    for (const signal of SIGNALS) process.removeListener(signal, onSignal);
  };
  try {
    makeFile(path);
    await fill(path);
    expectWhole(path);
    syncPath(path);
    return {
      /** A data directory, to open the copy as a store. */
      directory,
      path,
      bytes: statSync(path).size,
      /** Moves the copy to its destination, unless a file of that name has appeared meanwhile. Throws OperatorError. */
      keep: () => move(path, destination),
      /** Removes the copy, if it was not moved, and its folder. */
      [Symbol.dispose]: discard,
    };
  } catch (error) {
    discard();
    throw writeFailure(destination, error);
  }
}

const SIGNALS = ["SIGINT", "SIGTERM", "SIGHUP"] as const;

function refuseExisting(destination: string): void {
  if (existsSync(destination)) throw new OperatorError(`${destination}: already exists; name a new file`);
}

function makeFolder(destination: string): string {
  try {
    return mkdtempSync(`${destination}.partial-`);
  } catch (error) {
    throw writeFailure(destination, error);
  }
}

/** Copies the file of a backup. To open it in place, SQLite would write to its folder. Throws OperatorError if it is no store. */
export function copyBackup(file: string, path: string): void {
  const refusal = (reason: string) => new OperatorError(`${file}: cannot be restored: ${reason}`);
  if (statSync(`${file}-wal`, { throwIfNoEntry: false })?.size) {
    throw refusal("it is a database in use, with a write-ahead log; make a backup of it with tollgate store backup");
  }
  try {
    copyFileSync(file, path);
    chmodSync(path, 0o600);
    expectSchemaTable(path);
  } catch (error) {
    const { code = "", message } = error as NodeJS.ErrnoException;
    const reason = code === "ENOENT" ? "there is no such file" : (unavailableReason(error) ?? REASONS[code] ?? message);
    throw refusal(reason);
  }
}

function expectSchemaTable(path: string): void {
  using database = new DatabaseSync(path, { timeout: BUSY_TIMEOUT_MS });
  const tables = database.prepare("SELECT name FROM sqlite_schema WHERE name = 'schema_migration'").all();
  if (tables.length === 0) throw new OperatorError("it is not a backup of a Tollgate store");
}

function expectWhole(path: string): void {
  using database = new DatabaseSync(path, { timeout: BUSY_TIMEOUT_MS });
  const [row] = database.prepare("PRAGMA integrity_check(1)").all();
  if (row?.integrity_check === "ok") return;
  throw new OperatorError(`The copy is damaged: ${String(row?.integrity_check).replaceAll("\n", " ")}`);
}

/** Moves a file by a link, which never replaces a file, or by a rename if the file system has no links. */
function move(path: string, destination: string): void {
  try {
    linkSync(path, destination);
    syncPath(dirname(destination));
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException;
    refuseExisting(destination);
    if (code !== "EPERM" && code !== "ENOTSUP" && code !== "ENOSYS") throw writeFailure(destination, error);
    renameSync(path, destination);
  }
}

const REASONS: Record<string, string> = { ...FILE_REASONS, ENOENT: "there is no such directory" };

function writeFailure(destination: string, error: unknown): OperatorError {
  if (error instanceof OperatorError) return error;
  const { code = "", message, cause } = error as NodeJS.ErrnoException;
  const reason = unavailableReason(error) ?? unavailableReason(cause) ?? REASONS[code] ?? message;
  return new OperatorError(`${destination}: cannot be written: ${reason}`, { cause: error });
}
