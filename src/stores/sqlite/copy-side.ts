import { DatabaseSync, type StatementSync } from "node:sqlite";
import type { CopySide } from "../copy.ts";
import type { Cell } from "../fields.ts";
import type { TableShape } from "../table.ts";
import { asStoreError } from "./connection.ts";
import { toStatement } from "./sqlite.ts";

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
  const statements = new Map<string, StatementSync>();
  // Statements that are prepared for each page would fill the memory until they are collected.
  const prepare = (sql: string) => {
    const statement = statements.get(sql) ?? database.prepare(sql);
    statements.set(sql, statement);
    return statement;
  };
  return {
    beginSnapshot: async () => {
      guard(() => {
        database.exec("BEGIN");
        // The snapshot is that of the first read.
        database.prepare("SELECT count(*) FROM schema_migration").get();
      });
    },
    read: async (query) =>
      guard(() => {
        const { sql, parameters } = toStatement(query);
        const statement = prepare(sql);
        statement.setReturnArrays(true);
        return statement.all(...parameters) as unknown as Cell[][];
      }),
    run: async (query) => {
      const { sql, parameters } = toStatement(query);
      guard(() => prepare(sql).run(...parameters));
    },
    insert: async (table, rows) => guard(() => insertRows(database, prepare(insertion(table)), rows)),
    close: async () => database.close(),
  };
}

function insertion({ name, columns }: TableShape): string {
  const values = columns.map(() => "?").join(", ");
  return `INSERT INTO ${name} (${columns.join(", ")}) VALUES (${values}) ON CONFLICT DO NOTHING`;
}

function insertRows(database: DatabaseSync, statement: StatementSync, rows: readonly Cell[][]): void {
  database.exec("BEGIN IMMEDIATE");
  try {
    for (const row of rows) statement.run(...row);
    database.exec("COMMIT");
  } catch (error) {
    if (database.isTransaction) database.exec("ROLLBACK");
    throw error;
  }
}
