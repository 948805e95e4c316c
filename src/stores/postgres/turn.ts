import type pg from "pg";
import { OperatorError } from "../../errors.ts";
import { LOCK_NOT_AVAILABLE, sqlStateOf } from "./failure.ts";
import { transact } from "./transact.ts";

const TURN_MS = 60_000;
/** Of no row and no table: it needs no right, and ends with the connection of a process that dies. */
const TAKE_TURN = "SELECT pg_advisory_xact_lock(hashtextextended('tollgate.turn', 0))";

/**
 * Does work while no other process does any in its turn. A turn lasts for `longestMs` at the most, and so does the wait
 * for one: then this rejects with OperatorError.
 */
export async function inTurn<T>(pool: pg.Pool, work: () => Promise<T>, longestMs = TURN_MS): Promise<T> {
  let done: { result: T } | undefined;
  const takeTurn: pg.QueryConfig & { query_timeout: number } = { text: TAKE_TURN, query_timeout: 2 * longestMs };
  try {
    await transact(pool, { kind: "booking", isRepeatable: false }, async (transaction) => {
      await transaction.query(`SET LOCAL lock_timeout = ${longestMs}`);
      await transaction.query(`SET LOCAL statement_timeout = ${2 * longestMs}`);
      await transaction.query(`SET LOCAL idle_in_transaction_session_timeout = ${longestMs}`);
      await transaction.query(takeTurn);
      done ??= { result: await work() };
    });
  } catch (error) {
    // What was done is done: the turn itself has changed nothing that could be lost with its end.
    if (done === undefined) throw turnFailure(error);
  }
  if (done === undefined) throw new Error("a turn has ended without its work");
  return done.result;
}

function turnFailure(error: unknown): unknown {
  const cause = error instanceof Error ? error.cause : undefined;
  if (sqlStateOf(cause) !== LOCK_NOT_AVAILABLE) return error;
  return new OperatorError("Another process has been in the middle of its first start for a minute; try again later.");
}
