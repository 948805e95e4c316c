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

/** Opens the store that is configured; the other one is not even loaded. Rejects with OperatorError when it cannot be used. */
export async function openStore({ database, dataDir, role, clock }: OpenStoreOptions): Promise<Store> {
  if (database !== null) {
    const { openPostgresStore } = await import("./postgres/postgres.ts");
    return openPostgresStore({ url: database, role });
  }
  const { openSqliteStore } = await import("./sqlite/sqlite.ts");
  return openSqliteStore({ dataDir, role, clock });
}
