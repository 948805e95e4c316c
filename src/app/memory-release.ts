import { setFlagsFromString } from "node:v8";
import { runInNewContext } from "node:vm";
import type { RequestCounts } from "../http/shutdown.ts";

export interface MemoryReleaseOptions {
  /** Returns how many requests are being answered, and how many have begun since the start, those for health aside. */
  requests: () => RequestCounts;
  /** Returns the size of the heap in bytes. */
  heapBytes: () => number;
  /** Collects what can be collected; stops the process for some tenths of a second. */
  collect: () => void;
}

const FIRST_AFTER_MS = 1_000;
/** Long, because a collection also drops compiled code: the requests that follow are slower for some seconds. */
const CHECK_EVERY_MS = 60_000;
/** Less is not worth a collection. */
const GROWN_BYTES = 16 * 1024 * 1024;

/**
 * Gives memory back to the system while the service is idle: a second after the start, and whenever no request has come
 * for a minute. V8 itself keeps its young generation, some 30 MB, and freed pages, until it needs them again.
 */
export class MemoryRelease {
  readonly #options: MemoryReleaseOptions;
  #leastBytes = 0;
  #begunAtLastCheck = 0;
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

  /** Collects if no request has come since the last check, none is running, and the heap has grown since it last did. */
  #check(): void {
    const { requests, heapBytes, collect } = this.#options;
    const { running, begun } = requests();
    const isIdle = running === 0 && begun === this.#begunAtLastCheck;
    this.#begunAtLastCheck = begun;
    if (!isIdle || heapBytes() < this.#leastBytes + GROWN_BYTES) return;
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
