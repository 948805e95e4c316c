import { copyFile, mkdir, mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { PostgresProxy } from "../support/postgres-proxy.ts";
import { makePostgresServer, type PostgresServer } from "../support/postgres-server.ts";
import { makeOrganization, type RunningService, type ServiceOptions, startService } from "../support/service.ts";
import { mountSmallDisk, type SmallDisk } from "../support/small-disk.ts";
import { type Books, readBooks, readFile, type Source } from "./books.ts";
import { Checker } from "./checker.ts";
import { type Call, Clients, MODEL, repeatedOf, type Sent } from "./client.ts";
import type { Doings, Limits } from "./doings.ts";
import { PRICES } from "./prices.ts";
import { readRecords } from "./records.ts";
import { lockBalances, lockFile, slowFile } from "./stores.ts";
import { startUpstreamProcess, type UpstreamProcess } from "./upstream.ts";

export type StoreKind = "sqlite" | "postgres";

export interface SiteOptions {
  store: StoreKind;
  /** By how much the lives of holds, their renewals and sweeps are shorter than by default. */
  shortenedBy: number;
  /** Duration of requests, as a share of that in a soak. */
  streamShare: number;
  /** Tolerance between an event and its log entry on a busy machine; Infinity disables checks by time. */
  slackMs: number;
  /** Timeout for any step of the service. */
  patienceMs: number;
  /** Puts the store on a disk of so many megabytes. */
  diskMegabytes?: number;
  /** Recovery time after a hold's life; by default shortened like all other times. */
  recoveryMs?: number;
}

/** By default, in seconds. */
const HOLD_LIFE = 120;
const RECOVERY = 480;
const RENEW_EVERY = 10;
/** A credit may stay locked for so long after a restart on the same directory, by default. */
const LOCKED_LONGEST = 30;
/** The same where nobody comes back to the directory: a life, the recovery time, and a life in which others saw the hold. */
const LOCKED_LONGEST_ALONE = HOLD_LIFE + RECOVERY + HOLD_LIFE + 30;
const CREDITS = "1000000";
const ORGANIZATIONS = 2;

/** A trial whose requests have ended, and whose holds perhaps have not. */
interface Pending extends Doings {
  trial: string;
  /** For how long credits may stay locked from now, or from a later restart on. */
  lockedLongestMs: number;
  /** When the last hold must have ended. */
  dueAt: number;
}

/** Everything of a trial's: directory, upstream, clients, store, and the service that is killed over and over. */
export class Site {
  readonly directory: string;
  readonly options: SiteOptions;
  readonly limits: Limits;
  readonly clients: Clients;
  readonly postgres: { server: PostgresServer; proxy: PostgresProxy } | undefined;
  readonly disk: SmallDisk | undefined;
  organizations: Call["organization"][] = [];
  /** Those that a trial made for itself. */
  #otherOrganizations: Call["organization"][] = [];
  /** Time to readiness after each kill. */
  readonly readyAfterMs: number[] = [];
  /** Results of the requests of all trials, as their clients saw them. */
  readonly answers = new Map<string, number>();
  readonly #upstream: UpstreamProcess;
  #service: RunningService | undefined;
  #checker: Checker;
  #pending: Pending[] = [];
  /** Output of services that have ended. */
  #printed = "";

  private constructor(
    directory: string,
    options: SiteOptions,
    { upstream, postgres, disk }: Pick<Site, "postgres" | "disk"> & { upstream: UpstreamProcess },
  ) {
    this.directory = directory;
    this.options = options;
    this.limits = {
      holdLifeMs: (HOLD_LIFE * 1000) / options.shortenedBy,
      renewEveryMs: (RENEW_EVERY * 1000) / options.shortenedBy,
      recoveryMs: options.recoveryMs ?? (RECOVERY * 1000) / options.shortenedBy,
      slackMs: options.slackMs,
    };
    this.clients = new Clients(directory);
    this.#upstream = upstream;
    this.postgres = postgres;
    this.disk = disk;
    this.#checker = new Checker(this.limits);
  }

  static async open(options: SiteOptions): Promise<Site> {
    const directory = await mkdtemp(join(tmpdir(), `tollgate-crash-${options.store}-`));
    for (const name of ["data", "other"]) await mkdir(join(directory, name));
    const place = await openPlace(directory, options).catch(async (error: unknown) => {
      await rm(directory, { recursive: true });
      throw error;
    });
    const upstream = await startUpstreamProcess(directory);
    const site = new Site(directory, options, { upstream, ...place });
    await site.start();
    await site.makeOrganizations();
    return site;
  }

  get service(): RunningService {
    if (this.#service === undefined) throw new Error("no service runs");
    return this.#service;
  }

  /** The data directory, as the service sees it. */
  get dataDir(): string {
    return join(this.directory, "data");
  }

  /** Runs a program where it sees the data directory, if that is not everywhere. */
  get #launcher(): string[] | undefined {
    return this.postgres === undefined ? this.disk?.launcher : undefined;
  }

  /** Data directory of a second service on the same database. */
  get otherDataDir(): string {
    return join(this.directory, "other");
  }

  /** Lets a command find the store. */
  get commandWords(): string[] {
    return ["--data-dir", this.dataDir, "--config", join(this.directory, "tollgate.yaml")];
  }

  /** Makes new organizations for the trials to come, so that the books of each stay small. */
  async makeOrganizations(): Promise<void> {
    this.#checker = new Checker(this.limits);
    this.#otherOrganizations = [];
    this.organizations = await Promise.all(
      Array.from({ length: ORGANIZATIONS }, () => makeOrganization(this.service, CREDITS)),
    );
  }

  /** Makes an organization for one trial, whose books are judged too. `credits` is a decimal text. */
  async makeOrganization(credits: string): Promise<Call["organization"]> {
    const organization = await makeOrganization(this.service, credits);
    this.#otherOrganizations.push(organization);
    return organization;
  }

  /**
   * Starts a second service on the same PostgreSQL, with a data directory of its own. `isProxied`: it reaches the store the
   * way that the first one does.
   */
  startNeighbor({ isProxied = false } = {}): Promise<RunningService> {
    const { postgres, otherDataDir: dataDir } = this;
    if (postgres === undefined) throw new Error("only PostgreSQL serves two nodes");
    const database = isProxied ? postgres.proxy.url : postgres.server.url;
    const config = { ...this.#config(), database };
    return startService({ ...this.serviceOptions, dataDir, configDir: dataDir, config });
  }

  /** Starts the service on what is there; resolves when it is ready, with how long that took. */
  async start(options: Partial<ServiceOptions> = {}): Promise<number> {
    const startedAt = performance.now();
    this.#service = await startService({ ...this.serviceOptions, ...options });
    // Each restart on the directory begins anew to end what earlier ones have left.
    for (const pending of this.#pending) pending.dueAt = Date.now() + pending.lockedLongestMs;
    return performance.now() - startedAt;
  }

  /** Options with which the service is started. */
  get serviceOptions(): ServiceOptions {
    return {
      dataDir: this.dataDir,
      configDir: this.directory,
      launcher: this.#launcher,
      config: this.#config(),
      awaits: "/readyz",
    };
  }

  /** Ends the service at once, and looks at the holds that it leaves open; gives the time of it. */
  async kill(): Promise<number> {
    const killedAt = Date.now();
    await this.#end("SIGKILL");
    if (this.#launcher === undefined) this.#checker.noteOpenHolds(await this.#readBooksOfDead());
    return killedAt;
  }

  /** Reads a copy of a file that no service has open: a reader of the file itself would repair it. */
  async #readBooksOfDead(): Promise<Books> {
    const source = this.#source();
    if (source.kind === "postgres") return this.readBooks();
    const folder = await mkdtemp(join(this.directory, "copy-"));
    const path = join(folder, "tollgate.db");
    try {
      for (const end of ["", "-wal"]) await copyFile(`${source.path}${end}`, `${path}${end}`);
      return readFile(
        path,
        this.organizations.map(({ id }) => id),
      );
    } finally {
      await rm(folder, { recursive: true });
    }
  }

  /** Asks the service to stop; gives the code that it ended with. */
  terminate(): Promise<number | null> {
    return this.#end("SIGTERM");
  }

  async #end(signal: NodeJS.Signals): Promise<number | null> {
    const { service } = this;
    const exitCode = await service.end(signal);
    this.#printed += service.output();
    this.#service = undefined;
    return exitCode;
  }

  /** Starts the service again after a kill. */
  async restart(): Promise<void> {
    this.readyAfterMs.push(await this.start());
  }

  /** Lets the streams of a trial go on that wait. */
  letGo(trial: string): Promise<void> {
    return this.#upstream.letGo(trial);
  }

  send(calls: Call[]): Sent[] {
    return calls.map((call) => this.clients.send(this.service.baseUrl, call));
  }

  /** Sends those of the requests once more that carry a key, as a client does that was cut off; resolves when all have ended. */
  async repeat(sent: Sent[]): Promise<void> {
    const keyed = sent.map(({ call }) => call).filter((call) => call.idempotencyKey !== undefined);
    const calls = keyed.map(({ leavesAfterWords: _left, ...call }) => ({ ...call, isRepeated: true }));
    await Promise.all(this.send(calls).map(({ ended }) => ended));
  }

  /** Resolves when the service says that it is ready, and that nothing waits to be booked. */
  async untilReady(): Promise<void> {
    const until = Date.now() + this.options.patienceMs;
    for (;;) {
      const answer = await fetch(`${this.service.url}/readyz`);
      const told = (await answer.json()) as { spool?: { entries: number } };
      if (answer.status === 200 && (told.spool?.entries ?? 0) === 0) return;
      if (Date.now() > until) throw new Error(`/readyz still says ${answer.status} ${JSON.stringify(told)}`);
      await sleep(50);
    }
  }

  /** Keeps the service from writing to the store; gives how to let it go. */
  async lockStore(): Promise<() => Promise<void>> {
    const source = this.#source();
    if (source.kind === "sqlite") {
      const unlock = lockFile(source.path);
      return async () => unlock();
    }
    return lockBalances(
      source.url,
      this.organizations.map(({ id }) => id),
    );
  }

  /** Makes each use of the store so much slower; gives how to end that. */
  slowStore(eachMs: number): () => Promise<void> {
    const { proxy } = this.postgres ?? {};
    if (proxy === undefined) return slowFile(join(this.dataDir, "tollgate.db"), eachMs);
    proxy.delayMs = eachMs;
    return async () => {
      proxy.delayMs = 0;
    };
  }

  readBooks(): Promise<Books> {
    const organizations = [...this.organizations, ...this.#otherOrganizations];
    return readBooks(
      this.#source(),
      organizations.map(({ id }) => id),
    );
  }

  /**
   * Hands a trial to the checker; its charges are judged when its holds have ended. `isAbandoned`: nobody came back to the
   * data directory of the service that served it.
   */
  addTrial(
    trial: string,
    {
      killedAt,
      bookedAt,
      storeWasAway = false,
      wasSuspended = false,
      lacksCredits = false,
      isAbandoned = false,
    }: Partial<Omit<Doings, "records" | "repeated">> & { isAbandoned?: boolean },
  ): void {
    const records = readRecords(this.directory, trial);
    const repeated = readRecords(this.directory, repeatedOf(trial));
    for (const { client } of [...records.values(), ...repeated.values()]) {
      const became = client.end === "error" ? `${client.status} ${client.code}` : `${client.end}`;
      this.answers.set(became, (this.answers.get(became) ?? 0) + 1);
    }
    const lockedLongest = isAbandoned ? LOCKED_LONGEST_ALONE : LOCKED_LONGEST;
    const lockedLongestMs = (lockedLongest * 1000) / this.options.shortenedBy + this.options.patienceMs;
    const doings = { records, repeated, killedAt, bookedAt, storeWasAway, wasSuspended, lacksCredits };
    this.#pending.push({ trial, ...doings, lockedLongestMs, dueAt: Date.now() + lockedLongestMs });
  }

  /**
   * Judges the books and every trial whose holds have ended. Rejects with all that is wrong. `all`: waits for the holds
   * of every trial, as long as they may be open.
   */
  async judge({ all = false, mayForgetOpenHolds = false } = {}): Promise<void> {
    for (;;) {
      const books = await this.readBooks();
      const faults = this.#checker.checkBooks(books, { mayForgetOpenHolds });
      for (const pending of [...this.#pending]) faults.push(...this.#judgeOne(pending, books));
      if (faults.length > 0) throw new ViolationError(faults);
      if (!all || this.#pending.length === 0) return;
      await sleep(100);
    }
  }

  #judgeOne(pending: Pending, books: Books): string[] {
    const open = this.#checker.openHolds(books, pending);
    if (open.length > 0) {
      return books.now > pending.dueAt ? open.map((hold) => `hold ${hold.id} keeps credits locked`) : [];
    }
    this.#pending = this.#pending.filter((other) => other !== pending);
    return this.#checker.checkCharges(books, pending);
  }

  /** Ends everything. The directory stays where something was wrong. */
  async close({ keepsLogs }: { keepsLogs: boolean }): Promise<void> {
    if (this.#service !== undefined) await this.#end("SIGKILL");
    if (keepsLogs) await writeFile(join(this.directory, "service.log"), this.#printed);
    await this.postgres?.proxy.close();
    await this.postgres?.server.remove();
    await this.disk?.remove();
    await this.#upstream.end();
    if (!keepsLogs) await rm(this.directory, { recursive: true, force: true });
  }

  #source(): Source {
    if (this.postgres !== undefined) return { kind: "postgres", url: this.postgres.server.url };
    return { kind: "sqlite", path: join(this.dataDir, "tollgate.db"), launcher: this.#launcher };
  }

  #config(): object {
    const seconds = 1 / this.options.shortenedBy;
    return {
      server: { drainSeconds: 60 },
      ...(this.postgres !== undefined && { database: this.postgres.proxy.url }),
      limits: { requestsPerMinute: 1_000_000, tokensPerMinute: 1_000_000_000, concurrentRequests: 10_000 },
      ledger: {
        holdSeconds: HOLD_LIFE * seconds,
        renewSeconds: RENEW_EVERY * seconds,
        sweepSeconds: RENEW_EVERY * seconds,
        recoverySeconds: this.limits.recoveryMs / 1000,
      },
      providers: [{ id: "up", kind: "openai-compatible", baseUrl: this.#upstream.baseUrl, apiKey: "k" }],
      models: [{ id: MODEL, price: PRICES, routes: [{ provider: "up", model: "upstream-model" }] }],
    };
  }
}

/** Opens the disk, the database or the proxy that the data directory needs. */
async function openPlace(
  directory: string,
  { store, diskMegabytes }: SiteOptions,
): Promise<Pick<Site, "postgres" | "disk">> {
  if (store === "postgres") {
    const server = await makePostgresServer({ diskMegabytes });
    return { postgres: { server, proxy: await PostgresProxy.open(server.url) }, disk: server.disk };
  }
  const data = join(directory, "data");
  return {
    postgres: undefined,
    disk: diskMegabytes === undefined ? undefined : await mountSmallDisk(data, diskMegabytes),
  };
}

/** Violations that the checker found. */
export class ViolationError extends Error {
  readonly violations: string[];

  constructor(violations: string[]) {
    super(`${violations.length} violations:\n${violations.slice(0, 8).join("\n")}`);
    this.name = "ViolationError";
    this.violations = violations;
  }
}
