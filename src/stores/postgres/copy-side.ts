import pg from "pg";
import { idAt } from "../../credits/request-id.ts";
import { OperatorError } from "../../errors.ts";
import type { CopySide } from "../driver.ts";
import type { Cell } from "../fields.ts";
import { raw, sql } from "../sql.ts";
import { connectFailure, openingFailure, sqlStateOf, statementFailure } from "./failure.ts";
import { LOCK_REQUESTS, partitionOf } from "./partitions.ts";
import { placeOf, types } from "./pools.ts";
import { openPostgresDriver, toQuery } from "./postgres.ts";

const CONNECT_TIMEOUT_MS = 5_000;
/** The database may have limits that suit a service. */
const NO_TIME_LIMITS = "SET statement_timeout = 0; SET lock_timeout = 0; SET idle_in_transaction_session_timeout = 0";
const MONTHS_MAX = 600;
/** SQLSTATE of a partition whose rows are in the default partition. */
const CHECK_VIOLATION = "23514";
/** Exists while a copy into the database is incomplete: a row for each table that was copied while a service was running. */
const MARK_INCOMPLETE = sql`
  CREATE TABLE IF NOT EXISTS incomplete_copy (name text PRIMARY KEY, copied_at bigint NOT NULL)`;
const OCCUPIED = sql`
  SELECT 1 WHERE to_regclass('incomplete_copy') IS NULL
    AND (EXISTS (SELECT 1 FROM organization WHERE id <> 'org_playground') OR EXISTS (SELECT 1 FROM operator))`;

/** Opens a database to read it as one side of a copy, without time limits. Rejects with OperatorError if it cannot be used. */
export function openPostgresSide(url: string): Promise<CopySide> {
  return connect(url, "default_transaction_read_only=on");
}

/** Prepares an empty database, or one with an incomplete copy, so that no service starts on it. Rejects with OperatorError. */
export async function openPostgresDestination(url: string): Promise<CopySide> {
  const driver = await openPostgresDriver({ url, role: "command", isCopyTarget: true });
  await driver.close();
  const side = await connect(url, "synchronous_commit=off");
  try {
    const occupied = await side.run(OCCUPIED);
    if (occupied.length > 0)
      throw new OperatorError(`The database at ${placeOf(url)} contains a store; name an empty database.`);
    await side.run(MARK_INCOMPLETE);
    return side;
  } catch (error) {
    await side[Symbol.asyncDispose]();
    throw openingFailure(placeOf(url), error);
  }
}

/** Creates the missing partitions of the months between two times, at most those of 50 years. */
export async function makePartitionsBetween(side: CopySide, fromMs: number, toMs: number): Promise<void> {
  for (let ahead = 0; ahead < MONTHS_MAX; ahead += 1) {
    const { name, ...month } = partitionOf(new Date(fromMs), ahead);
    if (month.fromMs > toMs) return;
    const [from, to] = [idAt(month.fromMs), idAt(month.toMs)];
    const text = `CREATE TABLE IF NOT EXISTS ${name} PARTITION OF request FOR VALUES FROM ('${from}') TO ('${to}')`;
    await side.run(raw(text)).catch((error: unknown) => {
      // Requests of the month that were copied earlier stay in the default partition.
      if (sqlStateOf(error) !== CHECK_VIOLATION) throw error;
    });
  }
}

async function connect(url: string, setting: string): Promise<CopySide> {
  const place = placeOf(url);
  const client = new pg.Client({
    connectionString: url,
    types,
    application_name: "tollgate copy",
    keepAlive: true,
    connectionTimeoutMillis: CONNECT_TIMEOUT_MS,
  });
  // A connection that breaks makes its query reject.
  client.on("error", () => {});
  try {
    await client.connect();
    await client.query(`${NO_TIME_LIMITS}; SET ${setting}`);
  } catch (error) {
    await client.end().catch(() => {});
    throw openingFailure(place, connectFailure(error));
  }
  const run: CopySide["run"] = async (statement) => {
    const answer = client.query<Cell[]>({ ...toQuery(statement), rowMode: "array" });
    const { rows } = await answer.catch((error: unknown) => {
      throw statementFailure(error, undefined);
    });
    return rows;
  };
  return {
    beginSnapshot: async () => {
      await run(raw("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"));
      await run(raw(LOCK_REQUESTS));
    },
    run,
    [Symbol.asyncDispose]: () => client.end(),
  };
}
