import { fstatSync, writeSync } from "node:fs";
import pino from "pino";

/** The logger that the rest of the service uses. */
export interface Log {
  debug(fields: object, message: string): void;
  info(fields: object, message: string): void;
  warn(fields: object, message: string): void;
  error(fields: object, message: string): void;
}

/** A request in the access log, without secrets and without prompts or answers. */
export interface AccessEntry {
  requestId: string;
  /** The id that the client, or a proxy before the service, gave the request in the header `x-request-id`. */
  clientRequestId?: string | undefined;
  method: string;
  /** Pattern of the matched route, not the requested path; null if no route matched. */
  route: string | null;
  /** HTTP status; 499 if the client disconnected before the answer was complete. */
  status: number;
  /** Error code; null if the request succeeded. */
  code: string | null;
  organizationId: string | null;
  tokenId: string | null;
  model: string | null;
  durationMs: number;
}

export type AccessLog = Pick<BoundedAccessLog, "record">;

export type LogLevel = "fatal" | "error" | "warn" | "info" | "debug" | "silent";

/** Field names that may hold secrets or prompts. */
const SECRET_NAMES = ["authorization", "apiKey", "token", "messages", "password"];
/** Tokens of the service and bearer credentials, removed from every written line as a last safeguard. */
const TOKENS = /((?:sk-tg|tg-admin)-[0-9A-Za-z]{6})[0-9A-Za-z]+|([Bb]earer\s+)[\w\-.~+/]+=*/g;

const WINDOW_MS = 60_000;
const SAME_LINES_MAX = 20;
const MESSAGE_CHARACTERS_MAX = 500;

/**
 * Creates a log of JSON lines, each written before the call returns. Of warnings and errors with the same message, the first
 * 20 in a minute are written and the rest is counted. `err` shows an error without its stack, `defect` with it.
 */
export function createLog(level: LogLevel, write: (line: string) => void = writeToStandardError) {
  const logger = pino(
    {
      base: null,
      formatters: { level: (label) => ({ level: label }) },
      level,
      timestamp: pino.stdTimeFunctions.isoTime,
      redact: { paths: SECRET_NAMES.flatMap((name) => [name, `*.${name}`, `*.*.${name}`]), censor: "[redacted]" },
      serializers: { err: (error) => errorFacts(error, false), defect: (error) => errorFacts(error, true) },
    },
    { write: (line: string) => write(withoutTokens(line)) },
  );
  const bounded = (name: "warn" | "error"): Log["warn"] => {
    const counts = new Map<string, number>();
    const endWindow = (message: string) => {
      const repeated = (counts.get(message) ?? 0) - SAME_LINES_MAX;
      counts.delete(message);
      if (repeated > 0) logger[name]({ repeated, seconds: WINDOW_MS / 1000 }, message);
    };
    return (fields, message) => {
      const count = (counts.get(message) ?? 0) + 1;
      counts.set(message, count);
      if (count === 1) setTimeout(endWindow, WINDOW_MS, message).unref();
      if (count <= SAME_LINES_MAX) logger[name](fields, message);
    };
  };
  return {
    debug: (fields: object, message: string) => logger.debug(fields, message),
    info: (fields: object, message: string) => logger.info(fields, message),
    warn: bounded("warn"),
    error: bounded("error"),
    setLevel: (to: LogLevel) => {
      logger.level = to;
    },
  };
}

/** Replaces all but the first characters of each token in a text. */
export function withoutTokens(text: string): string {
  return text.replace(TOKENS, "$1$2…");
}

const STANDARD_ERROR = 2;
const NEWLINE = 10;
let toFile: ((lines: string) => void) | undefined;

function writeToStandardError(lines: string): void {
  toFile ??= fstatSync(STANDARD_ERROR).isFile()
    ? lineWriter((bytes) => writeSync(STANDARD_ERROR, bytes))
    : (text) => process.stderr.write(text);
  toFile(lines);
}

/**
 * Returns a function that writes lines to a file, whose disk may be full. It drops those that do not fit. The next lines that
 * do begin a line of their own, after one that says how many were dropped. `write` returns the number of bytes that it wrote.
 */
export function lineWriter(write: (bytes: Uint8Array) => number): (lines: string) => void {
  let dropped = 0;
  let isTorn = false;
  return (lines) => {
    const head = Buffer.from((isTorn ? "\n" : "") + (dropped > 0 ? lineOfDropped(dropped) : ""));
    const text = Buffer.from(lines);
    let rest = Buffer.concat([head, text]);
    try {
      while (rest.length > 0) {
        const written = write(rest);
        if (written > 0) isTorn = rest[written - 1] !== NEWLINE;
        rest = rest.subarray(written);
      }
      dropped = 0;
    } catch {
      // The count has been written, so it begins again.
      if (rest.length <= text.length) dropped = 0;
      dropped += text.subarray(-rest.length).filter((byte) => byte === NEWLINE).length;
    }
  };
}

function lineOfDropped(lines: number): string {
  const time = pino.stdTimeFunctions.isoTime();
  return `{"level":"warn"${time},"lines":${lines},"msg":"log lines were lost: they could not be written"}\n`;
}

/** Returns the error's loggable fields. Others may contain anything, and messages of a SyntaxError quote the input. */
function errorFacts(error: unknown, withFrames: boolean): object {
  if (!(error instanceof Error)) return { message: shortened(String(error)) };
  const { name, message, stack, cause } = error;
  return {
    name,
    ...(!(error instanceof SyntaxError) && { message: shortened(message) }),
    ...("code" in error && { code: String(error.code) }),
    ...(withFrames && { stack: framesOf(stack, message) }),
    ...(isLoggable(cause) && { cause: errorFacts(cause, withFrames) }),
  };
}

/** Objects without a name of an error may contain anything, such as the claims of a person. */
function isLoggable(cause: unknown): boolean {
  return cause instanceof Error || (cause !== undefined && typeof cause !== "object");
}

function shortened(text: string): string {
  return text.length > MESSAGE_CHARACTERS_MAX ? `${text.slice(0, MESSAGE_CHARACTERS_MAX)}…` : text;
}

/** Extracts the code positions of a stack, without its message, which may quote a request. */
function framesOf(stack: string | undefined, message: string): string[] {
  const text = stack ?? "";
  const frames = text.slice(text.includes(message) ? text.indexOf(message) + message.length : 0).split("\n");
  return frames.filter((line) => /^ {4}at .*:\d+:\d+\)?$/.test(line)).map((line) => line.trim());
}

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
 * Writes one line per request, gathered for a tenth of a second. Lines of failed requests are limited per minute, so that a
 * flood of them cannot fill a disk; omitted lines are counted by error code.
 */
export class BoundedAccessLog {
  readonly #options: AccessLogOptions;
  #settings: AccessLogSettings;
  readonly #write: (lines: string) => void;
  #lines: string[] = [];
  #flushing: NodeJS.Timeout | undefined;
  #isWindowOpen = false;
  #failures = 0;
  readonly #failuresOf = new Map<string, number>();
  readonly #omitted = new Map<string, number>();

  constructor(options: AccessLogOptions) {
    this.#options = options;
    this.#write = options.write ?? writeToStandardError;
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
    // Both are written apart, because to join them first takes longer than to write them.
    const [own, further] = [entry, fields].map((object) => JSON.stringify(object).slice(1, -1));
    this.#lines.push(
      `{"level":"${level}","time":"${time}",${own},${further}${further === "" ? "" : ","}"msg":"${msg}"}`,
    );
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
