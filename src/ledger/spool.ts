import { readdir, rm, statfs } from "node:fs/promises";
import { join } from "node:path";
import { StoreUnavailableError } from "../errors.ts";
import { createDirectory, syncPath } from "../internals/directory.ts";
import { sharedRun } from "../internals/shared-run.ts";
import type { Log } from "../telemetry/logger.ts";
import { FairBudget } from "./fair-budget.ts";
import { RESERVE_BYTES, type SpooledTransition, SpoolFile, toSpoolRecord } from "./spool-file.ts";

const RECORDS = ".jsonl";
const LOCK = ".lock";
const RETRY_FIRST_MS = 100;
const RETRY_MAX_MS = 5_000;
const FAILURE_LOGGED_EVERY_MS = 60_000;
const ALLOCATE_EVERY_MS = 5_000;

export interface SpoolOptions {
  /** Created if it does not exist. */
  directory: string;
  takeLock: TakeLock;
  /** A name that no other spool has ever had. */
  name: string;
  clock: () => number;
  /** Numbers from 0 up to 1. */
  random: () => number;
  log: Log;
}

/** Handles the records that are read from a spool. */
export interface SpoolReader {
  /** Resolves when the transition is booked or a dead letter. Rejects with StoreUnavailableError to retry it later. */
  book(transition: SpooledTransition): Promise<void>;
  /** Stores a line that cannot be parsed. */
  storeDamaged(damagedLine: string): Promise<void>;
}

/** The file of a process, and its lock, which this process has. */
interface OwnedFile {
  file: SpoolFile;
  unlock(): void;
}

/**
 * Stores settlements and releases on the disk while the store is unavailable, for this process or the next one with the same
 * directory to book. Each process has a file there, and a lock file, which shows whether it has ended.
 */
export class Spool {
  readonly #options: SpoolOptions;
  readonly #own: OwnedFile;
  /** Use of the space that is allocated for this process's file. */
  #reserve = new FairBudget(RESERVE_BYTES);
  /** Files of ended processes, by name. Booked ones are removed when the holds of their processes have ended too. */
  readonly #inherited = new Map<string, OwnedFile>();
  #reader: SpoolReader | undefined;
  /** Books the spooled transitions of this process and of ended ones. Resolves to true if none are left; never rejects. */
  readonly replay = sharedRun(() => this.#replayAll());
  #retry: NodeJS.Timeout | undefined;
  #retryMs = RETRY_FIRST_MS;
  #allocation: NodeJS.Timeout | undefined;
  #isStoreUnavailable = false;
  #isInUse = false;
  #stopped: Promise<void> | undefined;
  #failureLoggedAtMs = Number.NEGATIVE_INFINITY;

  private constructor(options: SpoolOptions, own: OwnedFile) {
    this.#options = options;
    this.#own = own;
    if (own.file.isAllocated) return;
    options.log.warn(
      { file: own.file.path },
      "the disk is too full to reserve the spool's space: if it is full when running answers end, they fail",
    );
    this.#allocation = setInterval(() => this.#allocate(), ALLOCATE_EVERY_MS).unref();
  }

  /** Allocates the space that the disk did not have at the start, once it has room. */
  async #allocate(): Promise<void> {
    const { directory, log } = this.#options;
    const { file } = this.#own;
    await requireRoom(directory).then(
      () => file.allocate(),
      () => {},
    );
    if (!file.isAllocated || this.#allocation === undefined) return;
    clearInterval(this.#allocation);
    this.#allocation = undefined;
    log.info({ file: file.path }, "the spool's space is reserved");
  }

  /** Creates this process's file, so that later only disk space can be missing. Rejects with errors of node:fs. */
  static async open(options: SpoolOptions): Promise<Spool> {
    const { directory, name, takeLock } = options;
    createDirectory(directory);
    const path = join(directory, name);
    // The lock is taken first, so that the file is never without an owner.
    const unlock = takeLock(`${path}${LOCK}`);
    if (unlock === undefined) throw new Error(`Another process has the lock of the new spool ${name}`);
    const file = await SpoolFile.create(`${path}${RECORDS}`);
    syncPath(directory);
    return new Spool(options, { file, unlock });
  }

  /** Name of this process as the owner of holds; no other process has ever had it. */
  get name(): string {
    return this.#options.name;
  }

  /** Number of transitions to be booked, including those of ended processes. */
  get entries(): number {
    return this.#inherited.values().reduce((sum, { file }) => sum + file.entries, this.#own.file.entries);
  }

  /** Ended processes whose spools are booked. */
  get endedOwners(): string[] {
    const booked = this.#inherited.entries().filter(([, { file }]) => file.entries === 0);
    return booked.map(([name]) => name).toArray();
  }

  /** Removes the spool of an ended process that has no holds left. Rejects with errors of node:fs. */
  async forgetOwner(name: string): Promise<void> {
    const owned = this.#inherited.get(name);
    this.#inherited.delete(name);
    if (owned !== undefined) await this.#remove(name, owned);
  }

  /** True if the store was unavailable when a transition was last spooled or replayed. */
  get isStoreUnavailable(): boolean {
    return this.#isStoreUnavailable;
  }

  /** Appends a transition, to be booked later. Resolves when it is on the disk; rejects with StoreUnavailableError. */
  async append(transition: SpooledTransition): Promise<void> {
    const record = toSpoolRecord(transition);
    const isWithin = this.#reserve.take(transition.facts.organizationId, record.length);
    try {
      if (!isWithin) await requireRoom(this.#options.directory);
      await this.#own.file.append(record);
    } catch (error) {
      throw new StoreUnavailableError("The spool cannot be written.", { cause: error });
    }
    this.#isStoreUnavailable = true;
    if (!this.#isInUse) {
      this.#isInUse = true;
      const { path: file } = this.#own.file;
      this.#options.log.warn({ file }, "the store is unavailable: settlements go to the spool until it answers again");
    }
    this.#retryLater();
  }

  /** Starts booking the spooled transitions. */
  start(reader: SpoolReader): void {
    this.#reader = reader;
    void this.replay();
  }

  /** Tries once more to book the spooled transitions, and leaves the rest to the next process with this directory. */
  stop(): Promise<void> {
    this.#stopped ??= this.#stop();
    return this.#stopped;
  }

  async #stop(): Promise<void> {
    await this.replay.ended();
    await this.replay();
    clearTimeout(this.#retry);
    clearInterval(this.#allocation);
    const { entries } = this;
    if (entries > 0) {
      const { directory } = this.#options;
      this.#options.log.warn({ entries, directory }, "settlements stay in the spool: the next start books them");
    }
    const left = [...this.#inherited.values()];
    if (this.#own.file.entries > 0) left.push(this.#own);
    else await this.#remove(this.name, this.#own);
    await Promise.all(left.map(({ file, unlock }) => file.close().finally(unlock)));
  }

  async #remove(name: string, { file, unlock }: OwnedFile): Promise<void> {
    await file.remove();
    unlock();
    await this.#removeLock(name);
  }

  /** Removes a lock file. This is safe even if another process takes the lock meanwhile, because names are never reused. */
  #removeLock(name: string): Promise<void> {
    return rm(join(this.#options.directory, `${name}${LOCK}`), { force: true });
  }

  async #replayAll(): Promise<boolean> {
    const reader = this.#reader;
    if (reader === undefined) return this.entries === 0;
    try {
      await this.#replayFile(this.#own.file, reader);
      this.#reserve = new FairBudget(RESERVE_BYTES);
      await this.#takeOver();
      for (const { file } of this.#inherited.values()) await this.#replayFile(file, reader);
    } catch (error) {
      const { clock, log } = this.#options;
      const isLogged = clock() - this.#failureLoggedAtMs < FAILURE_LOGGED_EVERY_MS;
      if (!(error instanceof StoreUnavailableError) && !isLogged) {
        this.#failureLoggedAtMs = clock();
        log.error({ err: error }, "the spool cannot be read: it is retried");
      }
      this.#retryLater();
      return this.entries === 0;
    }
    this.#retryMs = RETRY_FIRST_MS;
    if (this.entries > 0) return false;
    if (this.#isInUse) this.#options.log.info({}, "the spool is empty: all its settlements are booked");
    this.#isInUse = false;
    return true;
  }

  async #takeOver(): Promise<void> {
    const { directory, takeLock, log } = this.#options;
    for (const entry of await readdir(directory)) {
      const name = entry.slice(0, -RECORDS.length);
      if (!entry.endsWith(RECORDS) || name === this.name || this.#inherited.has(name)) continue;
      const unlock = takeLock(join(directory, `${name}${LOCK}`));
      if (unlock === undefined) continue;
      try {
        const file = await SpoolFile.open(join(directory, entry));
        this.#inherited.set(name, { file, unlock });
        if (file.entries === 0) continue;
        this.#isInUse = true;
        const fields = { file: file.path, entries: file.entries };
        log.warn(fields, "the spool of an ended process is taken over: its settlements will be booked");
      } catch (error) {
        unlock();
        if ((error as NodeJS.ErrnoException).code !== "ENOENT") throw error;
        // Its owner or another process has removed it since the directory was read.
        await this.#removeLock(name);
      }
    }
  }

  async #replayFile(file: SpoolFile, reader: SpoolReader): Promise<void> {
    for await (const page of file.pages()) {
      const booked = await Promise.allSettled(page.transitions.map((transition) => reader.book(transition)));
      for (const result of booked) if (result.status === "rejected") throw result.reason;
      for (const line of page.damaged) await reader.storeDamaged(line);
      if (page.isIncomplete) {
        this.#options.log.warn(
          { file: file.path },
          "the spool ends in an incomplete record: it is ignored, because its write was never confirmed",
        );
      }
      this.#isStoreUnavailable = false;
    }
  }

  #retryLater(): void {
    if (this.#retry !== undefined || this.#reader === undefined) return;
    const waitMs = this.#retryMs * (0.5 + this.#options.random() / 2);
    this.#retryMs = Math.min(RETRY_MAX_MS, this.#retryMs * 2);
    this.#retry = setTimeout(() => {
      this.#retry = undefined;
      void this.replay();
    }, waitMs).unref();
  }
}

/** Rejects if the disk is nearly full: beyond its share, an organization may write only while there is room for others. */
async function requireRoom(directory: string): Promise<void> {
  const { bavail, bsize } = await statfs(directory);
  if (bavail * bsize < RESERVE_BYTES) throw new Error("The disk has no room beyond the space of the spool");
}

/** Takes a lock that ends with the process at the latest. Returns its release, or undefined if another process has it. */
export type TakeLock = (path: string) => (() => void) | undefined;
