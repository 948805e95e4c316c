import { type AwaitedStore, awaitStore, StoreAbsentError } from "./absent.ts";
import type { Store } from "./store.ts";

export interface OpenStoreOptions {
  /** A PostgreSQL address; null: SQLite in `dataDir`. */
  database: string | null;
  dataDir: string;
  /** There is one service on a data directory at a time; commands work beside it. */
  role: "service" | "command";
  /** Whether a store that is not there is created, and an older schema brought up to date. */
  creates: boolean;
  /** Milliseconds since 1970. */
  clock: () => number;
}

/** Opens the store that is configured; the other one is not even loaded. Rejects with OperatorError when it cannot be used. */
export async function openStore({ database, ...options }: OpenStoreOptions): Promise<Store> {
  if (database !== null) {
    const { openPostgresStore } = await import("./postgres/postgres.ts");
    return openPostgresStore({ url: database, ...options });
  }
  const { openSqliteStore } = await import("./sqlite/sqlite.ts");
  return openSqliteStore(options);
}

export interface ServiceStoreOptions extends Omit<OpenStoreOptions, "role" | "creates"> {
  /** How long a database that cannot be reached is waited for. */
  longestWaitMs: number;
  /** Told once why the store is waited for. */
  onAbsent(reason: StoreAbsentError): void;
}

/**
 * Opens the store of a service. A database that cannot be reached is waited for, with a stand-in that is unavailable:
 * `arrived` settles when it is there or given up. Rejects with OperatorError where the store cannot be used.
 */
export async function openServiceStore(options: ServiceStoreOptions): Promise<AwaitedStore> {
  const open = () => openStore({ ...options, role: "service", creates: true });
  try {
    return { store: await open(), arrived: Promise.resolve() };
  } catch (error) {
    if (!(error instanceof StoreAbsentError) || options.longestWaitMs === 0) throw error;
    options.onAbsent(error);
    return awaitStore({ kind: "postgres", open, longestMs: options.longestWaitMs });
  }
}
