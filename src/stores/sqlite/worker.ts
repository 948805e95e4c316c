import { parentPort, workerData } from "node:worker_threads";
import type { Transition } from "../../credits/books.ts";
import { decide } from "../../credits/decide.ts";
import type { Outcome } from "../../credits/outcomes.ts";
import { OperatorError } from "../../errors.ts";
import { BudgetCache } from "../budget-cache.ts";
import { UnmetRequirement } from "../driver.ts";
import type { SchemaVersions } from "../migrations.ts";
import type { Statement } from "../sql.ts";
import { readRows, writeRows } from "./book-rows.ts";
import { Connection, type ConnectionOptions, lengthenLog, unavailableReason } from "./connection.ts";
import { writeRefusal } from "./directory.ts";
import { expectSchema, migrate, sqliteMigrations } from "./migrate.ts";

/** The functions that the main thread calls. Each call is one message, and calls are answered in order. */
export type Calls = typeof CALLS;
export type ThreadFunction = keyof Calls;

export interface WorkerCall {
  name: ThreadFunction;
  parameters: unknown[];
}

export type WorkerReply = { result: unknown } | { error: WorkerError };

/** An error as it is sent between threads, which lose its class; `name` is that of the class. */
export type WorkerError = Pick<Error, "name" | "message" | "stack">;

/** A thread with one connection to the database, so that waiting for the disk does not block the event loop. */
const options = workerData as ConnectionOptions;
const connection = new Connection(options);
const budgets = new BudgetCache();

const CALLS = {
  /** Opens the database, and migrates its schema if `creates`. At the start, a file that cannot be used is an OperatorError. */
  open(creates: boolean): SchemaVersions {
    try {
      const migrations = sqliteMigrations();
      if (creates) return migrate(connection, options.databasePath, migrations, Date.now());
      return expectSchema(connection, options.databasePath, migrations);
    } catch (error) {
      const reason = unavailableReason(error) ?? unavailableReason((error as Error).cause);
      if (reason === undefined) throw error;
      const { databasePath } = options;
      throw new OperatorError(`Cannot use the database ${databasePath}: ${writeRefusal(databasePath) ?? reason}.`, {
        cause: error,
      });
    }
  },
  /** Applies a batch. BEGIN IMMEDIATE locks all balances, so everything is read after it. */
  apply(nowMs: number, transitions: Transition[], isDurable: boolean): Outcome[] {
    return connection.transaction("BEGIN IMMEDIATE", isDurable, () => {
      const rows = readRows(connection, budgets, transitions, nowMs);
      const { outcomes, writes } = decide(rows, transitions);
      writeRows(connection, writes);
      return outcomes;
    });
  },
  /** Runs statements as `StoreDriver.run` says. */
  run(required: Statement[], rest: Statement[], isDurable: boolean): number[] | undefined {
    try {
      return connection.transaction("BEGIN IMMEDIATE", isDurable, () => {
        const first = required.map((statement) => {
          const changed = connection.change(statement);
          if (changed === 0) throw new UnmetRequirement();
          return changed;
        });
        return [...first, ...rest.map((statement) => connection.change(statement))];
      });
    } catch (error) {
      if (error instanceof UnmetRequirement) return undefined;
      throw error;
    }
  },
  find: (statement: Statement) => connection.read(statement),
  snapshot(statements: Statement[]): Record<string, unknown>[][] {
    return connection.transaction("BEGIN", false, () => statements.map((statement) => connection.read(statement)));
  },
  checkpoint: (mode: "PASSIVE" | "TRUNCATE") => connection.checkpoint(mode),
  lengthen(): void {
    connection.transaction("BEGIN IMMEDIATE", false, () => lengthenLog(options.databasePath));
  },
  close: () => connection.close(),
};

function answer({ name, parameters }: WorkerCall): WorkerReply {
  try {
    return { result: (CALLS[name] as (...parameters: unknown[]) => unknown)(...parameters) };
  } catch (error) {
    const { name, message, stack } = error instanceof Error ? error : new Error(String(error));
    return { error: { name, message, ...(stack !== undefined && { stack }) } };
  }
}

parentPort?.on("message", (call: WorkerCall) => parentPort?.postMessage(answer(call)));
