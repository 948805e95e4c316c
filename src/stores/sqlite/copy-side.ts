import { DatabaseSync, type StatementSync } from "node:sqlite";
import type { CopySide } from "../driver.ts";
import type { Cell } from "../fields.ts";
import { asStoreError } from "./connection.ts";
import { toStatement } from "./sqlite.ts";

const BUSY_TIMEOUT_MS = 5_000;

/** Opens a file as one side of a copy. Blocks the process, which does nothing else. Rejects with StoreUnavailableError. */
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
    statement.setReturnArrays(true);
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
    run: async (statement) => {
      const { sql, parameters } = toStatement(statement);
      return guard(() => prepare(sql).all(...parameters) as unknown as Cell[][]);
    },
    [Symbol.asyncDispose]: async () => database.close(),
  };
}
