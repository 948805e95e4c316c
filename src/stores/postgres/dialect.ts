import { type Dialect, PostgresAdapter, PostgresIntrospector, PostgresQueryCompiler } from "kysely";
import type pg from "pg";
import { StatementDriver } from "../statement-driver.ts";
import { toStoreError } from "./failure.ts";

/** Kysely over a pool: each statement on any of its connections, failing as the seam promises. */
export function poolDialect(pool: pg.Pool): Dialect {
  return {
    createAdapter: () => new PostgresAdapter(),
    createDriver: () =>
      new StatementDriver(async ({ sql, parameters }) => {
        try {
          const { rows, rowCount } = await pool.query(sql, [...parameters]);
          return { rows, changed: rowCount ?? 0 };
        } catch (error) {
          throw toStoreError(error);
        }
      }),
    createIntrospector: (kysely) => new PostgresIntrospector(kysely),
    createQueryCompiler: () => new PostgresQueryCompiler(),
  };
}
