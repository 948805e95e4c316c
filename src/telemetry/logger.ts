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

export interface AccessLog {
  /** Records a request, with further fields of its line. */
  record(entry: AccessEntry, fields?: object): void;
}

/** A log whose level can be changed. */
export interface LeveledLog extends Log {
  setLevel(level: LogLevel): void;
}

export type LogLevel = "fatal" | "error" | "warn" | "info" | "debug" | "silent";

/** Field names that may hold secrets or prompts. */
const SECRET_NAMES = ["authorization", "apiKey", "token", "messages", "password"];
/** Tokens of the service and bearer credentials, removed from every written line as a last safeguard. */
const TOKENS = /((?:sk-tg|tg-admin)-[0-9A-Za-z]{6})[0-9A-Za-z]+|([Bb]earer\s+)[\w\-.~+/]+=*/g;

const WINDOW_MS = 60_000;
const SAME_LINES_MAX = 20;
const MESSAGE_CHARACTERS_MAX = 500;

/**
 * Creates a log of JSON lines, by default to standard error. Each line is written before the call returns, so that a crash
 * loses none. Of warnings and errors with the same message, the first 20 in a minute are written and the rest is counted.
 * The field `err` shows an error without its stack; `defect` shows where in the code it was thrown.
 */
export function createLog(level: LogLevel, write: (line: string) => void = writeToStandardError): LeveledLog {
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
    debug: (fields, message) => logger.debug(fields, message),
    info: (fields, message) => logger.info(fields, message),
    warn: bounded("warn"),
    error: bounded("error"),
    setLevel: (to) => {
      logger.level = to;
    },
  };
}

/** Replaces all but the first characters of each token in a text. */
export function withoutTokens(text: string): string {
  return text.replace(TOKENS, "$1$2…");
}

function writeToStandardError(line: string): void {
  process.stderr.write(line);
}

/**
 * Returns the error's loggable fields. Other properties may contain anything and are omitted. Messages of a SyntaxError are
 * omitted because parsers quote their input.
 */
function errorFacts(error: unknown, withFrames: boolean): object {
  if (!(error instanceof Error)) return { message: shortened(String(error)) };
  const { name, message, stack, cause } = error;
  return {
    name,
    ...(!(error instanceof SyntaxError) && { message: shortened(message) }),
    ...("code" in error && { code: String(error.code) }),
    ...(withFrames && { stack: framesOf(stack, message) }),
    ...(cause !== undefined && { cause: errorFacts(cause, withFrames) }),
  };
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
