import { type Dialect, PostgresAdapter, PostgresIntrospector, PostgresQueryCompiler } from "kysely";
import type pg from "pg";
import { StatementDriver } from "../statement-driver.ts";
import { query } from "./transact.ts";

/** Kysely over a pool: each statement on any of its connections, failing as the seam promises. */
export function poolDialect(pool: pg.Pool): Dialect {
  return {
    createAdapter: () => new PostgresAdapter(),
    createDriver: () =>
      new StatementDriver(async ({ sql: text, parameters, query: { kind } }) => {
        const isRepeatable = kind === "SelectQueryNode";
        const { rows, rowCount } = await query(pool, { text, values: [...parameters], isRepeatable });
        return { rows, changed: rowCount ?? 0 };
      }),
    createIntrospector: (kysely) => new PostgresIntrospector(kysely),
    createQueryCompiler: () => new PostgresQueryCompiler(),
  };
}
