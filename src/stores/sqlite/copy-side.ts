import { DatabaseSync, type SQLInputValue } from "node:sqlite";
import { SqliteAdapter, SqliteIntrospector, SqliteQueryCompiler } from "kysely";
import type { CopySide } from "../copy.ts";
import type { Cell } from "../fields.ts";
import type { TableShape } from "../table.ts";
import { asStoreError } from "./connection.ts";

const BUSY_TIMEOUT_MS = 5_000;

/**
 * Opens the file of a database as one side of a copy, on a connection of its own. Blocks the process while it works: nothing
 * else runs in a command that copies. Rejects with StoreUnavailableError for failures of the file or its disk.
 */
export function openSqliteSide(databasePath: string, use: "read" | "write"): CopySide {
  const guard = <T>(work: () => T): T => {
    try {
      return work();
    } catch (error) {
      throw asStoreError(databasePath, error);
    }
  };
  const options = { readOnly: use === "read", timeout: BUSY_TIMEOUT_MS, readBigInts: true };
  const database = guard(() => new DatabaseSync(databasePath, options));
  return {
    dialect: {
      createAdapter: () => new SqliteAdapter(),
      createIntrospector: (kysely) => new SqliteIntrospector(kysely),
      createQueryCompiler: () => new SqliteQueryCompiler(),
    },
    beginSnapshot: async () => {
      guard(() => {
        database.exec("BEGIN");
        // The snapshot is that of the first read.
        database.prepare("SELECT count(*) FROM schema_migration").get();
      });
    },
    read: async ({ sql, parameters }) =>
      guard(() => {
        const statement = database.prepare(sql);
        statement.setReturnArrays(true);
        return statement.all(...(parameters as SQLInputValue[])) as unknown as Cell[][];
      }),
    run: async ({ sql, parameters }) => {
      guard(() => database.prepare(sql).run(...(parameters as SQLInputValue[])));
    },
    insert: async (table, rows) => guard(() => insertRows(database, table, rows)),
    close: async () => database.close(),
  };
}

function insertRows(database: DatabaseSync, { name, columns }: TableShape, rows: readonly Cell[][]): void {
  const values = columns.map(() => "?").join(", ");
  const insertion = database.prepare(
    `INSERT INTO ${name} (${columns.join(", ")}) VALUES (${values}) ON CONFLICT DO NOTHING`,
  );
  database.exec("BEGIN IMMEDIATE");
  try {
    for (const row of rows) insertion.run(...row);
    database.exec("COMMIT");
  } catch (error) {
    if (database.isTransaction) database.exec("ROLLBACK");
    throw error;
  }
}
