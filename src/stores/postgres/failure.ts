import { OperatorError, StoreUnavailableError } from "../../errors.ts";

/** SQLSTATE of PostgreSQL, or a code of Node's sockets. */
export function codeOf(error: unknown): string {
  const code = (error as { code?: unknown } | null)?.code;
  return typeof code === "string" ? code : "";
}

/** The connection went away; node-postgres gives some of these errors no code. */
const LOST_WORDS = /Connection terminated|Client has encountered a connection error|timeout exceeded when trying/;
const SOCKET_CODE = /^E[A-Z_]+$/;

/** Classes of SQLSTATE that say that the server is not there, is full, or did not answer in time. */
const UNAVAILABLE = /^(08|53|57|58|55P03)/;

function isLost(error: unknown): boolean {
  const message = error instanceof Error ? error.message : "";
  const code = codeOf(error);
  return SOCKET_CODE.test(code) || code.startsWith("08") || /^57P0[123]$/.test(code) || LOST_WORDS.test(message);
}

/** Whether the same transaction may succeed when it is tried again: a serialization failure, a deadlock, a lost connection. */
export function isTransient(error: unknown): boolean {
  return ["40001", "40P01"].includes(codeOf(error)) || isLost(error);
}

/** An error of the driver as the seam promises it; what is a defect stays what it is. */
export function toStoreError(error: unknown): unknown {
  if (error instanceof StoreUnavailableError || error instanceof OperatorError) return error;
  if (!isTransient(error) && !UNAVAILABLE.test(codeOf(error)) && !/Query read timeout/.test(String(error)))
    return error;
  return new StoreUnavailableError(`PostgreSQL is unavailable (${codeOf(error) || "connection lost"})`, {
    cause: error,
  });
}
