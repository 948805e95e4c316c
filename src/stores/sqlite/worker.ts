import { type MessagePort, parentPort, receiveMessageOnPort, workerData } from "node:worker_threads";
import { decide } from "../../credits/decide.ts";
import type { Outcome } from "../../credits/outcomes.ts";
import { OperatorError } from "../../errors.ts";
import { readRows, writeRows } from "./book-rows.ts";
import { Connection, lengthenLog, unavailableReason } from "./connection.ts";
import {
  type Request,
  type RequestKind,
  type RequestOf,
  type ResultOf,
  type SentBatch,
  toWorkerError,
  type WorkerData,
  type WorkerReply,
  type WorkerRequest,
} from "./link.ts";
import { expectSchema, migrate, sqliteMigrations } from "./migrate.ts";

/** A thread with one connection to the database, so that waiting for the disk does not block the event loop. */
const options = workerData as WorkerData;
const connection = new Connection(options);

/** Answers requests for ever. To wake a thread that waits for a number takes less time than to wake its event loop. */
function listen(port: MessagePort): never {
  const { sentCount } = options;
  for (;;) {
    const seen = Atomics.load(sentCount, 0);
    for (let next = receiveMessageOnPort(port); next !== undefined; next = receiveMessageOnPort(port)) {
      const { id, request } = next.message as WorkerRequest;
      let reply: WorkerReply;
      try {
        reply = { id, result: answer(request) };
      } catch (error) {
        reply = { id, error: toWorkerError(error) };
      }
      port.postMessage(reply);
    }
    Atomics.wait(sentCount, 0, seen);
  }
}

function answer(request: Request): ResultOf<RequestKind> {
  switch (request.kind) {
    case "open":
      return open(request);
    case "apply":
      return apply(request);
    case "run":
      return connection.run(request.statement, true);
    case "write":
      return write(request);
    case "snapshot":
      return connection.transaction("BEGIN", false, () =>
        request.statements.map((statement) => connection.step(statement).rows),
      );
    case "checkpoint":
      return connection.checkpoint(request.mode);
    case "lengthen":
      connection.transaction("BEGIN IMMEDIATE", false, () => lengthenLog(options.databasePath));
      return null;
    case "close":
      connection.close();
      return null;
  }
}

/** Rolls back the transaction of a `write` of which a required statement changed no row. */
class UnmetRequirement extends Error {}

function write({ required, rest, isDurable }: RequestOf<"write">): ResultOf<"write"> {
  try {
    return connection.transaction("BEGIN IMMEDIATE", isDurable, () => {
      const first = required.map((statement) => {
        const { changed } = connection.step(statement);
        if (changed === 0) throw new UnmetRequirement();
        return changed;
      });
      return [...first, ...rest.map((statement) => connection.step(statement).changed)];
    });
  } catch (error) {
    if (error instanceof UnmetRequirement) return undefined;
    throw error;
  }
}

/** At the start, a file that cannot be used is an OperatorError; later, the failure may be temporary. */
function open({ creates }: RequestOf<"open">): ResultOf<"open"> {
  try {
    const migrations = sqliteMigrations();
    if (creates) return migrate(connection, options.databasePath, migrations, Date.now());
    return expectSchema(connection, options.databasePath, migrations);
  } catch (error) {
    const reason = unavailableReason(error) ?? unavailableReason((error as Error).cause);
    if (reason === undefined) throw error;
    throw new OperatorError(`Cannot use the database ${options.databasePath}: ${reason}.`, { cause: error });
  }
}

/**
 * Applies batches. BEGIN IMMEDIATE locks all balances, so everything is read after it. Each batch reads what the ones
 * before it wrote: they may name the same hold.
 */
function apply({ nowMs, batches }: RequestOf<"apply">): ResultOf<"apply"> {
  const isDurable = batches.some((batch) => batch.isDurable);
  return connection.transaction("BEGIN IMMEDIATE", isDurable, () => batches.map((batch) => applyBatch(batch, nowMs)));
}

function applyBatch({ transitions }: SentBatch, nowMs: number): Outcome[] {
  const rows = readRows(connection, transitions, nowMs);
  const { outcomes, writes } = decide(rows, transitions);
  writeRows(connection, writes);
  return outcomes;
}

if (parentPort !== null) listen(parentPort);
