import pino from "pino";
import type { Log } from "../contract/log.ts";

export type LogLevel = "fatal" | "error" | "warn" | "info" | "debug" | "silent";

/** Names under which secrets, or what people wrote to a model, could come into a line. */
const SECRET_NAMES = ["authorization", "apiKey", "token", "messages", "password"];
/** The last guard, over the written line: the service's own tokens and whatever followed a `Bearer`. */
const TOKENS = /((?:sk-tg|tg-admin)-[0-9A-Za-z]{6})[0-9A-Za-z]+|([Bb]earer\s+)[\w\-.~+/]+=*/g;

/** A log of JSON lines, by default to standard error. Each line is written before the call returns: the last one before a crash counts most. */
export function createLog(level: LogLevel, write: (line: string) => void = writeToStandardError): Log {
  return pino(
    {
      level,
      base: null,
      timestamp: pino.stdTimeFunctions.isoTime,
      formatters: { level: (label) => ({ level: label }) },
      redact: { paths: SECRET_NAMES.flatMap((name) => [name, `*.${name}`, `*.*.${name}`]), censor: "[redacted]" },
      serializers: { err: errorFacts },
    },
    { write: (line: string) => write(line.replace(TOKENS, "$1$2…")) },
  );
}

function writeToStandardError(line: string): void {
  process.stderr.write(line);
}

/** What a line tells of an error; not its other properties, which may hold anything. */
function errorFacts(error: unknown): object {
  if (!(error instanceof Error)) return { message: String(error) };
  const { name, message, stack, cause } = error;
  const code = "code" in error ? { code: String(error.code) } : {};
  return { name, message, ...code, stack, ...(cause === undefined ? {} : { cause: errorFacts(cause) }) };
}
