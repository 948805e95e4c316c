import { type AccessEntry, type AccessLog, type LogLevel, withoutTokens } from "./logger.ts";

/** Settings that can change while the log is open. */
export interface AccessLogSettings {
  level: LogLevel;
  /** Share of successful requests that are logged, from 0 to 1. */
  sampleRate: number;
  /** Maximum number of lines for failed requests; the rest is counted. */
  failuresPerMinute: number;
}

export interface AccessLogOptions extends AccessLogSettings {
  /** Milliseconds since 1970. */
  clock: () => number;
  /** Numbers from 0 up to 1. */
  random: () => number;
  write?: (lines: string) => void;
}

/** A level hides the lines of those before it. */
const LEVELS: readonly LogLevel[] = ["debug", "info", "warn", "error", "fatal", "silent"];
const WINDOW_MS = 60_000;
/** Maximum share of a minute's lines for one organization and one error code. */
const SHARE_OF_ONE = 1 / 10;
const FLUSH_MS = 100;
const FLUSH_LINES = 256;

/** Opens the access log of a process. Gathered lines are written before the process exits. */
export function openAccessLog(options: AccessLogOptions): BoundedAccessLog {
  const log = new BoundedAccessLog(options);
  process.once("exit", () => log.flush());
  return log;
}

/**
 * Writes one line per request, in the format of the service's log. Lines are gathered for a tenth of a second and written
 * together. Lines of failed requests are limited per minute, so that a flood of them cannot fill a disk; omitted lines are
 * counted by error code.
 */
export class BoundedAccessLog implements AccessLog {
  readonly #options: AccessLogOptions;
  #settings: AccessLogSettings;
  readonly #write: (lines: string) => void;
  #lines: string[] = [];
  #flushing: NodeJS.Timeout | undefined;
  #isWindowOpen = false;
  /** Lines of failed requests in this minute. */
  #failures = 0;
  readonly #failuresOf = new Map<string, number>();
  readonly #omitted = new Map<string, number>();

  constructor(options: AccessLogOptions) {
    this.#options = options;
    this.#write = options.write ?? ((lines) => process.stderr.write(lines));
    this.#settings = options;
  }

  configure(settings: AccessLogSettings): void {
    this.#settings = settings;
  }

  record(entry: AccessEntry, fields: object = {}): void {
    const level = this.#levelOf(entry);
    if (level !== undefined) this.#gather(level, entry, fields, "request");
  }

  /** Returns the level of a request's line; undefined if it is not written. */
  #levelOf(entry: AccessEntry): "info" | "warn" | undefined {
    const { status, code } = entry;
    const { sampleRate } = this.#settings;
    if (code === null && status < 400) {
      return sampleRate >= 1 || this.#options.random() < sampleRate ? "info" : undefined;
    }
    if (!this.#admits(entry)) return undefined;
    // A failed stream has already sent a status below 400.
    return status >= 400 && status < 500 ? "info" : "warn";
  }

  /** Writes the gathered lines. */
  flush(): void {
    clearTimeout(this.#flushing);
    this.#flushing = undefined;
    if (this.#lines.length === 0) return;
    const text = `${this.#lines.join("\n")}\n`;
    this.#lines = [];
    this.#write(withoutTokens(text));
  }

  /** Each line is one text: pino makes it of some fifty, which would live until the line is written. */
  #gather(level: "info" | "warn", entry: object, fields: object, msg: string): void {
    if (LEVELS.indexOf(level) < LEVELS.indexOf(this.#settings.level)) return;
    const time = new Date(this.#options.clock()).toISOString();
    this.#lines.push(JSON.stringify({ level, time, ...entry, ...fields, msg }));
    if (this.#lines.length >= FLUSH_LINES) this.flush();
    else this.#flushing ??= setTimeout(() => this.flush(), FLUSH_MS).unref();
  }

  #admits({ status, code, organizationId }: AccessEntry): boolean {
    const { failuresPerMinute } = this.#settings;
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
    this.#omitted.set(reason, (this.#omitted.get(reason) ?? 0) + 1);
    return false;
  }

  #endWindow(): void {
    this.#isWindowOpen = false;
    this.#failures = 0;
    this.#failuresOf.clear();
    if (this.#omitted.size === 0) return;
    const counts = Object.fromEntries(this.#omitted);
    this.#omitted.clear();
    const fields = { counts, seconds: WINDOW_MS / 1000 };
    this.#gather("warn", fields, {}, "failed requests that were not logged");
  }
}
