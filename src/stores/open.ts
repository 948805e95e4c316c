import { openPostgresStore } from "./postgres/postgres.ts";
import { openSqliteStore } from "./sqlite/sqlite.ts";
import type { Store } from "./store.ts";

export interface OpenStoreOptions {
  /** A PostgreSQL address; null: SQLite in `dataDir`. */
  database: string | null;
  dataDir: string;
  /** There is one service on a data directory at a time; commands work beside it. */
  role: "service" | "command";
  /** Milliseconds since 1970. */
  clock: () => number;
}

/** Opens the store that is configured. Rejects with OperatorError when it cannot be used. */
export async function openStore({ database, role, ...embedded }: OpenStoreOptions): Promise<Store> {
  if (database !== null) return openPostgresStore({ url: database, role });
  return openSqliteStore({ role, ...embedded });
}
