import pg from "pg";
import { OperatorError, StoreUnavailableError } from "../../errors.ts";
import { StoreAbsentError } from "../driver.ts";

/**
 * `conflict`: the server rolled back the transaction, which may succeed if it is run again. `lost`: the connection broke
 * before the answer. `locked`: another transaction held a row for longer than the lock timeout. `unavailable`: the server
 * is full, too slow or unreachable, and an immediate retry would not help.
 */
export type FailureKind = "conflict" | "lost" | "locked" | "unavailable";

/** An unavailable store, with the kind of failure that decides about a retry. */
export class PostgresFailure extends StoreUnavailableError {
  readonly kind: FailureKind;

  constructor(kind: FailureKind, cause: unknown) {
    super(`PostgreSQL is unavailable: ${reasonOf(cause)}`, { cause });
    this.kind = kind;
  }
}

/** Returns the SQLSTATE of an error from the server; empty for any other error. */
export function sqlStateOf(error: unknown): string {
  return error instanceof pg.DatabaseError ? (error.code ?? "") : "";
}

/** Serialization failure, deadlock. */
const CONFLICT = /^(40001|40P01)$/;
/** Connection exceptions, and a server that stops, starts, ends the session or is read-only: after a failover, another is not. */
const LOST = /^(08...|57P0.|25P03|25P04|25006)$/;
/** Insufficient resources, timeouts, system errors, corruption. */
const UNAVAILABLE = /^(53...|57...|58...|XX...)$/;
export const LOCK_NOT_AVAILABLE = "55P03";
/** node-postgres has no code for this error. */
const READ_TIMEOUT = "Query read timeout";

/** Returns the PostgresFailure for an error of a statement, or of its connection (`lostBy`); a defect is returned unchanged. */
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

/** Errors of Node's sockets when no server is listening, for example during a restart. */
const NO_SERVER = new Set(["ECONNREFUSED", "ECONNRESET", "EPIPE"]);

/** Returns the failure of a connection attempt. None of them, not even a changed password, is a defect of the caller. */
export function connectFailure(error: unknown): PostgresFailure {
  const code = (error as { code?: unknown } | null)?.code;
  const isPassing = (typeof code === "string" && NO_SERVER.has(code)) || LOST.test(sqlStateOf(error));
  return new PostgresFailure(isPassing ? "lost" : "unavailable", error);
}

/** A working server's answers to a wrong configuration: no access, no such database or table, a refused statement. */
const MISTAKE = /^(28...|3D...|42...|0A...|22...|25006)$/;

/** Returns the error in one line for the operator: StoreAbsentError if waiting may help. A defect is returned unchanged. */
export function openingFailure(place: string, error: unknown): unknown {
  if (error instanceof OperatorError) return error;
  if (!(error instanceof StoreUnavailableError) && sqlStateOf(error) === "") return error;
  const cause = error instanceof PostgresFailure ? error.cause : error;
  const text = `The database at ${place} cannot be used: ${reasonOf(cause)}`;
  const isPassing = error instanceof PostgresFailure && !MISTAKE.test(sqlStateOf(cause));
  return isPassing ? new StoreAbsentError(text, { cause: error }) : new OperatorError(text, { cause: error });
}

function reasonOf(error: unknown): string {
  // A host name with several addresses fails with one error per address and no message of its own.
  if (error instanceof AggregateError) return reasonOf(error.errors[0]);
  return (error instanceof Error ? error.message : String(error)).replaceAll(/\s+/g, " ");
}
