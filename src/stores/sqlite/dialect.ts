import {
  type CompiledQuery,
  type DatabaseConnection,
  type Dialect,
  type Driver,
  type QueryResult,
  SqliteAdapter,
  SqliteIntrospector,
  SqliteQueryCompiler,
} from "kysely";
import type { WorkerLink } from "./link.ts";
import type { Statement } from "./messages.ts";

export function toStatement({ sql, parameters }: CompiledQuery): Statement {
  return { sql, parameters };
}

/** Kysely over a worker: single statements only, for between two messages the connection serves others. */
export function workerDialect(link: WorkerLink): Dialect {
  return {
    createAdapter: () => new SqliteAdapter(),
    createDriver: () => new WorkerDriver(link),
    createIntrospector: (kysely) => new SqliteIntrospector(kysely),
    createQueryCompiler: () => new SqliteQueryCompiler(),
  };
}

class WorkerDriver implements Driver {
  readonly #connection: DatabaseConnection;

  constructor(link: WorkerLink) {
    this.#connection = {
      async executeQuery<Row>(query: CompiledQuery): Promise<QueryResult<Row>> {
        const { rows, changed } = await link.request({ kind: "run", statement: toStatement(query) });
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
  throw new Error(`The worker takes no ${what} of Kysely; see PortableDatabase.`);
}
