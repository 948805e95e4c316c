import { setTimeout as sleep } from "node:timers/promises";
import type pg from "pg";
import { OperatorError } from "../../errors.ts";
import { connectFailure, LOCK_NOT_AVAILABLE, PostgresFailure, sqlStateOf, statementFailure } from "./failure.ts";
import { connectionErrorOf } from "./pools.ts";

const ATTEMPTS = 5;
/** No attempt begins later: the caller should receive the error instead of waiting longer. */
const ATTEMPTS_BEGIN_WITHIN_MS = 5_000;
const BACKOFF_MS = 20;
const USES_LEAST = 8;
/** Each connection keeps a plan of every named statement that it has run, of some 40 KiB. */
const NAMES_MAX = 64;
/** Texts whose uses are counted. When there are more, counting begins again. */
const COUNTED_MAX = 512;

/** Reads the server's clock in milliseconds. */
export const CLOCK = "SELECT floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint AS now";
const EXCLUSIVE_MS = 60_000;
/** An advisory lock needs no table privileges, and ends with the connection of a process that dies. */
const LOCK_EXCLUSIVELY = "SELECT pg_advisory_xact_lock(hashtextextended('tollgate.turn', 0))";

/** The isolation level is explicit: with another default, the snapshot could be older than the locks. */
const BEGIN = {
  booking: "BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE",
  snapshot: "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY",
};

export interface TransactOptions {
  kind: keyof typeof BEGIN;
  /** True if the work has the same result when it is repeated after a COMMIT whose answer was lost. */
  isRepeatable: boolean;
  /**
   * True if the work changes nothing before the answer to its first statement, so that it need not wait for the answer to
   * BEGIN. A change that is sent along with a BEGIN that fails would be committed on its own.
   */
  beginsWithReads?: boolean;
}

/** Names of the statements that the server should keep planned: writes have many texts, of which few are frequent. */
export class StatementNames {
  readonly #names = new Map<string, string>();
  #uses = new Map<string, number>();

  /** Counts a use of a statement. Returns its name; undefined for one that is planned at each use. */
  use(text: string): string | undefined {
    const name = this.#names.get(text);
    if (name !== undefined || this.#names.size === NAMES_MAX) return name;
    const uses = (this.#uses.get(text) ?? 0) + 1;
    if (uses < USES_LEAST) {
      if (this.#uses.size === COUNTED_MAX) this.#uses = new Map();
      this.#uses.set(text, uses);
      return undefined;
    }
    this.#uses.delete(text);
    const made = `tollgate_${this.#names.size + 1}`;
    this.#names.set(text, made);
    return made;
  }
}

const NAMES = new StatementNames();

/**
 * The pipelined statements of a transaction: each is sent without waiting for the answer before, and has a snapshot of its
 * own. After a failure, also of BEGIN, no statement is sent, and all that are in flight reject with it.
 */
export class Transaction {
  /** Settles with the answer to BEGIN. */
  readonly begun: Promise<void>;
  readonly #client: pg.PoolClient;
  #failure: { error: unknown } | undefined;
  #isGathering = false;

  constructor(client: pg.PoolClient, begin: string) {
    this.#client = client;
    this.begun = this.query(begin).then(() => {});
    // Every later statement rejects with its failure, too.
    this.begun.catch(() => {});
  }

  async query<Row extends pg.QueryResultRow>(statement: string | pg.QueryConfig, values?: unknown[]) {
    return this.#send(() => this.#client.query<Row>(statement, values));
  }

  /** Runs a statement of a batch, which the server keeps planned if it is frequent. Rows are arrays: objects take twice as long. */
  planned(text: string, values: unknown[]): Promise<pg.QueryArrayResult<unknown[]>> {
    const statement = { name: NAMES.use(text), text, values, rowMode: "array" } as const;
    return this.#send(() => this.#client.query<unknown[]>(statement as pg.QueryArrayConfig));
  }

  async #send<Result>(query: () => Promise<Result>): Promise<Result> {
    this.#refuseAfterFailure();
    this.#gatherWrites();
    const result = await query().catch((error: unknown) => {
      this.#failure ??= { error };
    });
    this.#refuseAfterFailure();
    if (result === undefined) throw new Error("a statement was not answered");
    return result;
  }

  /** Sends the statements of one turn of the event loop in one packet: each would be a system call here and at the server. */
  #gatherWrites(): void {
    if (this.#isGathering) return;
    this.#isGathering = true;
    const { stream } = this.#client.connection;
    stream.cork();
    process.nextTick(() => {
      this.#isGathering = false;
      stream.uncork();
    });
  }

  async commit(): Promise<void> {
    const { command } = await this.query("COMMIT");
    if (command !== "COMMIT") throw new Error(`COMMIT was answered with ${command}`);
  }

  #refuseAfterFailure(): void {
    if (this.#failure !== undefined) throw this.#failure.error;
  }
}

/** Runs `work` in a transaction, again after a conflict or a lost connection. Rejects with StoreUnavailableError, or as it does. */
export function transact<T>(
  pool: pg.Pool,
  { kind, isRepeatable, beginsWithReads = false }: TransactOptions,
  work: (transaction: Transaction) => Promise<T>,
): Promise<T> {
  return retrying(isRepeatable, (attempt) =>
    onClient(pool, async (client) => {
      const transaction = new Transaction(client, BEGIN[kind]);
      if (!beginsWithReads) await transaction.begun;
      const result = await work(transaction);
      attempt.mayBeBooked = true;
      await transaction.commit();
      return result;
    }),
  );
}

/** Runs one read in a transaction of its own. Returns its rows. */
export async function query<Row extends pg.QueryResultRow>(pool: pg.Pool, text: string, values?: unknown[]) {
  const { rows } = await retrying(true, (attempt) => {
    attempt.mayBeBooked = true;
    return onClient(pool, (client) => client.query<Row>(text, values));
  });
  return rows;
}

interface Attempt {
  /** True if the change may have been committed when the attempt fails at this moment. */
  mayBeBooked: boolean;
}

async function retrying<T>(isRepeatable: boolean, begin: (attempt: Attempt) => Promise<T>): Promise<T> {
  const startedAtMs = performance.now();
  let mayBeBooked = false;
  for (let made = 1; ; made += 1) {
    const attempt = { mayBeBooked: false };
    try {
      return await begin(attempt);
    } catch (error) {
      if (!(error instanceof PostgresFailure)) throw error;
      if (error.kind === "lost" || error.kind === "unavailable") mayBeBooked ||= attempt.mayBeBooked;
      error.mayBeBooked = mayBeBooked;
      if (made === ATTEMPTS) throw error;
      const canRetry = error.kind === "conflict" || (error.kind === "lost" && (isRepeatable || !attempt.mayBeBooked));
      if (!canRetry || performance.now() - startedAtMs > ATTEMPTS_BEGIN_WITHIN_MS) throw error;
      await sleep(BACKOFF_MS * 2 ** (made - 1) * (0.5 + Math.random()));
    }
  }
}

/** Runs `work` with a connection. A connection that broke, or still waits for an answer, is not returned to the pool. */
async function onClient<T>(pool: pg.Pool, work: (client: pg.PoolClient) => Promise<T>): Promise<T> {
  const client = await pool.connect().catch((error: unknown) => {
    throw connectFailure(error);
  });
  let isReusable = false;
  try {
    const result = await work(client);
    isReusable = true;
    return result;
  } catch (error) {
    const failure = statementFailure(error, connectionErrorOf(client));
    const isUsable = failure instanceof PostgresFailure ? failure.kind !== "lost" && sqlStateOf(error) !== "" : true;
    if (isUsable) isReusable = await rollBack(client);
    throw failure;
  } finally {
    client.release(!isReusable);
  }
}

/** Outside a transaction, ROLLBACK only causes a warning of the server. */
async function rollBack(client: pg.PoolClient): Promise<boolean> {
  return client.query("ROLLBACK").then(
    () => true,
    () => false,
  );
}

/** Runs work while no other process runs any. Rejects with OperatorError if it, or the wait for it, takes over `longestMs`. */
export async function runExclusively<T>(pool: pg.Pool, work: () => Promise<T>, longestMs = EXCLUSIVE_MS): Promise<T> {
  let done: { result: T } | undefined;
  const lock: pg.QueryConfig & { query_timeout: number } = { text: LOCK_EXCLUSIVELY, query_timeout: 2 * longestMs };
  try {
    await transact(pool, { kind: "booking", isRepeatable: false }, async (transaction) => {
      await transaction.query(`SET LOCAL lock_timeout = ${longestMs}`);
      await transaction.query(`SET LOCAL statement_timeout = ${2 * longestMs}`);
      await transaction.query(`SET LOCAL idle_in_transaction_session_timeout = ${longestMs}`);
      await transaction.query(lock);
      done ??= { result: await work() };
    });
  } catch (error) {
    // The work is complete: the transaction of the lock has changed nothing that could be lost.
    if (done === undefined) throw lockFailure(error);
  }
  if (done === undefined) throw new Error("the lock was released without its work");
  return done.result;
}

function lockFailure(error: unknown): unknown {
  const cause = error instanceof Error ? error.cause : undefined;
  if (sqlStateOf(cause) !== LOCK_NOT_AVAILABLE) return error;
  return new OperatorError("Another process has been preparing this database for a minute; try again later.");
}
