import { copyFile, mkdir, mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import {
  makeBudgeted,
  makeOrganization,
  type ProcessOptions,
  type ServiceProcess,
  startProcess,
} from "../support/service.ts";
import type { Limits, TrialActions } from "./actions.ts";
import { type Books, readBooks, readFile, type Source } from "./books.ts";
import { Checker } from "./checker.ts";
import { type Call, Clients, MODEL, repeatedOf, type Sent } from "./client.ts";
import { openPlace, type Place, type PlaceOptions } from "./place.ts";
import { PRICES } from "./prices.ts";
import { readRecords } from "./records.ts";
import { lockBalances, lockFile, slowFile } from "./stores.ts";
import { startUpstreamProcess, type UpstreamProcess } from "./upstream.ts";

export interface SiteOptions extends PlaceOptions {
  /** Factor by which the lives of holds, their renewals and sweeps are shorter than by default. */
  shortenedBy: number;
  /** Duration of requests as a share of their duration in a soak test. */
  streamShare: number;
  /** Maximum delay between an event and its record on a busy machine; Infinity to check nothing by the clock. */
  slackMs: number;
  /** Time that the service may take for any action. */
  patienceMs: number;
  /** Checkout of an earlier version, from which services start unless a trial upgrades them. */
  before?: string | undefined;
  /** Duration of the load of a trial that may be long; the trial chooses it by default. */
  loadMs?: number | undefined;
  /** Time past its expiry for which other nodes leave a hold open; shortened like the other times by default. */
  recoveryMs?: number;
}

interface NodeOptions {
  dataDir: string;
  port?: number | undefined;
  config?: object;
  isProxied?: boolean;
  /** True to start this version where the others are of an earlier one. */
  isUpgraded?: boolean;
}

/** Default times, in seconds. */
const HOLD_LIFE = 120;
const RECOVERY = 480;
const RENEW_EVERY = 10;
/** Default time for which credits may stay held after a restart on the same directory. */
const LOCKED_LONGEST = 30;
/** The same without a restart on the directory: a life, the recovery time, and a life in which the hold is unchanged. */
const LOCKED_LONGEST_ALONE = HOLD_LIFE + RECOVERY + HOLD_LIFE + 30;
const CREDITS = "1000000";
const ORGANIZATIONS = 2;

/** A trial whose requests have ended, and whose holds may still be open. */
interface Pending extends TrialActions {
  trial: string;
  /** Time for which credits may stay held from now, or from a later restart on. */
  lockedLongestMs: number;
  /** Time at which all holds must have ended. */
  dueAt: number;
}

/** The environment of trials: directory, upstream, clients, store, and the service that is killed repeatedly. */
export class Site {
  readonly directory: string;
  readonly options: SiteOptions;
  readonly limits: Limits;
  readonly clients: Clients;
  readonly postgres: Place["postgres"];
  readonly disk: Place["disk"];
  organizations: Call["organization"][] = [];
  /** Organizations that a trial created for itself. */
  #otherOrganizations: Call["organization"][] = [];
  /** Time to readiness after each kill. */
  readonly readyAfterMs: number[] = [];
  /** Outcomes of the requests of all trials, as their clients saw them. */
  readonly answers = new Map<string, number>();
  readonly #upstream: UpstreamProcess;
  #service: ServiceProcess | undefined;
  #checker: Checker;
  #pending: Pending[] = [];
  /** Output of services that have ended. */
  #printed = "";

  private constructor(
    directory: string,
    options: SiteOptions,
    { upstream, postgres, disk }: Place & { upstream: UpstreamProcess },
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

  get service(): ServiceProcess {
    if (this.#service === undefined) throw new Error("no service runs");
    return this.#service;
  }

  /** The data directory, as the service sees it. */
  get dataDir(): string {
    return join(this.directory, "data");
  }

  /** Command that runs a program with access to the data directory, if it needs one. */
  get #launcher(): string[] | undefined {
    return this.postgres === undefined ? this.disk?.launcher : undefined;
  }

  /** Data directory of a second service on the same database. */
  get otherDataDir(): string {
    return join(this.directory, "other");
  }

  /** Environment with which a command finds the store. */
  get commandWords(): string[] {
    return ["--data-dir", this.dataDir, "--config", join(this.directory, "tollgate.yaml")];
  }

  /** Creates new organizations for the next trials, so that the books of each stay small. */
  async makeOrganizations(): Promise<void> {
    this.#checker = new Checker(this.limits);
    this.#otherOrganizations = [];
    this.organizations = await Promise.all(
      Array.from({ length: ORGANIZATIONS }, () => makeBudgeted(this.service, CREDITS)),
    );
  }

  /** Creates an organization for one trial; its books are checked too. `credits` is a decimal text. */
  async makeOrganization(credits: string): Promise<Call["organization"]> {
    const organization = await makeOrganization(this.service, credits);
    this.#otherOrganizations.push(organization);
    return organization;
  }

  /**
   * Starts a second service on the same PostgreSQL, with its own data directory. `isProxied`: it uses the same proxy as the
   * first one.
   */
  startNeighbor({ isProxied = false } = {}): Promise<ServiceProcess> {
    return this.startNode({ dataDir: this.otherDataDir, isProxied });
  }

  /** Starts a service on the same PostgreSQL, with more configuration, on a port of its own or the given one. */
  startNode({ dataDir, port, config, isProxied, isUpgraded }: NodeOptions): Promise<ServiceProcess> {
    const { postgres } = this;
    if (postgres === undefined) throw new Error("only PostgreSQL serves several nodes");
    const database = isProxied ? postgres.proxy.url : postgres.server.url;
    const all = { ...this.#config(), database, ...config };
    const checkout = isUpgraded ? undefined : this.options.before;
    return startProcess({ ...this.serviceOptions, dataDir, configDir: dataDir, port, config: all, checkout });
  }

  /** Starts the service on the existing data. Resolves when it is ready, with the time that took. */
  async start(options: Partial<ProcessOptions> = {}): Promise<number> {
    const startedAt = performance.now();
    this.#service = await startProcess({ ...this.serviceOptions, ...options });
    // Each restart on the directory starts the wait for the holds of earlier ones again.
    for (const pending of this.#pending) pending.dueAt = Date.now() + pending.lockedLongestMs;
    return performance.now() - startedAt;
  }

  /** Options for starting the service. */
  get serviceOptions(): ProcessOptions {
    return {
      dataDir: this.dataDir,
      configDir: this.directory,
      launcher: this.#launcher,
      checkout: this.options.before,
      config: this.#config(),
      awaits: "/readyz",
    };
  }

  /** Kills the service, and reads the holds that it leaves open. Returns the time of the kill. */
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

  /** Stops the service gracefully. Returns its exit code. */
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

  /** Releases the waiting streams of a trial. */
  letGo(trial: string): Promise<void> {
    return this.#upstream.letGo(trial);
  }

  send(calls: Call[]): Sent[] {
    return calls.map((call) => this.clients.send(this.service.baseUrl, call));
  }

  /** Repeats the requests that carry a key, as a disconnected client does. Resolves when all have ended. */
  async repeat(sent: Sent[]): Promise<void> {
    const keyed = sent.map(({ call }) => call).filter((call) => call.idempotencyKey !== undefined);
    const calls = keyed.map(({ leavesAfterWords: _left, ...call }) => ({ ...call, isRepeated: true }));
    await Promise.all(this.send(calls).map(({ ended }) => ended));
  }

  /** Resolves when the service is ready and its spool is empty. */
  async untilReady(): Promise<void> {
    const until = Date.now() + this.options.patienceMs;
    for (;;) {
      const answer = await fetch(`${this.service.url}/readyz`);
      const ready = (await answer.json()) as { spool?: { entries: number } };
      if (answer.status === 200 && (ready.spool?.entries ?? 0) === 0) return;
      if (Date.now() > until) throw new Error(`/readyz still says ${answer.status} ${JSON.stringify(ready)}`);
      await sleep(50);
    }
  }

  /** Blocks the service's writes to the store. Returns the release. */
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

  /** Delays each use of the store by this time. Returns the function that ends the delay. */
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
   * Hands a trial to the checker; its charges are checked when its holds have ended. `isAbandoned`: no service was started
   * again on the data directory of the service that was used.
   */
  addTrial(
    trial: string,
    {
      killedAt,
      bookedAt,
      storeWasUnavailable = false,
      wasSuspended = false,
      lacksCredits = false,
      isAbandoned = false,
    }: Partial<Omit<TrialActions, "records" | "repeated">> & { isAbandoned?: boolean },
  ): void {
    const records = readRecords(this.directory, trial);
    const repeated = readRecords(this.directory, repeatedOf(trial));
    for (const { client } of [...records.values(), ...repeated.values()]) {
      const became = client.end === "error" ? `${client.status} ${client.code}` : `${client.end}`;
      this.answers.set(became, (this.answers.get(became) ?? 0) + 1);
    }
    const lockedLongest = isAbandoned ? LOCKED_LONGEST_ALONE : LOCKED_LONGEST;
    const lockedLongestMs = (lockedLongest * 1000) / this.options.shortenedBy + this.options.patienceMs;
    const actions = { records, repeated, killedAt, bookedAt, storeWasUnavailable, wasSuspended, lacksCredits };
    this.#pending.push({ trial, ...actions, lockedLongestMs, dueAt: Date.now() + lockedLongestMs });
  }

  /**
   * Checks the books and every trial whose holds have ended. Rejects with all faults. `all`: waits for the holds of every
   * trial for as long as they may be open.
   */
  async judge({ all = false, mayForgetOpenHolds = false } = {}): Promise<void> {
    for (;;) {
      const books = await this.readBooks();
      const faults = this.#checker.checkBooks(books, { mayForgetOpenHolds });
      for (const pending of [...this.#pending]) faults.push(...this.#judgeOne(pending, books));
      if (faults.length > 0) throw new ViolationError(faults);
      if (!all || this.#pending.length === 0) return;
      await sleep(500);
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

  /** Ends all processes. The directory is kept after a fault. */
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

/** Faults found by the checker. */
export class ViolationError extends Error {
  readonly violations: string[];

  constructor(violations: string[]) {
    super(`${violations.length} violations:\n${violations.slice(0, 8).join("\n")}`);
    this.name = "ViolationError";
    this.violations = violations;
  }
}
