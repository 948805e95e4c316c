import type { Outcome } from "../../credits/books.ts";
import { OperatorError, StoreUnavailableError } from "../../errors.ts";
import type { Durability } from "../driver.ts";
import type { PackedTransition } from "./packed-transitions.ts";

/** One SQL statement. Requests to a worker are one message each, answered in order. */
export interface Statement {
  sql: string;
  parameters: readonly unknown[];
}

export interface StatementResult {
  rows: Record<string, unknown>[];
  changed: number;
}

/** Result of `PRAGMA wal_checkpoint`: the pages in the log, and how many of them are already in the database. */
export interface CheckpointResult {
  logPages: number;
  checkpointedPages: number;
}

interface Requests {
  /** Opens the database, and migrates its schema if `creates`; otherwise refuses one that is not current. */
  open: { request: { creates: boolean }; result: null };
  apply: { request: { durability: Durability; nowMs: number; transitions: PackedTransition[] }; result: Outcome[] };
  run: { request: { statement: Statement }; result: StatementResult };
  write: { request: { required: Statement[]; rest: Statement[]; isDurable: boolean }; result: number[] | undefined };
  snapshot: { request: { statements: Statement[] }; result: Record<string, unknown>[][] };
  checkpoint: { request: { mode: "PASSIVE" | "TRUNCATE" }; result: CheckpointResult };
  /** Extends the log to its size under load. */
  lengthen: { request: object; result: null };
  close: { request: object; result: null };
}

export type RequestKind = keyof Requests;
export type RequestOf<Kind extends RequestKind> = { kind: Kind } & Requests[Kind]["request"];
export type Request = { [Kind in RequestKind]: RequestOf<Kind> }[RequestKind];
export type ResultOf<Kind extends RequestKind> = Requests[Kind]["result"];

export interface WorkerOptions {
  databasePath: string;
  busyTimeoutMs: number;
}

export interface WorkerRequest {
  id: number;
  request: Request;
}

export type WorkerReply = { id: number; result: ResultOf<RequestKind> } | { id: number; error: WorkerError };

/** An error between threads, where classes are lost. */
export interface WorkerError {
  kind: "unavailable" | "operator" | "defect";
  message: string;
  stack: string | undefined;
}

export function toWorkerError(error: unknown): WorkerError {
  if (!(error instanceof Error)) return { kind: "defect", message: String(error), stack: undefined };
  const { message, stack } = error;
  if (error instanceof StoreUnavailableError) return { kind: "unavailable", message, stack };
  if (error instanceof OperatorError) return { kind: "operator", message, stack };
  return { kind: "defect", message, stack };
}

export function fromWorkerError({ kind, message, stack }: WorkerError): Error {
  if (kind === "operator") return new OperatorError(message);
  const error = kind === "unavailable" ? new StoreUnavailableError(message) : new Error(message);
  if (stack !== undefined) error.stack = stack;
  return error;
}
