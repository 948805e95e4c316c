import type { WorkerLink } from "./link.ts";

const EVERY_MS = 500;
/** 32 MiB of log: from here on the writer itself pauses for the last pages, so that the log can begin anew. */
const LOG_PAGES_MAX = 8_192;
/** So many between two copies are written under load alone. */
const LOG_PAGES_UNDER_LOAD = 256;

/**
 * Copies the log into the database, on a connection of its own so that the writer does not wait for it. Between
 * writes no timer runs. While writes never cease the log cannot begin anew by this alone: the last pages are always
 * ahead. Past a size the writer therefore copies what little is left, between two batches. Once there is load, the log gets
 * its size at once instead of growing by every commit.
 */
export class Checkpoints {
  readonly #writer: WorkerLink;
  readonly #side: WorkerLink;
  #timer: NodeJS.Timeout | undefined;
  #running: Promise<void> = Promise.resolve();
  #stopped = false;
  /** Tried once: without it commits are slower, and nothing else. */
  #isLengthened = false;

  constructor(writer: WorkerLink, side: WorkerLink) {
    this.#writer = writer;
    this.#side = side;
  }

  /** Says that something was written. */
  noteWrite(): void {
    if (this.#timer !== undefined || this.#stopped) return;
    this.#timer = setTimeout(() => {
      this.#running = this.#run();
    }, EVERY_MS);
    this.#timer.unref();
  }

  /** Ends the regular copying; what remains in the log is copied by the writer, at once. */
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
      // The next write asks again; a store that does not work tells its callers so itself.
    } finally {
      this.#timer = undefined;
    }
  }
}
