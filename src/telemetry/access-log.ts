import pino from "pino";
import type { AccessEntry, AccessLog } from "../contract/log.ts";
import { type LogLevel, withoutTokens } from "./log.ts";

export interface AccessLogOptions {
  level: LogLevel;
  /** Share of the requests that succeeded which get a line, from 0 to 1. */
  sampleRate: number;
  /** Lines of requests that failed, at most; the rest is counted. */
  failuresPerMinute: number;
  /** Numbers from 0 up to 1. */
  random: () => number;
  write?: (lines: string) => void;
}

const WINDOW_MS = 60_000;
/** One organization that fails with one code takes at most this share of a minute's lines. */
const SHARE_OF_ONE = 1 / 10;
const FLUSH_MS = 100;
const FLUSH_CHARACTERS = 64 * 1024;

/** Opens the access log of a process; what it has gathered is written before the process ends. */
export function openAccessLog(options: AccessLogOptions): AccessLog {
  const log = new BoundedAccessLog(options);
  process.once("exit", () => log.flush());
  return log;
}

/**
 * A log with one line a request. Lines are gathered for a tenth of a second and written together. Those of requests that
 * failed are bounded for each minute, so that a flood of them cannot fill a disk; what is left out is counted by code.
 */
export class BoundedAccessLog implements AccessLog {
  readonly #options: AccessLogOptions;
  readonly #logger: pino.Logger;
  readonly #write: (lines: string) => void;
  #lines = "";
  #flushing: NodeJS.Timeout | undefined;
  #isWindowOpen = false;
  /** Lines of failures in this minute. */
  #failures = 0;
  readonly #failuresOf = new Map<string, number>();
  readonly #leftOut = new Map<string, number>();

  constructor(options: AccessLogOptions) {
    this.#options = options;
    this.#write = options.write ?? ((lines) => process.stderr.write(lines));
    const { level } = options;
    const settings = {
      level,
      base: null,
      timestamp: pino.stdTimeFunctions.isoTime,
      formatters: { level: (label: string) => ({ level: label }) },
    };
    this.#logger = pino(settings, { write: (line: string) => this.#gather(line) });
  }

  record(entry: AccessEntry): void {
    const { status, code } = entry;
    const { sampleRate, random } = this.#options;
    if (code === null && status < 400) {
      if (sampleRate >= 1 || random() < sampleRate) this.#logger.info(entry, "request");
    } else if (this.#admits(entry)) {
      // A stream that fails has sent its status already.
      const isRefused = status >= 400 && status < 500;
      this.#logger[isRefused ? "info" : "warn"](entry, "request");
    }
  }

  /** Writes what has been gathered. */
  flush(): void {
    clearTimeout(this.#flushing);
    this.#flushing = undefined;
    const lines = this.#lines;
    this.#lines = "";
    if (lines !== "") this.#write(withoutTokens(lines));
  }

  #gather(line: string): void {
    this.#lines += line;
    if (this.#lines.length >= FLUSH_CHARACTERS) this.flush();
    else this.#flushing ??= setTimeout(() => this.flush(), FLUSH_MS).unref();
  }

  #admits({ status, code, organizationId }: AccessEntry): boolean {
    const { failuresPerMinute } = this.#options;
    if (!this.#isWindowOpen) setTimeout(() => this.#endWindow(), WINDOW_MS).unref();
    this.#isWindowOpen = true;
    const reason = code ?? String(status);
    const key = `${reason} ${organizationId}`;
    const ofOne = this.#failuresOf.get(key) ?? 0;
    const oneMax = Math.max(1, failuresPerMinute * SHARE_OF_ONE);
    if (ofOne < oneMax && this.#failures < failuresPerMinute) {
      this.#failures += 1;
      this.#failuresOf.set(key, ofOne + 1);
      return true;
    }
    this.#leftOut.set(reason, (this.#leftOut.get(reason) ?? 0) + 1);
    return false;
  }

  #endWindow(): void {
    this.#isWindowOpen = false;
    this.#failures = 0;
    this.#failuresOf.clear();
    if (this.#leftOut.size === 0) return;
    const counts = Object.fromEntries(this.#leftOut);
    this.#leftOut.clear();
    this.#logger.warn({ counts, seconds: WINDOW_MS / 1000 }, "failed requests without a line of their own");
  }
}
