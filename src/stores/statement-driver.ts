import type { CompiledQuery, DatabaseConnection, Driver, QueryResult } from "kysely";

/** Runs one statement; gives its rows and the number of rows that it changed. */
export type RunStatement = (query: CompiledQuery) => Promise<{ rows: unknown[]; changed: number }>;

/**
 * Kysely's driver for single statements only: between two of them the connection serves others, so transactions go through
 * PortableDatabase instead.
 */
export class StatementDriver implements Driver {
  readonly #connection: DatabaseConnection;

  constructor(run: RunStatement) {
    this.#connection = {
      async executeQuery<Row>(query: CompiledQuery): Promise<QueryResult<Row>> {
        const { rows, changed } = await run(query);
        return { rows: rows as Row[], numAffectedRows: BigInt(changed) };
      },
      streamQuery: () => refuse("streams"),
    };
  }

  async init(): Promise<void> {}
  async acquireConnection(): Promise<DatabaseConnection> {
    return this.#connection;
  }
  async releaseConnection(): Promise<void> {}
  async destroy(): Promise<void> {}
  async beginTransaction(): Promise<void> {
    refuse("transactions");
  }
  async commitTransaction(): Promise<void> {
    refuse("transactions");
  }
  async rollbackTransaction(): Promise<void> {
    refuse("transactions");
  }
}

function refuse(what: string): never {
  throw new Error(`The store takes no ${what} of Kysely; see PortableDatabase.`);
}
