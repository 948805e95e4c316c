import { mkdir, open, readdir, rm, stat } from "node:fs/promises";
import { dirname, join, resolve } from "node:path";
import { SpoolFile } from "./file.ts";

const RECORDS = ".jsonl";
const LOCK = ".lock";

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

/** Makes a folder for its owner alone, so that it outlives a loss of power. */
export async function makeDirectory(path: string): Promise<void> {
  const whole = resolve(path);
  try {
    // Not `recursive`: Node tries without end where a file system such as /proc refuses folders with ENOENT.
    await mkdir(whole, { mode: 0o700 });
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException;
    if (code === "EEXIST" && (await stat(whole)).isDirectory()) return;
    if (code !== "ENOENT" || (await exists(dirname(whole)))) throw error;
    await makeDirectory(dirname(whole));
    return makeDirectory(whole);
  }
  await syncDirectory(dirname(whole));
}

/** A new file outlives a loss of power once the folder that names it is on the disk. */
export async function syncDirectory(path: string): Promise<void> {
  // Windows cannot open a folder, and writes its names at once.
  if (process.platform === "win32") return;
  const handle = await open(path, "r");
  try {
    await handle.sync();
  } finally {
    await handle.close();
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

async function exists(path: string): Promise<boolean> {
  return stat(path).then(
    () => true,
    () => false,
  );
}
