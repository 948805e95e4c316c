import { StoreUnavailableError } from "../../errors.ts";

/** SQLite's primary result codes (https://sqlite.org/rescode.html) that a file or its disk is to blame for. */
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

/** SQLite's primary result code of an error, or undefined when it is not SQLite's. */
export function sqliteCode(error: unknown): number | undefined {
  if (!(error instanceof Error) || !("errcode" in error) || typeof error.errcode !== "number") return undefined;
  return error.errcode & 0xff;
}

export function isBusy(error: unknown): boolean {
  return sqliteCode(error) === BUSY;
}

/** Why the database cannot work, in words; undefined when the error is a defect of ours instead. */
export function unavailableReason(error: unknown): string | undefined {
  const code = sqliteCode(error);
  return code === undefined ? undefined : UNAVAILABLE.get(code);
}

/** Whether the connection itself is sound after the error, once its transaction was rolled back. */
export function leavesConnectionSound(error: unknown): boolean {
  const code = sqliteCode(error);
  return code === undefined || code === BUSY || code === FULL || !UNAVAILABLE.has(code);
}

/** A failure of the file or its disk as StoreUnavailableError; every other error as it is. */
export function asStoreError(databasePath: string, error: unknown): unknown {
  const reason = unavailableReason(error);
  if (reason === undefined) return error;
  return new StoreUnavailableError(`The database ${databasePath} does not work: ${reason}.`, { cause: error });
}
