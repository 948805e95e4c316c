import { createHash } from "node:crypto";
import { readFile, stat } from "node:fs/promises";
import { setTimeout as sleep } from "node:timers/promises";

export interface FileWatchOptions {
  /** Called when the content of a file has changed, and once at the start. Never rejects. */
  onChange(): Promise<void>;
  /** Pause between two readings. */
  pollMs?: number;
}

const POLL_MS = 250;
const FILE_BYTES_MAX = 4 * 1024 * 1024;

/**
 * Watches the contents of files by reading them, which also finds a change on a network file system, of a file that a
 * rename replaces, and of one behind a symbolic link that Kubernetes replaces. A change counts when two readings in a row
 * are equal, so that no file is half written. Does not keep the process alive.
 */
export class FileWatch {
  readonly #options: FileWatchOptions;
  readonly #stopping = new AbortController();
  #files: ReadonlySet<string> = new Set();
  #running: Promise<void> | undefined;

  constructor(options: FileWatchOptions) {
    this.#options = options;
  }

  start(files: ReadonlySet<string>): void {
    this.watch(files);
    this.#running = this.#run();
  }

  /** Replaces the list of files. */
  watch(files: ReadonlySet<string>): void {
    this.#files = files;
  }

  /** Resolves when a check that is running has ended. */
  async stop(): Promise<void> {
    this.#stopping.abort();
    await this.#running;
  }

  async #run(): Promise<void> {
    const { onChange, pollMs = POLL_MS } = this.#options;
    const { signal } = this.#stopping;
    let known = "";
    let last = "";
    while (!signal.aborted) {
      const found = await hashesOf(this.#files);
      if (found === last && found !== known && !signal.aborted) {
        known = found;
        await onChange();
      }
      last = found;
      await sleep(pollMs, undefined, { signal, ref: false }).catch(() => undefined);
    }
  }
}

async function hashesOf(files: Iterable<string>): Promise<string> {
  const hashes = await Promise.all([...files].sort().map(async (file) => [file, await hashOf(file)]));
  return JSON.stringify(hashes);
}

async function hashOf(file: string): Promise<string> {
  try {
    const found = await stat(file);
    // Reading a pipe would take what is in it, and wait for more.
    if (!found.isFile() || found.size > FILE_BYTES_MAX) return "unreadable";
    return createHash("sha256")
      .update(await readFile(file))
      .digest("hex");
  } catch (error) {
    return String((error as NodeJS.ErrnoException).code);
  }
}
