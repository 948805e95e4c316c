import { readdir, rm } from "node:fs/promises";
import { join } from "node:path";
import { StoreUnavailableError } from "../errors.ts";
import type { Log } from "../telemetry/logger.ts";
import { exists, makeDirectory, syncDirectory } from "./directory.ts";
import { type SpooledTransition, SpoolFile, type SpoolPage, toRecord } from "./spool-file.ts";

const RECORDS = ".jsonl";
const LOCK = ".lock";
const RETRY_FIRST_MS = 100;
const RETRY_MAX_MS = 5_000;
const FAILURE_LOGGED_EVERY_MS = 60_000;

export interface SpoolOptions {
  /** Made where it is missing. */
  directory: string;
  takeLock: TakeLock;
  /** A name that no other spool ever had. */
  name: string;
  clock: () => number;
  /** Numbers from 0 up to 1. */
  random: () => number;
  log: Log;
}

/** What becomes of what is read from a spool. */
export interface SpoolReader {
  /** Resolves when the transition is booked, or put aside for good; rejects with StoreUnavailableError to be asked again. */
  book(transition: SpooledTransition): Promise<void>;
  /** Keeps a line that cannot be read. */
  keep(damagedLine: string): Promise<void>;
}

/**
 * Settlements and releases that the store could not take, on the disk until it can. They are booked in the background,
 * by hold id and so once, as soon as the store answers: by this process, or by the next one on its directory.
 */
export class Spool {
  readonly #options: SpoolOptions;
  readonly #directory: SpoolDirectory;
  readonly #own: OwnedFile;
  /** Of processes that have ended. */
  #inherited: OwnedFile[] = [];
  /** Those of them that are booked; they stand there until their holds have ended too. */
  readonly #booked = new Map<string, OwnedFile>();
  #reader: SpoolReader | undefined;
  #replay: Promise<boolean> | undefined;
  #retry: NodeJS.Timeout | undefined;
  #retryMs = RETRY_FIRST_MS;
  #isStoreAway = false;
  #isInUse = false;
  #stopped: Promise<void> | undefined;
  #failureLoggedAtMs = Number.NEGATIVE_INFINITY;

  private constructor(options: SpoolOptions, directory: SpoolDirectory, own: OwnedFile) {
    this.#options = options;
    this.#directory = directory;
    this.#own = own;
  }

  /** Makes this process's file, so that later nothing but room on the disk can be missing. Rejects as node:fs does. */
  static async open(options: SpoolOptions): Promise<Spool> {
    const directory = await SpoolDirectory.open(options.directory, options.takeLock);
    return new Spool(options, directory, await directory.create(options.name));
  }

  /** The name of this process's file, which no other process ever had. */
  get name(): string {
    return this.#options.name;
  }

  /** Transitions that wait to be booked, those of ended processes too. */
  get entries(): number {
    let entries = this.#own.file.entries;
    for (const { file } of this.#inherited) entries += file.entries;
    return entries;
  }

  /** Processes that have ended and of whose spools everything is booked. */
  get endedOwners(): string[] {
    return [...this.#booked.keys()];
  }

  /** Removes the file of a process that has ended: nothing of it is left to be done. Rejects as node:fs does. */
  async forgetOwner(name: string): Promise<void> {
    const owned = this.#booked.get(name);
    this.#booked.delete(name);
    await owned?.remove();
  }

  /** Whether the store was away when it was last asked to take what waits here. */
  get isStoreAway(): boolean {
    return this.#isStoreAway;
  }

  /** Resolves when the transition is on the disk, to be booked later. Rejects with StoreUnavailableError. */
  async append(transition: SpooledTransition): Promise<void> {
    try {
      await this.#own.file.append(toRecord(transition));
    } catch (error) {
      throw new StoreUnavailableError("The spool cannot be written.", { cause: error });
    }
    this.#isStoreAway = true;
    this.#noteUse();
    this.#retryLater();
  }

  /** Begins to book what waits and what comes. */
  start(reader: SpoolReader): void {
    this.#reader = reader;
    void this.replay();
  }

  /**
   * Books what waits, and what other processes left behind by now, as far as the store takes it. Never rejects: whether
   * nothing waits any more.
   */
  replay(): Promise<boolean> {
    this.#replay ??= this.#replayAll().finally(() => {
      this.#replay = undefined;
    });
    return this.#replay;
  }

  /** Tries once more to book what waits, and leaves the rest to the next process on this directory. */
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
      this.#options.log.warn({ file, entries }, "settlements that another process left in its spool are taken over");
    }
  }

  async #replayFile({ file }: OwnedFile, reader: SpoolReader): Promise<void> {
    for (let page = await file.read(); page !== undefined; page = await file.read()) {
      await this.#bookPage(file.path, page, reader);
      this.#isStoreAway = false;
      file.pass(page);
    }
  }

  async #bookPage(file: string, page: SpoolPage, reader: SpoolReader): Promise<void> {
    const booked = await Promise.allSettled(page.transitions.map((transition) => reader.book(transition)));
    for (const result of booked) if (result.status === "rejected") throw result.reason;
    for (const line of page.damaged) await reader.keep(line);
    if (page.isTorn) {
      this.#options.log.warn({ file }, "the spool ends in a torn record, of which nobody was told that it was kept");
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
    this.#options.log.warn({ file }, "the store does not take settlements: they go to the spool until it does");
  }

  #noteEmpty(): void {
    if (!this.#isInUse || this.entries > 0) return;
    this.#isInUse = false;
    this.#options.log.info({}, "the spool is empty: the store has taken all that waited in it");
  }

  #noteFailure(error: unknown): void {
    if (error instanceof StoreUnavailableError) return;
    const { clock, log } = this.#options;
    if (clock() - this.#failureLoggedAtMs < FAILURE_LOGGED_EVERY_MS) return;
    this.#failureLoggedAtMs = clock();
    log.error({ err: error }, "the spool cannot be read; it is tried again");
  }
}

/** Takes a lock that ends with the process, at the latest; undefined where another process has it. */
export type TakeLock = (path: string) => (() => void) | undefined;

/** A spool of this process: nobody else touches its file until it is closed or removed. */
export interface OwnedFile {
  /** That of its process, which no other process ever had. */
  name: string;
  file: SpoolFile;
  /** Leaves the file to whoever comes next. */
  close(): Promise<void>;
  remove(): Promise<void>;
}

/** The folder that the spools of all processes on a data directory stand in, each beside its lock. */
export class SpoolDirectory {
  readonly #path: string;
  readonly #takeLock: TakeLock;
  /** Of the files that this process has. */
  readonly #names = new Set<string>();

  private constructor(path: string, takeLock: TakeLock) {
    this.#path = path;
    this.#takeLock = takeLock;
  }

  /** Makes the folder where it is missing. Rejects as node:fs does. */
  static async open(path: string, takeLock: TakeLock): Promise<SpoolDirectory> {
    await makeDirectory(path);
    return new SpoolDirectory(path, takeLock);
  }

  /** A new, empty file. The lock comes first, so that the file is at no moment without its owner. */
  async create(name: string): Promise<OwnedFile> {
    const unlock = this.#takeLock(this.#lockOf(name));
    if (unlock === undefined) throw new Error(`Another process has the lock of the new spool ${name}`);
    const file = await SpoolFile.create(join(this.#path, `${name}${RECORDS}`));
    await syncDirectory(this.#path);
    return this.#owned(name, file, unlock);
  }

  /** Takes over the files whose processes have ended; those of processes that live, this one too, are not touched. */
  async takeOver(): Promise<OwnedFile[]> {
    const taken: OwnedFile[] = [];
    for (const entry of await readdir(this.#path)) {
      if (!entry.endsWith(RECORDS)) continue;
      const name = entry.slice(0, -RECORDS.length);
      if (this.#names.has(name)) continue;
      const unlock = this.#takeLock(this.#lockOf(name));
      if (unlock === undefined) continue;
      // Since the folder was read, its owner or another process may have done away with it.
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

  /** Names are never used again, so that a lock without its file guards nothing, whoever takes it meanwhile. */
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
