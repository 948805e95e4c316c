import { createHash } from "node:crypto";
import { type FSWatcher, realpathSync, watch } from "node:fs";
import { readFile, stat } from "node:fs/promises";
import { basename, dirname } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";

export interface FileWatchOptions {
  /** Called when the content of a file has changed, and once at the start. Never rejects. */
  onChange(): Promise<void>;
  /** Interval of the search for changes that the system does not report, such as those on network file systems. */
  pollMs?: number;
  /** Time without a change after which files count as completely written. */
  settleMs?: number;
}

const POLL_MS = 10_000;
const SETTLE_MS = 100;
const FILE_BYTES_MAX = 4 * 1024 * 1024;

/**
 * Watches the contents of files. The directories are watched, not the files: editors replace a file by renaming another one,
 * and Kubernetes replaces a symbolic link in its folder. A change counts when two readings of all files are equal. Does not
 * keep the process alive.
 */
export class FileWatch {
  readonly #options: FileWatchOptions;
  readonly #settleMs: number;
  readonly #stopping = new AbortController();
  #files: ReadonlySet<string> = new Set();
  /** Contents at the last call of `onChange`, as hashes by file. */
  #known = "";
  #watchers: FSWatcher[] = [];
  #poll: NodeJS.Timeout | undefined;
  #timer: NodeJS.Timeout | undefined;
  #checking: Promise<void> | undefined;

  constructor(options: FileWatchOptions) {
    this.#options = options;
    this.#settleMs = options.settleMs ?? SETTLE_MS;
  }

  start(files: ReadonlySet<string>): void {
    this.watch(files);
    this.#poll = setInterval(() => this.#check(), this.#options.pollMs ?? POLL_MS).unref();
    this.#checkSoon();
  }

  /** Replaces the list of files. */
  watch(files: ReadonlySet<string>): void {
    if (this.#stopping.signal.aborted) return;
    this.#files = files;
    this.#unwatch();
    for (const [directory, names] of directoriesOf(files)) {
      try {
        const watcher = watch(directory, { persistent: false }, (_type, name) => {
          if (name === null || names.has(name)) this.#checkSoon();
        });
        // The directory was removed; the next search finds out what became of its files.
        watcher.on("error", () => watcher.close());
        this.#watchers.push(watcher);
      } catch {
        // There is no such directory, or the system watches too many: the search finds changes.
      }
    }
  }

  /** Resolves when a check that is running has ended. */
  async stop(): Promise<void> {
    this.#stopping.abort();
    this.#unwatch();
    clearInterval(this.#poll);
    clearTimeout(this.#timer);
    await this.#checking;
  }

  #unwatch(): void {
    for (const watcher of this.#watchers.splice(0)) watcher.close();
  }

  #checkSoon(): void {
    if (this.#stopping.signal.aborted) return;
    this.#timer ??= setTimeout(() => {
      this.#timer = undefined;
      this.#check();
    }, this.#settleMs).unref();
  }

  #check(): void {
    if (this.#checking !== undefined) {
      this.#checkSoon();
      return;
    }
    this.#checking = this.#compare().finally(() => {
      this.#checking = undefined;
    });
  }

  async #compare(): Promise<void> {
    const { signal } = this.#stopping;
    const first = await hashesOf(this.#files);
    if (first === this.#known || signal.aborted) return;
    await sleep(this.#settleMs, undefined, { signal, ref: false }).catch(() => undefined);
    const second = await hashesOf(this.#files);
    if (signal.aborted) return;
    if (first === second) {
      this.#known = second;
      await this.#options.onChange();
    } else this.#checkSoon();
  }
}

/** The symbolic link that Kubernetes replaces when a ConfigMap or a Secret changes. */
const KUBERNETES_LINK = "..data";

/** Returns the directories in which a change can replace one of the files, with the names to look for in each. */
function directoriesOf(files: Iterable<string>): Map<string, Set<string>> {
  const directories = new Map<string, Set<string>>();
  const add = (file: string) => {
    const names = directories.get(dirname(file)) ?? new Set([KUBERNETES_LINK]);
    directories.set(dirname(file), names.add(basename(file)));
  };
  for (const file of files) {
    add(file);
    try {
      add(realpathSync(file));
    } catch {
      // There is no such file yet.
    }
  }
  return directories;
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
