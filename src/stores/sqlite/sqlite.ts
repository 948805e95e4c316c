import { statfs } from "node:fs/promises";
import { StoreUnavailableError } from "../../errors.ts";
import type { SqlDialect } from "../driver.ts";
import { type MigratedDriver, missingStore, type OpenOptions } from "../migrations.ts";
import { raw, type Sql, type Statement, sql, statementOf } from "../sql.ts";
import { type Store, storeOver } from "../store.ts";
import { type ConnectionOptions, fileIdOf } from "./connection.ts";
import { findDatabase, lockDirectory, prepareDirectory } from "./directory.ts";
import { WorkerLink } from "./link.ts";

/** More free space than a batch needs. */
const ROOM_LEAST_BYTES = 65_536;
/** Free space that droppable writes leave to the books. */
const DROPPABLE_ROOM_LEAST_BYTES = 256 * 1024 * 1024;
const CHECKPOINT_EVERY_MS = 500;
/** 32 MiB of log: beyond it, the writer copies the last pages itself, so that the log can start over. */
const LOG_PAGES_MAX = 8_192;
/** Only load writes so many pages between two checkpoints. */
const LOG_PAGES_UNDER_LOAD = 256;

export interface SqliteOptions extends OpenOptions {
  /** Created if it does not exist, for its owner alone. */
  dataDir: string;
  /** Milliseconds since 1970. */
  clock?: () => number;
  /** Time for which a transaction waits for one of another process. */
  busyTimeoutMs?: number;
  /** Droppable writes are refused if the disk has less room than this. */
  droppableRoomLeastBytes?: number;
}

export interface SqliteDriver extends MigratedDriver {
  readonly writer: WorkerLink;
  /** The thread of long reads and checkpoints; of a command the one that writes. */
  readonly side: WorkerLink;
}

/** Opens a store over `openSqliteDriver`. */
export async function openSqliteStore(options: SqliteOptions): Promise<Store> {
  return storeOver(await openSqliteDriver(options));
}

/** Opens the SQLite database of a data directory and migrates its schema. Rejects with OperatorError if it cannot be used. */
export async function openSqliteDriver(options: SqliteOptions): Promise<SqliteDriver> {
  const { dataDir, role, creates = true, busyTimeoutMs = 5_000 } = options;
  const databasePath = creates ? prepareDirectory(dataDir, role) : findDatabase(dataDir);
  if (databasePath === undefined) throw missingStore(dataDir);
  const unlock = role === "service" ? lockDirectory(dataDir) : undefined;
  const workerOptions: ConnectionOptions = { databasePath, busyTimeoutMs };
  const writer = new WorkerLink("tollgate-books", workerOptions);
  // The reads of a command block nothing: it uses one thread.
  const side = role === "service" ? new WorkerLink("tollgate-side", workerOptions) : writer;
  const checkpoints = keepCheckpoints(writer, side);
  let closed: Promise<void> | undefined;
  const end = async () => {
    try {
      await checkpoints.stop(role === "service");
      await side.close();
      await writer.close();
    } finally {
      unlock?.();
    }
  };
  const close = () => {
    closed ??= end();
    return closed;
  };
  try {
    const schema = await writer.call("open", creates);
    // For threads that start later.
    workerOptions.fileId = fileIdOf(databasePath);
    return { ...driverOver({ writer, side }, checkpoints, options), schema, close };
  } catch (error) {
    await close();
    throw error;
  }
}

function driverOver(
  { writer, side }: Pick<SqliteDriver, "writer" | "side">,
  checkpoints: ReturnType<typeof keepCheckpoints>,
  options: SqliteOptions,
): Omit<SqliteDriver, "close" | "schema"> {
  const { dataDir, clock = Date.now, droppableRoomLeastBytes = DROPPABLE_ROOM_LEAST_BYTES } = options;
  return {
    kind: "sqlite",
    dialect: sqliteDialect(clock),
    writer,
    side,
    async apply(durability, transitions) {
      const outcomes = await writer.call("apply", clock(), transitions, durability === "durable");
      checkpoints.noteWrite();
      return outcomes;
    },
    async run({ required, rest, isDurable, isDroppable }) {
      if (isDroppable) await requireRoom(dataDir, droppableRoomLeastBytes);
      const changes = await writer.call("run", required.map(toStatement), rest.map(toStatement), isDurable);
      if (changes?.some((changed) => changed > 0)) checkpoints.noteWrite();
      return changes;
    },
    find: (query) => writer.call("find", toStatement(query)),
    snapshot: (queries) => side.call("snapshot", queries.map(toStatement)),
    pools: () => (writer === side ? [writer.use] : [writer.use, side.use]),
    // The directory is locked: no other service uses it.
    runExclusively: (work) => work(),
    async ping() {
      // The remaining room may be enough for this write, but not for that of a batch.
      await requireRoom(dataDir, ROOM_LEAST_BYTES);
      await writer.call("run", [], [CHANGE_NOTHING], true);
      checkpoints.noteWrite();
    },
  };
}

/** A write that changes nothing: a full disk can still be read. */
const CHANGE_NOTHING: Statement = {
  sql: "UPDATE schema_migration SET version = version WHERE version = 1",
  parameters: [],
};

async function requireRoom(dataDir: string, leastBytes: number): Promise<void> {
  const { bavail, bsize } = await statfs(dataDir);
  if (bavail * bsize < leastBytes) throw new StoreUnavailableError(`The disk under ${dataDir} is full.`);
}

/** Returns a statement with SQLite's places of parameters. */
export function toStatement(statement: Sql): Statement {
  return statementOf(statement, () => "?");
}

function sqliteDialect(clock: () => number): SqlDialect {
  return {
    now: () => sql`${clock()}`,
    // There is one writer at a time.
    sharedLock: () => sql``,
    // One table has all requests: the range of ids would only make SQLite prefer the wrong index.
    idsWithin: () => sql`1 = 1`,
    hasProviderResponse: (providerResponseId) => sql`provider_response_id = ${providerResponseId} and sequence >> 8 in (
      with recursive block (number, last) as (
        select (select min(sequence) from request) >> 8, (select max(sequence) from request) >> 8
        union all select number + 1, last from block where number < last)
      select number from block)`,
    jsonField: (json, key) => sql`(select value from json_each(${json}) where key = ${key})`,
    jsonHas: (json, key) => sql`exists (select 1 from json_each(${json}) where key = ${key})`,
    jsonHeads: (json, table) => ({
      from: sql`json_each(${json}) as ${raw(table)}`,
      head: sql`json_extract(${raw(table)}.value, '$[0]')`,
    }),
  };
}

/**
 * Copies the log into the database, on another connection, so that the writer does not wait. The last pages of a log under
 * continuous writes are never copied by this alone: beyond a size, the writer does it between two batches. Under load the log
 * gets its full size at once instead of growing with every commit.
 */
function keepCheckpoints(writer: WorkerLink, side: WorkerLink) {
  let timer: NodeJS.Timeout | undefined;
  let running: Promise<void> = Promise.resolve();
  let isStopped = false;
  /** Tried once: if it fails, commits are only slower. */
  let isLengthened = false;
  const run = async () => {
    try {
      const logPages = await side.call("checkpoint", "PASSIVE");
      if (logPages > LOG_PAGES_UNDER_LOAD && !isLengthened) {
        isLengthened = true;
        await writer.call("lengthen");
      }
      if (logPages > LOG_PAGES_MAX) await writer.call("checkpoint", "PASSIVE");
    } catch {
      // The next write tries again; a store that does not work reports that to its callers itself.
    } finally {
      timer = undefined;
    }
  };
  return {
    noteWrite(): void {
      if (timer !== undefined || isStopped) return;
      timer = setTimeout(() => {
        running = run();
      }, CHECKPOINT_EVERY_MS).unref();
    },
    /** Stops the timer. With `copies`, the writer copies the rest of the log at once: a command would make a service wait. */
    async stop(copies: boolean): Promise<void> {
      isStopped = true;
      clearTimeout(timer);
      await running;
      if (copies && writer.running) await writer.call("checkpoint", "TRUNCATE").catch(() => undefined);
    },
  };
}
