import { setFlagsFromString } from "node:v8";
import { runInNewContext } from "node:vm";

export interface MemoryReleaseOptions {
  /** Whether no request is being answered. */
  isIdle: () => boolean;
  /** Returns the size of the heap in bytes. */
  heapBytes: () => number;
  /** Collects what can be collected; stops the process for some tenths of a second. */
  collect: () => void;
}

const FIRST_AFTER_MS = 1_000;
/** Rare, because a collection also drops compiled code: the first requests after it are slower. */
const CHECK_EVERY_MS = 60_000;
/** Less is not worth a collection. */
const GROWN_BYTES = 16 * 1024 * 1024;

/**
 * Gives memory back to the system while the service is idle: after the start, and a minute or two after each load. V8
 * itself keeps its young generation, some 30 MB, and freed pages, until it needs them again.
 */
export class MemoryRelease {
  readonly #options: MemoryReleaseOptions;
  #leastBytes = 0;
  #wasIdle = true;
  #timers: NodeJS.Timeout[] = [];

  constructor(options: MemoryReleaseOptions) {
    this.#options = options;
  }

  start(): void {
    this.#timers = [
      setTimeout(() => this.#check(), FIRST_AFTER_MS).unref(),
      setInterval(() => this.#check(), CHECK_EVERY_MS).unref(),
    ];
  }

  stop(): void {
    for (const timer of this.#timers) clearTimeout(timer);
  }

  /** Collects where the service was idle at two checks in a row, and the heap has grown since it last did. */
  #check(): void {
    const { isIdle, heapBytes, collect } = this.#options;
    const wasIdle = this.#wasIdle;
    this.#wasIdle = isIdle();
    if (!this.#wasIdle || !wasIdle || heapBytes() < this.#leastBytes + GROWN_BYTES) return;
    collect();
    this.#leastBytes = heapBytes();
  }
}

/** Makes the function that collects all garbage of this thread and shrinks its heap (Node's `gc`, flavor `last-resort`). */
export function makeCollect(): () => void {
  setFlagsFromString("--expose-gc");
  const gc = runInNewContext("gc") as NodeJS.GCFunction;
  setFlagsFromString("--no-expose-gc");
  return () => void gc({ type: "major", execution: "sync", flavor: "last-resort" });
}
