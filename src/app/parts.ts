import { randomUUID } from "node:crypto";
import { IssuerKeys } from "../admin/issuer-keys.ts";
import type { RandomBytes } from "../admin/token.ts";
import type { Config } from "../config.ts";
import { OperatorError } from "../errors.ts";
import { LocalLimiter } from "../gateway/limits/local.ts";
import { SharedLimiter } from "../gateway/limits/shared.ts";
import type { RateLimiter } from "../gateway/limits.ts";
import { MEMORY_BYTES_LEAST, memoryBytesFor, memoryReader, Overload } from "../http/overload.ts";
import { uuidV7 } from "../internals/ids.ts";
import { notInstalledText } from "../internals/optional-packages.ts";
import { deadLetterFileOf, deadLettersIn } from "../ledger/dead-letter.ts";
import { Ledger, type LedgerObserver } from "../ledger/ledger.ts";
import { Retention } from "../ledger/retention.ts";
import { Spool } from "../ledger/spool.ts";
import { collectDebts } from "../payments/payments.ts";
import type { UsageDays } from "../reports/usage-days.ts";
import { openServiceStore } from "../stores/open.ts";
import { directoryFailure, spoolDirectoryOf, takeLock } from "../stores/sqlite/directory.ts";
import type { Store } from "../stores/store.ts";
import type { AccessLog, Log } from "../telemetry/logger.ts";
import { createOutage } from "../telemetry/outage.ts";
import type { LiveValues } from "./upstreams.ts";

/** The configuration of a running service, which can be read again. */
export interface ConfigSource {
  /** Reads the configuration, and adds the files that it reads to `files`. Rejects with OperatorError. */
  load(files: Set<string>): Promise<Config>;
  files: ReadonlySet<string>;
  /** Applies the settings of the process itself, such as the level of the log. */
  apply(config: Config): void;
}

export interface StartOptions {
  version: string;
  log: Log;
  accessLog: AccessLog;
  /** Prints a line for the person at the terminal. */
  out(line: string): void;
  /** Milliseconds since 1970. */
  clock: () => number;
  random: RandomBytes;
  source: ConfigSource;
  /** Processes that share the port and the memory of the machine, this one included. */
  workers: number;
  /** Called before the first request can be served: from then on, a stop must let running answers end. */
  onServing?: () => void;
}

export const newIdOf =
  ({ clock }: StartOptions) =>
  () =>
    uuidV7(clock());

export function openStoreOf(config: Config, { clock, log, out }: StartOptions, currentDatabase: () => string | null) {
  const { storeWaitSeconds } = config.server;
  const onAbsent = ({ message }: Error) => {
    out(
      `${message}. It is waited for, at most ${storeWaitSeconds} s; until it is there, every request is answered 503.`,
    );
    log.warn({ reason: message }, "the store cannot be reached: the start waits for it");
  };
  return openServiceStore({
    ...config,
    currentDatabase,
    clock,
    log,
    onAbsent,
    longestWaitMs: storeWaitSeconds * 1000,
  });
}

export async function createLedger(
  config: Config,
  options: StartOptions,
  { kind, books, allowances, payments: rows }: Store,
  observer: LedgerObserver | undefined,
): Promise<Ledger> {
  const { clock, log } = options;
  const { dataDir, ledger } = config;
  const random = fractions(options.random);
  const directory = spoolDirectoryOf(dataDir);
  const spool = await Spool.open({ directory, takeLock, name: uuidV7(clock()), clock, random, log }).catch((error) => {
    throw directoryFailure(dataDir, error);
  });
  return new Ledger({
    books,
    allowances,
    collectDebts: (book) => collectDebts({ rows, book, clock, newId: newIdOf(options) }),
    spool,
    deadLetters: deadLettersIn({ file: deadLetterFileOf(dataDir), clock, log }),
    holdLifeMs: ledger.holdSeconds * 1000,
    recoveryMs: ledger.recoverySeconds * 1000,
    isShared: kind === "postgres",
    now: () => ({ monotonicMs: performance.now(), wallMs: clock() }),
    renewEveryMs: ledger.renewSeconds * 1000,
    sweepEveryMs: ledger.sweepSeconds * 1000,
    clock,
    random,
    log,
    observer,
  });
}

export function createRetention(
  { clock, log }: StartOptions,
  { store, live, usageDays, ledger }: { store: Store; live: LiveValues; usageDays: UsageDays; ledger: Ledger },
): Retention {
  return new Retention({
    ...{ store, live, clock, log, now: () => performance.now() },
    isUsageSummedUp: (beforeMs) => usageDays.isSummedUp(beforeMs),
    spooled: async () => (await ledger.status()).spool.entries,
  });
}

export function createIssuerKeys({ clock, log }: StartOptions, { identities }: Store, live: LiveValues): IssuerKeys {
  const issuers = () =>
    live.config.identity.issuers.filter(({ audience }) => audience !== undefined).map(({ issuer }) => issuer);
  return new IssuerKeys({ rows: identities, issuers, clock, log });
}

/** Returns a function that makes random numbers from 0 up to 1. */
export function fractions(random: RandomBytes): () => number {
  return () => Buffer.from(random(6)).readUIntBE(0, 6) / 2 ** 48;
}

export function createOverload({ server }: Config, options: StartOptions): Overload {
  const random = fractions(options.random);
  const texts = {
    begins: "the service is overloaded: some new requests are refused",
    lasts: "the service is still overloaded",
    ends: "the service is no longer overloaded",
  };
  const outage = createOutage({ ...options, level: "warn", texts });
  const limits = server.overload;
  const memoryBytes = memoryBytesFor(options.workers);
  if (memoryBytes < MEMORY_BYTES_LEAST) {
    const [memoryMiB, leastMiB] = [memoryBytes, MEMORY_BYTES_LEAST].map((bytes) => Math.floor(bytes / 1024 / 1024));
    options.log.warn({ memoryMiB, leastMiB }, "the process has too little memory: under load it refuses most requests");
  }
  return new Overload({
    limits,
    readMemoryShare: memoryReader(memoryBytes),
    random,
    now: () => performance.now(),
    readTurns: () => performance.nodeTiming.uvMetricsInfo.loopCount,
    onStall: (durationMs) => {
      const seconds = Math.round(durationMs / 1000);
      options.log.warn(
        { seconds },
        "the process was stalled: it was suspended, got no CPU time, or one task blocked the event loop",
      );
    },
    outage,
  });
}

/** Creates the limiter that the configuration asks for. Rejects with OperatorError if the client of Redis is not installed. */
export async function createLimits({ redis }: Config, { clock, log }: StartOptions): Promise<RateLimiter> {
  if (redis === null) return new LocalLimiter(clock);
  const { createClient } = await loadOptional("redis needs", "@redis/client", () => import("@redis/client"));
  const outage = createOutage({
    log,
    level: "warn",
    texts: {
      begins: "Redis cannot be reached: this process applies its share of the limits",
      lasts: "Redis still cannot be reached",
      ends: "Redis can be reached again: the limits are shared",
    },
    clock,
  });
  const limits = new SharedLimiter({
    createConnection: () =>
      createClient({
        url: redis,
        name: "tollgate",
        socket: { reconnectStrategy: false },
        disableOfflineQueue: true,
        maintNotifications: "disabled",
      }),
    node: randomUUID(),
    onFailure: ({ message }) => outage.failed({ reason: message }),
    onJoined: () => outage.succeeded(),
    clock,
  });
  await limits.start();
  return limits;
}

/** Loads an optional package. `needs` is who needs it: `redis needs`. Rejects with OperatorError if it is not installed. */
export async function loadOptional<Module>(needs: string, name: string, importIt: () => Promise<Module>) {
  try {
    return await importIt();
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== "ERR_MODULE_NOT_FOUND") throw error;
    throw new OperatorError(`${needs} ${notInstalledText([name])}`, { cause: error });
  }
}
