import pg from "pg";
import { OperatorError, StoreUnavailableError } from "../../errors.ts";
import { StoreAbsentError } from "../driver.ts";

/**
 * `conflict`: the server undid the transaction, which may succeed when it is run again. `lost`: the connection went away,
 * and with it the answer. `locked`: another transaction has kept a row for longer than a lock is waited for. `unavailable`:
 * the server is full, too slow or not to be had, and the next moment is no better.
 */
export type FailureKind = "conflict" | "lost" | "locked" | "unavailable";

/** What the seam calls an unavailable store, with what this folder has to know of it. */
export class PostgresFailure extends StoreUnavailableError {
  readonly kind: FailureKind;

  constructor(kind: FailureKind, cause: unknown) {
    super(`PostgreSQL is unavailable: ${reasonOf(cause)}`, { cause });
    this.kind = kind;
  }
}

/** SQLSTATE of an error that the server told; empty for any other. */
export function sqlStateOf(error: unknown): string {
  return error instanceof pg.DatabaseError ? (error.code ?? "") : "";
}

/** Serialization failure, deadlock. */
const CONFLICT = /^(40001|40P01)$/;
/**
 * Connection exceptions, a server that stops or starts, a session that it ended, and a server that may only be read: after a
 * failover, a new connection finds the one that may be written.
 */
const LOST = /^(08...|57P0.|25P03|25P04|25006)$/;
/** Out of resources, stopped by a timeout, errors of its system, damage. */
const UNAVAILABLE = /^(53...|57...|58...|XX...)$/;
/** SQLSTATE of a lock that was not granted within `lock_timeout`. */
export const LOCK_NOT_AVAILABLE = "55P03";
/** node-postgres has no code for it. */
const READ_TIMEOUT = "Query read timeout";

/**
 * An error of a statement as the seam promises it; what is a defect stays what it is. `lostBy` is what the connection
 * itself told, if it broke.
 */
export function statementFailure(error: unknown, lostBy: Error | undefined): unknown {
  if (lostBy !== undefined) return new PostgresFailure("lost", lostBy);
  const state = sqlStateOf(error);
  if (CONFLICT.test(state)) return new PostgresFailure("conflict", error);
  if (LOST.test(state)) return new PostgresFailure("lost", error);
  if (state === LOCK_NOT_AVAILABLE) return new PostgresFailure("locked", error);
  const isTooSlow = error instanceof Error && error.message === READ_TIMEOUT;
  if (isTooSlow || UNAVAILABLE.test(state)) return new PostgresFailure("unavailable", error);
  return error;
}

/** Of Node's sockets: what says at once that nobody is there, as while a server is started again. */
const NOBODY_THERE = new Set(["ECONNREFUSED", "ECONNRESET", "EPIPE"]);

/** Whatever keeps a connection from being made, a changed password too, it is never the fault of who asks for it. */
export function connectFailure(error: unknown): PostgresFailure {
  const code = (error as { code?: unknown } | null)?.code;
  const isPassing = (typeof code === "string" && NOBODY_THERE.has(code)) || LOST.test(sqlStateOf(error));
  return new PostgresFailure(isPassing ? "lost" : "unavailable", error);
}

/**
 * What a server that is there and whole tells of a mistake: who asks is not let in, there is no such database or table, a
 * statement is refused.
 */
const MISTAKE = /^(28...|3D...|42...|0A...|22...|25006)$/;

/**
 * A failure while the database is opened, in one line for the operator; what is a defect stays what it is.
 * StoreAbsentError where waiting may help.
 */
export function openingFailure(place: string, error: unknown): unknown {
  if (error instanceof OperatorError) return error;
  if (!(error instanceof StoreUnavailableError) && sqlStateOf(error) === "") return error;
  const cause = error instanceof PostgresFailure ? error.cause : error;
  const text = `The database at ${place} cannot be used: ${reasonOf(cause)}`;
  const isPassing = error instanceof PostgresFailure && !MISTAKE.test(sqlStateOf(cause));
  return isPassing ? new StoreAbsentError(text, { cause: error }) : new OperatorError(text, { cause: error });
}

function reasonOf(error: unknown): string {
  // A name with several addresses fails with one error for each, and no message of its own.
  if (error instanceof AggregateError) return reasonOf(error.errors[0]);
  return (error instanceof Error ? error.message : String(error)).replaceAll(/\s+/g, " ");
}
