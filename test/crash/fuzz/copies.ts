import { mkdir } from "node:fs/promises";
import { join } from "node:path";
import { runTollgate } from "../../support/command-line.ts";
import { makePostgresServer, NoPostgresError } from "../../support/postgres-server.ts";
import { createDatabase } from "../stores.ts";
import { type FuzzBooks, readFuzzBooks } from "./books.ts";
import { bookFaults, differences } from "./judge-books.ts";
import type { Nodes } from "./nodes.ts";

/** A copy that was made while requests ran. */
export interface MadeCopy {
  books: FuzzBooks;
  faults: string[];
  /** True if it was also copied to PostgreSQL. */
  isTransferred: boolean;
}

/** Backs up while the services run, restores elsewhere and verifies it there; from SQLite also as PostgreSQL. */
export async function copyStore(nodes: Nodes, directory: string, name: string): Promise<MadeCopy> {
  const file = join(directory, `${name}.db`);
  await nodes.first.tollgate("store", "backup", file);
  const dataDir = join(directory, name);
  await mkdir(dataDir, { mode: 0o700 });
  const server = nodes.store === "postgres" ? nodes.place : undefined;
  const url = await createDatabase(server, name);
  const environment: Record<string, string> = url === undefined ? {} : { DATABASE_URL: url };
  await run(dataDir, environment, "store", "restore", file);
  await run(dataDir, environment, "ledger", "verify");
  const books = await readFuzzBooks(url ?? join(dataDir, "tollgate.db"));
  const faults = bookFaults(books).map((fault) => `copy: ${fault}`);
  if (url !== undefined) return { books, faults, isTransferred: false };
  const transferred = await transfer(dataDir, name);
  return {
    books,
    isTransferred: transferred !== undefined,
    faults: [...faults, ...(transferred ? differences(books, transferred) : [])],
  };
}

/** Copies a SQLite store to PostgreSQL, and returns what is there; undefined without a PostgreSQL. */
async function transfer(dataDir: string, name: string): Promise<FuzzBooks | undefined> {
  try {
    const server = await makePostgresServer();
    try {
      const url = await createDatabase(server.url, name);
      await run(dataDir, {}, "store", "copy", "--to", url ?? "");
      return await readFuzzBooks(url ?? "");
    } finally {
      await server.remove();
    }
  } catch (error) {
    if (error instanceof NoPostgresError) return undefined;
    throw error;
  }
}

async function run(dataDir: string, environment: Record<string, string>, ...words: string[]): Promise<void> {
  const { code, stdout, stderr } = await runTollgate([...words, "--data-dir", dataDir], dataDir, environment);
  if (code !== 0) throw new Error(`tollgate ${words.join(" ")} ended with ${code}: ${stdout}${stderr}`);
}
