import type { Log } from "../../src/telemetry/logger.ts";

export interface LogLine {
  level: keyof Log;
  fields: Record<string, unknown>;
  message: string;
}

/** A logger that keeps its lines. */
export function keepLog(): Log & { lines: LogLine[]; messages(level: keyof Log): string[] } {
  const lines: LogLine[] = [];
  const keep = (level: keyof Log) => (fields: object, message: string) => {
    lines.push({ level, fields: { ...fields }, message });
  };
  return {
    lines,
    messages: (level) => lines.filter((line) => line.level === level).map(({ message }) => message),
    debug: keep("debug"),
    info: keep("info"),
    warn: keep("warn"),
    error: keep("error"),
  };
}
