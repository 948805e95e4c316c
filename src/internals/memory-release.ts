import { setFlagsFromString } from "node:v8";
import { runInNewContext } from "node:vm";

export interface MemoryReleaseOptions {
  /** Returns how many requests are being answered, and how many have begun since the start, without health checks. */
  requests: () => { running: number; begun: number };
  /** Returns the size of the heap in bytes. */
  heapBytes: () => number;
  /** Collects what can be collected; stops the process for some tenths of a second. */
  release: () => void;
}

/** Long, because a collection also drops compiled code, which makes the load that follows slower at first. */
const CHECK_EVERY_MS = 60_000;
/** Sooner, because little code is compiled yet. */
const FIRST_CHECK_MS = 5_000;
/** Least growth of the heap that is worth a collection. */
const GROWN_BYTES = 16 * 1024 * 1024;
/** 23 days; V8 takes integers of 32 bits. */
const NEVER_MS = 2_000_000_000;

/**
 * Returns memory to the system after a minute without requests, and after a start that no request follows. This replaces
 * V8's own collections of an idle process, see {@link disableIdleCollections}.
 */
export class MemoryRelease {
  readonly #options: MemoryReleaseOptions;
  #leastBytes = 0;
  #begunAtLastCheck = 0;
  #timer: NodeJS.Timeout | undefined;

  constructor(options: MemoryReleaseOptions) {
    this.#options = options;
  }

  start(): void {
    this.#timer = setTimeout(() => {
      this.#check();
      this.#timer = setInterval(() => this.#check(), CHECK_EVERY_MS).unref();
    }, FIRST_CHECK_MS).unref();
  }

  stop(): void {
    clearInterval(this.#timer);
  }

  /** Collects if no request has come since the last check, none is running, and the heap has grown since it last did. */
  #check(): void {
    const { requests, heapBytes, release } = this.#options;
    const { running, begun } = requests();
    const isIdle = running === 0 && begun === this.#begunAtLastCheck;
    this.#begunAtLastCheck = begun;
    if (!isIdle || heapBytes() < this.#leastBytes + GROWN_BYTES) return;
    release();
    this.#leastBytes = heapBytes();
  }
}

/**
 * Turns off the collections that V8 itself makes to save memory some seconds after a load. They drop the hidden classes of
 * objects that only exist while requests run, and with them the compiled code of everything that handles a request.
 */
export function disableIdleCollections(): void {
  // With a count of 0 (--memory-reducer-gc-count) the heap would grow more slowly too, and be collected twice as often.
  setFlagsFromString(`--memory-reducer-delay-ms=${NEVER_MS}`);
  setFlagsFromString(`--gc-memory-reducer-start-delay-ms=${NEVER_MS}`);
}

/** Makes the function that collects all garbage of this thread and shrinks its heap (Node's `gc`, flavor `last-resort`). */
export function makeCollect(): () => void {
  setFlagsFromString("--expose-gc");
  const gc = runInNewContext("gc") as NodeJS.GCFunction;
  setFlagsFromString("--no-expose-gc");
  return () => void gc({ type: "major", execution: "sync", flavor: "last-resort" });
}
