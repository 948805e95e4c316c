import { StoreUnavailableError } from "../../errors.ts";

/** SQLite's primary result codes (https://sqlite.org/rescode.html) for failures of the file or its disk. */
const UNAVAILABLE = new Map([
  [3, "access was denied"],
  [5, "it is locked by another process"],
  [6, "it is locked"],
  [7, "there is no memory left"],
  [8, "it is read-only"],
  [9, "the operation was interrupted"],
  [10, "reading or writing the disk failed"],
  [11, "the file is damaged"],
  [13, "the disk is full"],
  [14, "the file cannot be opened"],
  [15, "the locks of its log cannot be had"],
  [22, "the file is too large for this system"],
  [26, "the file is not a database"],
]);
const BUSY = 5;
const FULL = 13;

/** Returns the primary result code of an error of SQLite; undefined for any other error. */
export function sqliteCode(error: unknown): number | undefined {
  if (!(error instanceof Error) || !("errcode" in error) || typeof error.errcode !== "number") return undefined;
  return error.errcode & 0xff;
}

export function isBusy(error: unknown): boolean {
  return sqliteCode(error) === BUSY;
}

/** Returns why the database is unavailable; undefined if the error is a defect. */
export function unavailableReason(error: unknown): string | undefined {
  const code = sqliteCode(error);
  return code === undefined ? undefined : UNAVAILABLE.get(code);
}

/** Tells if the connection can still be used after the error, once its transaction was rolled back. */
export function leavesConnectionSound(error: unknown): boolean {
  const code = sqliteCode(error);
  return code === undefined || code === BUSY || code === FULL || !UNAVAILABLE.has(code);
}

/** Returns StoreUnavailableError for a failure of the file or its disk; every other error unchanged. */
export function asStoreError(databasePath: string, error: unknown): unknown {
  const reason = unavailableReason(error);
  if (reason === undefined) return error;
  return new StoreUnavailableError(`The database ${databasePath} does not work: ${reason}.`, { cause: error });
}
