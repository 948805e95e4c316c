import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { OperatorError } from "../errors.ts";

export interface StorePlace {
  /** A PostgreSQL address; null: SQLite in `dataDir`. */
  database: string | null;
  dataDir: string;
}

/** Names the PostgreSQL database of the services of a data directory. Without this file its store is SQLite. */
const PLACE_FILE = "store";
const REMEDY = "name another directory with --data-dir or --config";

/** Returns the kind and the place of a store, without a password. Rejects with OperatorError for an unreadable address. */
export async function describePlace({ database, dataDir }: StorePlace): Promise<string> {
  if (database === null) return `SQLite in ${dataDir}`;
  const { placeOf } = await import("./postgres/pools.ts");
  return `PostgreSQL at ${placeOf(database)}`;
}

/** Rejects with OperatorError if the store is of another kind than the data directory's: the same credits would be spent twice. */
export async function expectKind({ database, dataDir }: StorePlace): Promise<void> {
  const { directoryFailure, findDatabase } = await import("./sqlite/directory.ts");
  const remembered = readPlace(dataDir, directoryFailure);
  if (database === null && remembered !== undefined) {
    const rest =
      findDatabase(dataDir) === undefined
        ? `To use SQLite there instead, delete the file ${join(dataDir, PLACE_FILE)}.`
        : "Its SQLite store was copied there: if both are used, the same credits are spent twice.";
    throw new OperatorError(
      `The data directory ${dataDir} belongs to services on ${remembered}, but no database is configured. Set DATABASE_URL, or ${REMEDY}. ${rest}`,
    );
  }
  if (database !== null && remembered === undefined && findDatabase(dataDir) !== undefined) {
    const place = await describePlace({ database, dataDir });
    throw new OperatorError(
      `The data directory ${dataDir} contains a SQLite store, but ${place} is configured. Unset DATABASE_URL, or ${REMEDY}. To move the store to PostgreSQL, run tollgate store copy.`,
    );
  }
}

/** Makes PostgreSQL the kind of a data directory, which is created if it does not exist. Rejects with OperatorError. */
export async function rememberPlace(place: StorePlace): Promise<void> {
  if (place.database === null) return;
  const { createDataDirectory, directoryFailure } = await import("./sqlite/directory.ts");
  const text = await describePlace(place);
  if (readPlace(place.dataDir, directoryFailure) === text) return;
  createDataDirectory(place.dataDir);
  try {
    writeFileSync(join(place.dataDir, PLACE_FILE), `${text}\n`, { mode: 0o600 });
  } catch (error) {
    throw directoryFailure(place.dataDir, error);
  }
}

function readPlace(dataDir: string, failure: (dataDir: string, error: unknown) => Error): string | undefined {
  try {
    // A full disk can leave the file empty.
    return readFileSync(join(dataDir, PLACE_FILE), "utf8").trim() || "PostgreSQL";
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException;
    if (code === "ENOENT" || code === "ENOTDIR") return undefined;
    throw failure(dataDir, error);
  }
}
