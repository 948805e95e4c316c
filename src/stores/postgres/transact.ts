import type pg from "pg";
import { connectFailure, PostgresFailure, sqlStateOf, statementFailure } from "./failure.ts";
import { lossOf } from "./pools.ts";

const ATTEMPTS = 5;
/** No attempt begins later: whoever asks is better told than kept waiting. */
const ATTEMPTS_BEGIN_WITHIN_MS = 5_000;
const BACKOFF_MS = 20;

/** The isolation is always named: the database's own default could be one whose snapshot is older than the locks. */
const BEGIN = {
  booking: "BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE",
  snapshot: "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY",
};

export interface TransactOptions {
  kind: keyof typeof BEGIN;
  /** Whether the work comes to the same when it is done again after a COMMIT whose answer was lost. */
  isRepeatable: boolean;
}

/**
 * Runs `work` in a transaction, again where it failed by 40001, 40P01 or a lost connection. Rejects with
 * StoreUnavailableError when the server is away or too slow; what `work` itself throws undoes the transaction and is
 * thrown on.
 */
export function transact<T>(
  pool: pg.Pool,
  { kind, isRepeatable }: TransactOptions,
  work: (client: pg.PoolClient) => Promise<T>,
): Promise<T> {
  return retrying(() => {
    let isCommitting = false;
    const attempt = onClient(pool, async (client) => {
      await client.query(BEGIN[kind]);
      const result = await work(client);
      isCommitting = true;
      await client.query("COMMIT");
      return result;
    });
    return { attempt, mayRepeat: () => isRepeatable || !isCommitting };
  });
}

/** Runs one statement, a transaction of its own. */
export function query<Row extends pg.QueryResultRow>(
  pool: pg.Pool,
  statement: { text: string; values?: unknown[]; isRepeatable: boolean },
): Promise<pg.QueryResult<Row>> {
  const { isRepeatable, ...config } = statement;
  return retrying(() => ({
    attempt: onClient(pool, (client) => client.query<Row>(config)),
    mayRepeat: () => isRepeatable,
  }));
}

async function retrying<T>(begin: () => { attempt: Promise<T>; mayRepeat: () => boolean }): Promise<T> {
  const startedAtMs = performance.now();
  for (let made = 1; ; made += 1) {
    const { attempt, mayRepeat } = begin();
    try {
      return await attempt;
    } catch (error) {
      if (made === ATTEMPTS || !(error instanceof PostgresFailure)) throw error;
      const isCurable = error.kind === "conflict" || (error.kind === "lost" && mayRepeat());
      if (!isCurable || performance.now() - startedAtMs > ATTEMPTS_BEGIN_WITHIN_MS) throw error;
      const waitMs = BACKOFF_MS * 2 ** (made - 1) * (0.5 + Math.random());
      await new Promise((resolve) => setTimeout(resolve, waitMs));
    }
  }
}

/** Lends a connection to `work`. One that broke, or still waits for an answer, does not go back to the pool. */
async function onClient<T>(pool: pg.Pool, work: (client: pg.PoolClient) => Promise<T>): Promise<T> {
  const client = await pool.connect().catch((error: unknown) => {
    throw connectFailure(error);
  });
  let isSound = false;
  try {
    const result = await work(client);
    isSound = true;
    return result;
  } catch (error) {
    const failure = statementFailure(error, lossOf(client));
    const isOfUse = failure instanceof PostgresFailure ? failure.kind !== "lost" && sqlStateOf(error) !== "" : true;
    if (isOfUse) isSound = await rollBack(client);
    throw failure;
  } finally {
    client.release(!isSound);
  }
}

/** Outside a transaction it is a warning of the server, and no harm. */
async function rollBack(client: pg.PoolClient): Promise<boolean> {
  return client.query("ROLLBACK").then(
    () => true,
    () => false,
  );
}
