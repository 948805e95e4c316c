import { statfs } from "node:fs/promises";
import { type CompiledQuery, Kysely, sql } from "kysely";
import type { Outcome } from "../../credits/books.ts";
import { OperatorError, StoreUnavailableError } from "../../errors.ts";
import { schemaRefusal } from "../migrations.ts";
import { accountRows } from "../queries/accounts.ts";
import { adminRows } from "../queries/admin.ts";
import { allowanceRows } from "../queries/allowances.ts";
import { bookReads } from "../queries/books.ts";
import { conversationRows } from "../queries/conversations.ts";
import { directoryRows } from "../queries/directory.ts";
import { refusalRows } from "../queries/refusals.ts";
import { requestRows } from "../queries/requests.ts";
import { usageRows } from "../queries/usage.ts";
import type { Books, Store } from "../store.ts";
import type { PortableDatabase, Tables } from "../tables.ts";
import { Checkpoints } from "./checkpoints.ts";
import { toStatement, workerDialect } from "./dialect.ts";
import { findDatabase, lockDirectory, prepareDirectory } from "./directory.ts";
import { WorkerLink } from "./link.ts";
import { packTransitions } from "./packed-transitions.ts";

/** A batch writes less. */
const ROOM_LEAST_BYTES = 65_536;
/** Conversations leave so much of the disk to the books. */
const DROPPABLE_ROOM_LEAST_BYTES = 256 * 1024 * 1024;

export interface SqliteOptions {
  /** Made where it is missing, for its owner alone. */
  dataDir: string;
  /** There is one service on a directory at a time; commands work beside it. */
  role: "service" | "command";
  /** Whether a store that is not there is created, and an older schema brought up to date. Absent: yes. */
  creates?: boolean;
  /** Milliseconds since 1970. */
  clock?: () => number;
  /** How long a transaction waits for one of another process. */
  busyTimeoutMs?: number;
  /** With less of the disk left no conversation is written. */
  conversationRoomLeastBytes?: number;
}

/** The store and what it is made of. */
export interface SqliteParts {
  store: Store;
  database: PortableDatabase;
  writer: WorkerLink;
}

/**
 * Opens the SQLite database of a data directory and brings its schema up to date. Rejects with OperatorError when the
 * directory or the file cannot be used, when another service runs on it, or when its schema is newer than this code.
 */
export async function openSqliteStore(options: SqliteOptions): Promise<Store> {
  return (await openSqliteParts(options)).store;
}

export async function openSqliteParts(options: SqliteOptions): Promise<SqliteParts> {
  const { dataDir, role, creates = true, clock = Date.now, busyTimeoutMs = 5_000 } = options;
  const databasePath = creates ? prepareDirectory(dataDir) : findDatabase(dataDir);
  if (databasePath === undefined) throw new OperatorError(`${schemaRefusal(dataDir, undefined, [])}`);
  const unlock = role === "service" ? lockDirectory(dataDir) : undefined;
  const workerOptions = { databasePath, busyTimeoutMs };
  const writer = new WorkerLink("tollgate-books", workerOptions);
  // A command's reads keep nobody waiting: it does with one thread.
  const side = role === "service" ? new WorkerLink("tollgate-side", workerOptions) : writer;
  const checkpoints = role === "service" ? new Checkpoints(writer, side) : undefined;
  let closed: Promise<void> | undefined;
  const end = async () => {
    try {
      await checkpoints?.stop();
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
    await writer.request({ kind: "open", creates });
  } catch (error) {
    await close();
    throw error;
  }
  const noteWrite = () => checkpoints?.noteWrite();
  const database = portableDatabase(writer, side, clock, noteWrite);
  const store: Store = {
    kind: "sqlite",
    books: books(database, writer, clock, noteWrite),
    accounts: accountRows(database),
    allowances: allowanceRows(database),
    admin: adminRows(database),
    directory: directoryRows(database),
    requests: requestRows(database),
    usage: usageRows(database),
    conversations: withRoom(conversationRows(database), dataDir, options.conversationRoomLeastBytes),
    refusals: withRoom(refusalRows(database), dataDir),
    // No other service is on this directory.
    inTurn: (work) => work(),
    async ping() {
      // What is left may hold this write, and not that of a batch.
      await requireRoom(dataDir, ROOM_LEAST_BYTES);
      // A write that changes nothing: a full disk can still be read.
      const changeNothing = database.kysely
        .updateTable("schema_migration")
        .set(({ ref }) => ({ version: ref("version") }));
      await database.write([changeNothing.where("version", "=", 1n).compile()]);
    },
    close,
  };
  return { store, database, writer };
}

/** Rejects where the disk has no room for so much. */
async function requireRoom(dataDir: string, leastBytes: number): Promise<void> {
  const { bavail, bsize } = await statfs(dataDir);
  if (bavail * bsize < leastBytes) throw new StoreUnavailableError(`The disk under ${dataDir} is full.`);
}

/** Nothing that may be dropped fills the disk that the books need. */
function withRoom<Row, Rows extends { insert(rows: readonly Row[]): Promise<void> }>(
  rows: Rows,
  dataDir: string,
  leastBytes = DROPPABLE_ROOM_LEAST_BYTES,
): Rows {
  return {
    ...rows,
    async insert(given: readonly Row[]) {
      await requireRoom(dataDir, leastBytes);
      await rows.insert(given);
    },
  };
}

function books(database: PortableDatabase, writer: WorkerLink, clock: () => number, noteWrite: () => void): Books {
  const apply = async (...[durability, transitions]: Parameters<Books["apply"]>): Promise<Outcome[]> => {
    const packed = packTransitions(transitions);
    const outcomes = await writer.request({ kind: "apply", durability, nowMs: clock(), transitions: packed });
    noteWrite();
    return outcomes;
  };
  return { ...bookReads(database), apply: apply as Books["apply"] };
}

function portableDatabase(
  writer: WorkerLink,
  side: WorkerLink,
  clock: () => number,
  noteWrite: () => void,
): PortableDatabase {
  return {
    kysely: new Kysely<Tables>({ dialect: workerDialect(writer) }),
    async write(queries: CompiledQuery[], durability = "durable") {
      const isDurable = durability === "durable";
      const changed = await writer.request({ kind: "write", statements: queries.map(toStatement), isDurable });
      noteWrite();
      return changed;
    },
    async writeIf(required, rest) {
      const statements = { required: required.map(toStatement), rest: rest.map(toStatement) };
      const isWritten = await writer.request({ kind: "writeIf", ...statements });
      if (isWritten) noteWrite();
      return isWritten;
    },
    snapshot: (queries: CompiledQuery[]) => side.request({ kind: "snapshot", statements: queries.map(toStatement) }),
    now: () => sql`${BigInt(clock())}`,
    // Whoever writes does so alone.
    sharedLock: () => sql``,
    // One table has all requests: the range of ids would only tempt SQLite to prefer the wrong index.
    idsWithin: () => sql`1 = 1`,
  };
}
