import { setTimeout as sleep } from "node:timers/promises";
import { OrganizationsLockedError, StoreUnavailableError } from "../errors.ts";
import type { Log } from "../telemetry/logger.ts";
import { createOutage } from "../telemetry/outage.ts";
import { StoreAbsentError, type StoreDriver } from "./driver.ts";
import type { MigratedDriver, OpenOptions, SchemaVersions } from "./migrations.ts";
import { expectKind, rememberPlace, type StorePlace } from "./place.ts";
import { sql } from "./sql.ts";
import type { Store } from "./store.ts";

const RETRY_MS = 250;
/** Time in which a database that works answers the smallest query. */
const ANSWER_MS = 1_000;

export interface OpenStoreOptions extends StorePlace, OpenOptions {
  /** Returns the same address with the current password, for a new connection. */
  currentDatabase?: () => string | null;
  /** Opens an incomplete copy in PostgreSQL, too. Absent: no. */
  isCopyTarget?: boolean;
  /** Milliseconds since 1970. */
  clock: () => number;
}

export type OpenedStore = Store & {
  /** True if the command has created it. */
  isNew: boolean;
};

/** Opens the configured store. Rejects with OperatorError if it cannot be used. */
export async function openStore(options: OpenStoreOptions): Promise<OpenedStore> {
  const driver = await openDriver(options);
  return { ...(await storeOf(driver)), isNew: driver.schema.from === 0 };
}

/** Creates the configured store or migrates its schema; services may be running. Rejects with OperatorError. */
export async function migrateStore(options: Omit<OpenStoreOptions, "role" | "creates">): Promise<SchemaVersions> {
  const driver = await openDriver({ ...options, role: "command", creates: true });
  await driver.close();
  return driver.schema;
}

/** Loads the queries only now: commands that open no store start faster. */
async function storeOf(driver: StoreDriver): Promise<Store> {
  const { storeOver } = await import("./store.ts");
  return storeOver(driver);
}

/** Does not load the code of the other database. */
async function openDriver({ database, currentDatabase, ...options }: OpenStoreOptions): Promise<MigratedDriver> {
  if (database !== null) {
    const { openPostgresDriver } = await import("./postgres/postgres.ts");
    return openPostgresDriver({ url: database, currentUrl: () => currentDatabase?.() ?? database, ...options });
  }
  const { openSqliteDriver } = await import("./sqlite/sqlite.ts");
  return openSqliteDriver(options);
}

export interface ServiceStoreOptions extends Omit<OpenStoreOptions, "role" | "creates"> {
  /** The time to wait for a database that cannot be reached. */
  longestWaitMs: number;
  /** Called once with the reason for waiting. */
  onAbsent(reason: StoreAbsentError): void;
  log: Log;
}

/**
 * Opens the store of a service, which waits for a database that cannot be reached; until then, every method rejects with
 * StoreUnavailableError. `arrived` resolves once it is open. Both reject with OperatorError if the store cannot be used, was
 * not reached in time, or is not of the kind of the data directory.
 */
export async function openServiceStore(options: ServiceStoreOptions) {
  const { log, longestWaitMs, onAbsent, ...openOptions } = options;
  await expectKind(openOptions);
  const opened: { driver?: StoreDriver } = {};
  let isClosed = false;
  let arrived = Promise.resolve();
  const open = async () => {
    opened.driver = await openDriver({ ...openOptions, role: "service", creates: true });
    await rememberPlace(openOptions);
  };
  const openLater = async () => {
    const giveUpAtMs = performance.now() + longestWaitMs;
    while (opened.driver === undefined && !isClosed) {
      await sleep(RETRY_MS);
      await open().catch((error: unknown) => {
        if (!(error instanceof StoreAbsentError) || performance.now() >= giveUpAtMs) throw error;
      });
    }
  };
  await open().catch((error: unknown) => {
    if (!(error instanceof StoreAbsentError) || longestWaitMs === 0) throw error;
    onAbsent(error);
    arrived = openLater();
    // It may reject before anything awaits it.
    arrived.catch(() => undefined);
  });
  const close = async () => {
    isClosed = true;
    await arrived.catch(() => undefined);
    await opened.driver?.close();
  };
  // Only PostgreSQL is waited for.
  const dialect = opened.driver?.dialect ?? (await import("./postgres/postgres.ts")).POSTGRES_DIALECT;
  const kind = opened.driver?.kind ?? "postgres";
  const calls = observedCalls(() => opened.driver, { ...options, isClosed: () => isClosed });
  return { store: await storeOf({ kind, dialect, ...calls, close }), arrived };
}

/**
 * Returns the calls of a driver that may not be open yet. After a failure, calls are refused at once until the database
 * answers again: each would wait for seconds. Logs both moments once, however many requests fail.
 */
function observedCalls(
  opened: () => StoreDriver | undefined,
  { log, clock, isClosed }: Pick<ServiceStoreOptions, "log" | "clock"> & { isClosed: () => boolean },
): Omit<StoreDriver, "kind" | "dialect" | "close"> {
  const texts = {
    begins: "the store is unavailable",
    lasts: "the store is still unavailable",
    ends: "the store is available again",
  };
  const outage = createOutage({ log, level: "error", texts, clock });
  const current = () => {
    const driver = opened();
    if (driver === undefined) throw new StoreUnavailableError("The store has not been reached since the start.");
    if (silence !== undefined) throw new StoreUnavailableError("The store is unavailable.", { cause: silence.error });
    return driver;
  };
  /** The failure since which the database has not answered. */
  let silence: { error: StoreUnavailableError } | undefined;
  let isAsked = false;
  const askUntilAnswered = async (driver: StoreDriver, error: StoreUnavailableError) => {
    isAsked = true;
    const fallSilent = () => {
      silence = { error };
    };
    const timer = setTimeout(fallSilent, ANSWER_MS).unref();
    const isAnswered = () =>
      driver.find(sql`select 1`).then(
        () => true,
        () => false,
      );
    while (!(await isAnswered()) && !isClosed()) {
      fallSilent();
      await sleep(RETRY_MS, undefined, { ref: false });
    }
    clearTimeout(timer);
    isAsked = false;
    if (silence === undefined) return;
    silence = undefined;
    outage.succeeded();
  };
  const observe = async <T>(work: (driver: StoreDriver) => Promise<T>): Promise<T> => {
    try {
      const result = await work(current());
      outage.succeeded();
      return result;
    } catch (error) {
      // A locked organization is no outage: its queue logs it.
      if (error instanceof StoreUnavailableError && !(error instanceof OrganizationsLockedError)) {
        outage.failed({ err: error });
        const driver = opened();
        if (driver !== undefined && !isAsked) void askUntilAnswered(driver, error);
      }
      throw error;
    }
  };
  return {
    apply: (durability, transitions) => observe((driver) => driver.apply(durability, transitions)),
    run: (statements) => observe((driver) => driver.run(statements)),
    find: (query) => observe((driver) => driver.find(query)),
    snapshot: (queries) => observe((driver) => driver.snapshot(queries)),
    runExclusively: async (work) => current().runExclusively(work),
    ping: () => observe((driver) => driver.ping()),
    pools: () => opened()?.pools() ?? [],
  };
}
