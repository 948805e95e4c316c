import { type CompiledQuery, type Dialect, SqliteAdapter, SqliteIntrospector, SqliteQueryCompiler } from "kysely";
import { StatementDriver } from "../statement-driver.ts";
import type { WorkerLink } from "./link.ts";
import type { Statement } from "./messages.ts";

export function toStatement({ sql, parameters }: CompiledQuery): Statement {
  return { sql, parameters };
}

/** Kysely over a worker. */
export function workerDialect(link: WorkerLink): Dialect {
  return {
    createAdapter: () => new SqliteAdapter(),
    createDriver: () => new StatementDriver((query) => link.request({ kind: "run", statement: toStatement(query) })),
    createIntrospector: (kysely) => new SqliteIntrospector(kysely),
    createQueryCompiler: () => new SqliteQueryCompiler(),
  };
}
