import { closeSync, fstatSync, openSync, statfsSync, writeSync } from "node:fs";

/** The log under load, between two copies of it into the database. */
export const LOG_BYTES = 64 * 1024 * 1024;
const PIECE_BYTES = 1024 * 1024;
const ROOM_LEAST_BYTES = 16 * LOG_BYTES;

/**
 * Fills the write-ahead log of a database up with zeros, to the size that it grows to under load; called inside a write
 * transaction, so that nobody else writes to it. SQLite takes a frame of zeros for the log's end (SQLite's file format,
 * section 4.4). A file system that has to lengthen a file at every commit makes each wait for its own journal as well. A disk
 * with less room than `roomLeastBytes` is left as it is.
 */
export function lengthenLog(databasePath: string, roomLeastBytes: number = ROOM_LEAST_BYTES): void {
  const { bavail, bsize } = statfsSync(databasePath);
  if (bavail * bsize < roomLeastBytes) return;
  const file = openSync(`${databasePath}-wal`, "r+");
  try {
    const zeros = Buffer.alloc(PIECE_BYTES);
    for (let at = fstatSync(file).size; at < LOG_BYTES; at += PIECE_BYTES) writeSync(file, zeros, 0, PIECE_BYTES, at);
  } finally {
    closeSync(file);
  }
}
