import type { WorkerLink } from "./link.ts";

const EVERY_MS = 500;
/** 32 MiB of log: beyond it, the writer copies the last pages itself, so that the log can start over. */
const LOG_PAGES_MAX = 8_192;
/** Only load writes so many pages between two checkpoints. */
const LOG_PAGES_UNDER_LOAD = 256;

/**
 * Copies the log into the database, on a connection of its own, so that the writer does not wait. No timer runs while
 * nothing is written. Under continuous writes the log cannot start over by this alone, because its last pages are never
 * copied. Beyond a size, the writer therefore copies the rest between two batches. Under load the log gets its full size at
 * once instead of growing with every commit.
 */
export class Checkpoints {
  readonly #writer: WorkerLink;
  readonly #side: WorkerLink;
  #timer: NodeJS.Timeout | undefined;
  #running: Promise<void> = Promise.resolve();
  #stopped = false;
  /** Tried once: if it fails, commits are only slower. */
  #isLengthened = false;

  constructor(writer: WorkerLink, side: WorkerLink) {
    this.#writer = writer;
    this.#side = side;
  }

  /** Schedules a checkpoint after a write. */
  noteWrite(): void {
    if (this.#timer !== undefined || this.#stopped) return;
    this.#timer = setTimeout(() => {
      this.#running = this.#run();
    }, EVERY_MS);
    this.#timer.unref();
  }

  /** Stops the timer; the writer copies the rest of the log at once. */
  async stop(): Promise<void> {
    this.#stopped = true;
    clearTimeout(this.#timer);
    await this.#running;
    if (this.#writer.running)
      await this.#writer.request({ kind: "checkpoint", mode: "TRUNCATE" }).catch(() => undefined);
  }

  async #run(): Promise<void> {
    try {
      const { logPages } = await this.#side.request({ kind: "checkpoint", mode: "PASSIVE" });
      if (logPages > LOG_PAGES_UNDER_LOAD && !this.#isLengthened) {
        this.#isLengthened = true;
        await this.#writer.request({ kind: "lengthen" });
      }
      if (logPages > LOG_PAGES_MAX) await this.#writer.request({ kind: "checkpoint", mode: "PASSIVE" });
    } catch {
      // The next write tries again; a store that does not work reports that to its callers itself.
    } finally {
      this.#timer = undefined;
    }
  }
}
