import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { openPostgresStore } from "../../src/stores/postgres/postgres.ts";
import { openSqliteStore } from "../../src/stores/sqlite/sqlite.ts";
import type { Store } from "../../src/stores/store.ts";
import { createTestDatabase, hasPostgres } from "./postgres.ts";

/** A store of a test. */
export interface Opened {
  store: Store;
  /** The same store as another node uses it. */
  other: Store;
  close(): Promise<void>;
}

async function openSqlite(): Promise<Opened> {
  const dataDir = await mkdtemp(join(tmpdir(), "tollgate-payments-"));
  const store = await openSqliteStore({ dataDir, role: "service" });
  const close = async () => {
    await store.close();
    await rm(dataDir, { recursive: true });
  };
  // One service owns a file.
  return { store, other: store, close };
}

async function openPostgres(): Promise<Opened> {
  const database = await createTestDatabase();
  const [store, other] = [await open(database.url), await open(database.url)];
  const close = async () => {
    await Promise.all([store.close(), other.close()]);
    await database.drop();
  };
  return { store, other, close };
}

const open = (url: string) => openPostgresStore({ url, role: "service" });

/** The kinds of stores, for tests that run on each. */
export const STORES = [
  { kind: "SQLite", open: openSqlite, skip: false },
  { kind: "PostgreSQL", open: openPostgres, skip: !hasPostgres },
] as const;
