import type { Transition } from "../credits/books.ts";
import type { Outcome } from "../credits/outcomes.ts";
import { OperatorError } from "../errors.ts";
import type { Cell } from "./fields.ts";
import type { Sql } from "./sql.ts";

/**
 * The seam to a database: everything that SQLite and PostgreSQL do differently. Every method rejects with
 * StoreUnavailableError if the database cannot be reached or does not answer in time; any other rejection is a defect.
 */
export interface StoreDriver {
  readonly kind: "sqlite" | "postgres";
  readonly dialect: SqlDialect;
  /**
   * Applies a batch in one transaction of four steps: lock the balances in the order of their ids; in a later
   * statement read holds and grants; decide (`credits/decide.ts`); write and commit. Outcomes come in the order of the
   * transitions. A batch names a hold id once. All of it is booked, or nothing. Rejects with OrganizationsLockedError if
   * other transactions have locked balances of the batch.
   */
  apply(durability: Durability, transitions: Transition[]): Promise<Outcome[]>;
  /**
   * Runs writes in one transaction, in their order. Returns the number of rows that each changed; undefined if a required
   * one changed no row, which undoes all of them.
   */
  run(statements: StatementBatch): Promise<number[] | undefined>;
  /** Runs one read, which sees all writes before it. Returns its rows. */
  find(query: Sql): Promise<Record<string, unknown>[]>;
  /** Runs reads in one short snapshot, concurrently with writes. Returns the rows of each. */
  snapshot(queries: readonly Sql[]): Promise<Record<string, unknown>[][]>;
  /**
   * Runs work of a start that only one service at a time may do on this store; others wait. The lock of a process that
   * dies is released. Rejects with OperatorError after a minute of waiting.
   */
  runExclusively<T>(work: () => Promise<T>): Promise<T>;
  /** Resolves if the database answers and accepts writes. */
  ping(): Promise<void>;
  /** Returns how much each of its pools of connections or threads is used now. */
  pools(): PoolUse[];
  close(): Promise<void>;
}

/** The use of a pool of connections; a thread counts as a pool of one. */
export interface PoolUse {
  name: string;
  max: number;
  used: number;
  idle: number;
  /** Requests that wait for a connection. */
  waiting: number;
}

/** Holds need not survive a crash of the store; all else must (fsynced) before its promise resolves. */
export type Durability = "holds" | "durable";

export interface StatementBatch {
  required: readonly Sql[];
  rest: readonly Sql[];
  /** False: the changes may be lost in a crash of the store, so nothing waits for the disk. */
  isDurable: boolean;
  /** True: refused if the disk is nearly full, which leaves the remaining space to the books. */
  isDroppable: boolean;
}

/** The SQL that differs between the databases. */
export interface SqlDialect {
  /** The store's clock in milliseconds, as an expression. */
  now(): Sql;
  /** Ends a query: the rows that it reads do not change until its transaction has ended. */
  sharedLock(): Sql;
  /**
   * Restricts a query to a range of ids, the end excluded (null: no end), for a database that partitions requests by
   * month. Only a hint: the query must find the same rows without it.
   */
  idsWithin(column: string, ids: { from: string; to: string | null }): Sql;
  /** True of a request for whose answer the provider used this id, which an index finds. */
  hasProviderResponse(providerResponseId: string): Sql;
  /** One value of an object in JSON text, as text; null if either is missing. */
  jsonField(json: Sql, key: string): Sql;
  /** True if an object in JSON text has a key, whose value may be null. */
  jsonHas(json: Sql, key: string): Sql;
  /** A list of lists in JSON text as a table for a FROM clause, and the first item of each list, as text. */
  jsonHeads(json: Sql, table: string): { from: Sql; head: Sql };
}

/** One side of a copy of a whole store. Nothing but the copy writes to its destination. */
export interface CopySide extends AsyncDisposable {
  /** Lets all later statements see the same moment, until the side is closed. */
  beginSnapshot(): Promise<void>;
  /** Runs one statement. Returns its rows as cells, with integers as bigint. */
  run(statement: Sql): Promise<Cell[][]>;
}

/** Rolls back the transaction of a `run` of which a required statement changed no row. */
export class UnmetRequirement extends Error {}

/** The store cannot be reached. Nothing else is known to be wrong, so it may become available later. */
export class StoreAbsentError extends OperatorError {
  override readonly name = "StoreAbsentError";
}
