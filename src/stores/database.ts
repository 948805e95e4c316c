import { type CompiledQuery, type DatabaseConnection, type Driver, Kysely, type QueryResult } from "kysely";
import type { SqlDialect, StatementBatch, StoreDriver } from "./driver.ts";
import type { Tables } from "./schema.ts";

/** The database as the queries use it. */
export interface Database
  extends Pick<SqlDialect, "now" | "sharedLock" | "idsWithin" | "idAt">,
    Pick<StoreDriver, "snapshot"> {
  /** Builds queries, and runs single statements. */
  readonly kysely: Kysely<Tables>;
  /** Runs writes in one transaction, in their order; returns the number of rows that each changed. Durable by default. */
  write(
    queries: readonly CompiledQuery[],
    options?: Partial<Pick<StatementBatch, "isDurable" | "isDroppable">>,
  ): Promise<number[]>;
  /**
   * Runs writes in one durable transaction if each of the `required` ones changes a row; otherwise undoes all of them.
   * Returns whether they were written.
   */
  writeIf(required: readonly CompiledQuery[], rest: readonly CompiledQuery[]): Promise<boolean>;
}

/** Position and length of a page of rows, in the order of their ids. */
export interface IdPage {
  /** Id of the last row seen. */
  after: string | null;
  limit: number;
}

/** Builds the queries' view of a database over its driver. */
export function databaseOver(driver: StoreDriver): Database {
  const { now, sharedLock, idsWithin, idAt, ...dialect } = driver.dialect;
  return {
    kysely: new Kysely<Tables>({ dialect: { ...dialect, createDriver: () => new StatementDriver(driver) } }),
    now,
    sharedLock,
    idsWithin,
    idAt,
    async write(queries, { isDurable = true, isDroppable = false } = {}) {
      const results = await driver.run({ required: [], rest: queries, isDurable, isDroppable });
      return results?.map(({ changed }) => changed) ?? [];
    },
    async writeIf(required, rest) {
      return (await driver.run({ required, rest, isDurable: true, isDroppable: false })) !== undefined;
    },
    snapshot: (queries) => driver.snapshot(queries),
  };
}

/** Runs one read in a snapshot, without waiting for writes. Fails as `StoreDriver` says. */
export async function read<Row>(
  { snapshot, kysely }: Database,
  query: { compile(kysely: Database["kysely"]): CompiledQuery },
): Promise<Row[]> {
  const [rows] = await snapshot([query.compile(kysely)]);
  return (rows ?? []) as Row[];
}

/** Runs reads in one snapshot, as `read` does. */
export function readTogether(
  { snapshot, kysely }: Database,
  queries: readonly { compile(kysely: Database["kysely"]): CompiledQuery }[],
): Promise<Record<string, unknown>[][]> {
  return snapshot(queries.map((query) => query.compile(kysely)));
}

/**
 * Kysely's driver for single statements only: between two of them the connection serves others, so transactions go through
 * `Database.write`.
 */
class StatementDriver implements Driver {
  readonly #connection: DatabaseConnection;

  constructor(driver: StoreDriver) {
    this.#connection = {
      async executeQuery<Row>(query: CompiledQuery): Promise<QueryResult<Row>> {
        const results = await driver.run({ required: [], rest: [query], isDurable: true, isDroppable: false });
        const { rows = [], changed = 0 } = results?.[0] ?? {};
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

function refuse(feature: string): never {
  throw new Error(`The store does not support ${feature} of Kysely; use Database.write.`);
}
