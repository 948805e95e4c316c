import { readdir, rm, statfs } from "node:fs/promises";
import { join } from "node:path";
import { StoreUnavailableError } from "../errors.ts";
import type { Log } from "../telemetry/logger.ts";
import { FairBudget } from "./fair-budget.ts";
import {
  createDurableDirectory,
  exists,
  RESERVE_BYTES,
  type SpooledTransition,
  SpoolFile,
  type SpoolPage,
  syncDirectory,
  toSpoolRecord,
} from "./spool-file.ts";

const RECORDS = ".jsonl";
const LOCK = ".lock";
const RETRY_FIRST_MS = 100;
const RETRY_MAX_MS = 5_000;
const FAILURE_LOGGED_EVERY_MS = 60_000;

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

/**
 * Stores settlements and releases on the disk while the store is unavailable. They are booked in the background as soon as
 * the store answers, by this process or by the next one with the same directory. Booking is idempotent by hold id.
 */
export class Spool {
  readonly #options: SpoolOptions;
  readonly #directory: SpoolDirectory;
  readonly #own: OwnedFile;
  /** Use of the space that is allocated for this process's file. */
  #reserve = new FairBudget(RESERVE_BYTES);
  /** Files of ended processes. */
  #inherited: OwnedFile[] = [];
  /** Booked files of ended processes. They are removed when the holds of their processes have ended too. */
  readonly #booked = new Map<string, OwnedFile>();
  #reader: SpoolReader | undefined;
  #replay: Promise<boolean> | undefined;
  #retry: NodeJS.Timeout | undefined;
  #retryMs = RETRY_FIRST_MS;
  #isStoreUnavailable = false;
  #isInUse = false;
  #stopped: Promise<void> | undefined;
  #failureLoggedAtMs = Number.NEGATIVE_INFINITY;

  private constructor(options: SpoolOptions, directory: SpoolDirectory, own: OwnedFile) {
    this.#options = options;
    this.#directory = directory;
    this.#own = own;
  }

  /** Creates this process's file, so that later only disk space can be missing. Rejects with errors of node:fs. */
  static async open(options: SpoolOptions): Promise<Spool> {
    const directory = await SpoolDirectory.open(options.directory, options.takeLock);
    return new Spool(options, directory, await directory.create(options.name));
  }

  /** Name of this process as the owner of holds; no other process has ever had it. */
  get name(): string {
    return this.#options.name;
  }

  /** Number of transitions to be booked, including those of ended processes. */
  get entries(): number {
    let entries = this.#own.file.entries;
    for (const { file } of this.#inherited) entries += file.entries;
    return entries;
  }

  /** Ended processes whose spools are booked. */
  get endedOwners(): string[] {
    return [...this.#booked.keys()];
  }

  /** Removes the spool of an ended process that has no holds left. Rejects with errors of node:fs. */
  async forgetOwner(name: string): Promise<void> {
    const owned = this.#booked.get(name);
    this.#booked.delete(name);
    await owned?.remove();
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
    this.#noteUse();
    this.#retryLater();
  }

  /** Starts booking the spooled transitions. */
  start(reader: SpoolReader): void {
    this.#reader = reader;
    void this.replay();
  }

  /**
   * Books the spooled transitions of this process and of ended processes, as far as the store is available. Resolves to true
   * if none are left; never rejects.
   */
  replay(): Promise<boolean> {
    this.#replay ??= this.#replayAll().finally(() => {
      this.#replay = undefined;
    });
    return this.#replay;
  }

  /** Tries once more to book the spooled transitions, and leaves the rest to the next process with this directory. */
  stop(): Promise<void> {
    this.#stopped ??= this.#stop();
    return this.#stopped;
  }

  async #stop(): Promise<void> {
    await this.#replay;
    await this.replay();
    clearTimeout(this.#retry);
    const { entries } = this;
    if (entries > 0) {
      const { directory } = this.#options;
      this.#options.log.warn({ entries, directory }, "settlements stay in the spool: the next start books them");
    }
    const { file } = this.#own;
    const left = [...this.#inherited, ...this.#booked.values()];
    await Promise.all([
      ...left.map((owned) => owned.close()),
      file.entries > 0 ? this.#own.close() : this.#own.remove(),
    ]);
  }

  async #replayAll(): Promise<boolean> {
    const reader = this.#reader;
    if (reader === undefined) return this.entries === 0;
    try {
      await this.#replayFile(this.#own, reader);
      this.#reserve = new FairBudget(RESERVE_BYTES);
      await this.#inherit();
      for (const owned of this.#inherited) {
        await this.#replayFile(owned, reader);
        this.#booked.set(owned.name, owned);
        this.#inherited = this.#inherited.filter((other) => other !== owned);
      }
    } catch (error) {
      this.#noteFailure(error);
      this.#retryLater();
      return this.entries === 0;
    }
    this.#retryMs = RETRY_FIRST_MS;
    this.#noteEmpty();
    return this.entries === 0;
  }

  async #inherit(): Promise<void> {
    for (const owned of await this.#directory.takeOver()) {
      this.#inherited.push(owned);
      const { path: file, entries } = owned.file;
      if (entries === 0) continue;
      this.#isInUse = true;
      this.#options.log.warn(
        { file, entries },
        "the spool of an ended process is taken over: its settlements will be booked",
      );
    }
  }

  async #replayFile({ file }: OwnedFile, reader: SpoolReader): Promise<void> {
    for (let page = await file.read(); page !== undefined; page = await file.read()) {
      await this.#bookPage(file.path, page, reader);
      this.#isStoreUnavailable = false;
      file.pass(page);
    }
  }

  async #bookPage(file: string, page: SpoolPage, reader: SpoolReader): Promise<void> {
    const booked = await Promise.allSettled(page.transitions.map((transition) => reader.book(transition)));
    for (const result of booked) if (result.status === "rejected") throw result.reason;
    for (const line of page.damaged) await reader.storeDamaged(line);
    if (page.isIncomplete) {
      this.#options.log.warn(
        { file },
        "the spool ends in an incomplete record: it is ignored, because its write was never confirmed",
      );
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

  #noteUse(): void {
    if (this.#isInUse) return;
    this.#isInUse = true;
    const { path: file } = this.#own.file;
    this.#options.log.warn({ file }, "the store is unavailable: settlements go to the spool until it answers again");
  }

  #noteEmpty(): void {
    if (!this.#isInUse || this.entries > 0) return;
    this.#isInUse = false;
    this.#options.log.info({}, "the spool is empty: all its settlements are booked");
  }

  #noteFailure(error: unknown): void {
    if (error instanceof StoreUnavailableError) return;
    const { clock, log } = this.#options;
    if (clock() - this.#failureLoggedAtMs < FAILURE_LOGGED_EVERY_MS) return;
    this.#failureLoggedAtMs = clock();
    log.error({ err: error }, "the spool cannot be read: it is retried");
  }
}

/**
 * Rejects if the disk is nearly full. An organization that has used its share of the allocated space may write only while the
 * disk has room for the others.
 */
async function requireRoom(directory: string): Promise<void> {
  const { bavail, bsize } = await statfs(directory);
  if (bavail * bsize < RESERVE_BYTES) throw new Error("The disk has no room beyond the space of the spool");
}

/** Takes a lock that ends with the process at the latest. Returns its release, or undefined if another process has it. */
export type TakeLock = (path: string) => (() => void) | undefined;

/** A spool file locked by this process: no other process uses it until it is closed or removed. */
export interface OwnedFile {
  /** Name of the process that created it. */
  name: string;
  file: SpoolFile;
  /** Closes the file and leaves it to the next process. */
  close(): Promise<void>;
  remove(): Promise<void>;
}

/** Directory with the spool files of all processes that use a data directory, and a lock file for each. */
export class SpoolDirectory {
  readonly #path: string;
  readonly #takeLock: TakeLock;
  /** Names of the files that this process has open. */
  readonly #names = new Set<string>();

  private constructor(path: string, takeLock: TakeLock) {
    this.#path = path;
    this.#takeLock = takeLock;
  }

  /** Opens the directory, and creates it if it does not exist. Rejects with errors of node:fs. */
  static async open(path: string, takeLock: TakeLock): Promise<SpoolDirectory> {
    await createDurableDirectory(path);
    return new SpoolDirectory(path, takeLock);
  }

  /** Creates an empty file. The lock is taken first, so that the file is never without an owner. */
  async create(name: string): Promise<OwnedFile> {
    const unlock = this.#takeLock(this.#lockOf(name));
    if (unlock === undefined) throw new Error(`Another process has the lock of the new spool ${name}`);
    const file = await SpoolFile.create(join(this.#path, `${name}${RECORDS}`));
    await syncDirectory(this.#path);
    return this.#owned(name, file, unlock);
  }

  /** Takes over the files of ended processes. */
  async takeOver(): Promise<OwnedFile[]> {
    const taken: OwnedFile[] = [];
    for (const entry of await readdir(this.#path)) {
      if (!entry.endsWith(RECORDS)) continue;
      const name = entry.slice(0, -RECORDS.length);
      if (this.#names.has(name)) continue;
      const unlock = this.#takeLock(this.#lockOf(name));
      if (unlock === undefined) continue;
      // Its owner or another process may have removed it since the directory was read.
      const path = join(this.#path, entry);
      if (await exists(path)) taken.push(this.#owned(name, await openOrUnlock(path, unlock), unlock));
      else await this.#removeLock(name, unlock);
    }
    return taken;
  }

  #owned(name: string, file: SpoolFile, unlock: () => void): OwnedFile {
    this.#names.add(name);
    const leave = () => {
      this.#names.delete(name);
      unlock();
    };
    return {
      name,
      file,
      close: () => file.close().finally(leave),
      remove: async () => {
        await file.remove();
        await this.#removeLock(name, leave);
      },
    };
  }

  /** Removes a lock file. This is safe even if another process takes the lock meanwhile, because names are never reused. */
  async #removeLock(name: string, unlock: () => void): Promise<void> {
    unlock();
    await rm(this.#lockOf(name), { force: true });
  }

  #lockOf(name: string): string {
    return join(this.#path, `${name}${LOCK}`);
  }
}

async function openOrUnlock(path: string, unlock: () => void): Promise<SpoolFile> {
  try {
    return await SpoolFile.open(path);
  } catch (error) {
    unlock();
    throw error;
  }
}
