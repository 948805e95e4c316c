import { fileURLToPath } from "node:url";
import type { Command } from "commander";
import type { RandomBytes } from "../admin/token.ts";
import { parseTime } from "../api/time.ts";
import { type MicroCredits, parseCredits } from "../credits/amount.ts";
import { OperatorError } from "../errors.ts";

/** Interface of a command to the process that runs it. */
export interface Terminal {
  out(text: string): void;
  /** Resolves when the reader has taken what was printed. Long output waits for it, so that it is not buffered. */
  drained(): Promise<void>;
  /** Prints an error or a warning as one line. */
  error(line: string): void;
  /** Milliseconds since 1970. */
  clock: () => number;
  random: RandomBytes;
  /** True if standard output is a terminal, so that a secret in it reaches no log. */
  isInteractive: boolean;
  /** Sets the exit code of the process; the default is 0. */
  exitWith(code: number): void;
}

/** The flags that every command has. */
export interface CommonFlags {
  config?: string;
  dataDir?: string;
  json?: boolean;
}

/** Result of a command: one document for programs, a few lines for people. */
export interface CommandOutput {
  json: unknown;
  text: string;
}

/** An id that does not exist; the printed message adds the command that lists the ids. */
export class UnknownIdError extends OperatorError {
  readonly listedBy: string;

  constructor(what: string, id: string, listedBy: string) {
    super(`There is no ${what} with the id ${JSON.stringify(id)}.`);
    this.name = "UnknownIdError";
    this.listedBy = listedBy;
  }
}

/** Adds a command with the flags that every command has. */
export function addCommand(parent: Command, usage: string, description: string): Command {
  return parent
    .command(usage)
    .description(description)
    .option("--config <file>", "configuration file (default: tollgate.yaml, if it is there)")
    .option("--data-dir <directory>", "directory of the embedded store (default: .tollgate)")
    .option("--json", "print one JSON document and nothing else");
}

/** Prints a report as JSON or as text. */
export function print(terminal: Terminal, flags: CommonFlags, report: CommandOutput): void {
  terminal.out(flags.json === true ? JSON.stringify(report.json) : report.text);
}

/** Formats rows under their headings in columns; a column of numbers is aligned to the right. */
export function table(headings: readonly string[], rows: readonly (readonly string[])[]): string {
  const columns = headings.map((heading, index) => {
    const cells = rows.map((row) => row[index] ?? "");
    const isNumeric = cells.length > 0 && cells.every((cell) => /^-?[\d.]+$/.test(cell));
    return { width: Math.max(...[heading, ...cells].map((cell) => cell.length)), isNumeric };
  });
  const line = (cells: readonly string[]) =>
    columns
      .map(({ width, isNumeric }, index) => (cells[index] ?? "")[isNumeric ? "padStart" : "padEnd"](width))
      .join("  ")
      .trimEnd();
  return [headings, ...rows].map(line).join("\n");
}

/** Formats names and values in two columns. */
export function facts(values: Record<string, string>): string {
  const width = Math.max(...Object.keys(values).map((name) => name.length));
  return Object.entries(values)
    .map(([name, value]) => `${name.padEnd(width)}  ${value}`.trimEnd())
    .join("\n");
}

const LAUNCHER = fileURLToPath(new URL("../../bin/tollgate.js", import.meta.url));
const NEEDS_NO_QUOTES = /^[\w@%+=:,./-]+$/;

/** The flags that decide which service a command is about. */
export interface PlaceFlags {
  config?: string | undefined;
  dataDir?: string | undefined;
}

/**
 * Returns a command line that works as it is when pasted into a POSIX shell in the working directory of this process:
 * the running Node and the launcher by their paths, since neither needs to be on the PATH of that shell.
 */
export function commandText(command: string, { config, dataDir }: PlaceFlags = {}): string {
  const flags = [
    ...(config === undefined ? [] : ["--config", config]),
    ...(dataDir === undefined ? [] : ["--data-dir", dataDir]),
  ];
  return [...[process.execPath, LAUNCHER].map(shellWord), command, ...flags.map(shellWord)].join(" ");
}

/** Returns a text as one word of a shell command. */
export function shellWord(text: string): string {
  return NEEDS_NO_QUOTES.test(text) ? text : `'${text.replaceAll("'", "'\\''")}'`;
}

const UNIT_MS = { s: 1_000, m: 60_000, h: 3_600_000, d: 86_400_000, w: 604_800_000 } as const;
const LINE = /^[^\p{Cc}]{1,200}$/u;
const DURATION = /^(\d{1,6})([smhdw])$/;
const DURATION_WORDS = "a number with s, m, h, d or w, such as 90m or 30d";
const DATE_WORDS = "a date as YYYY-MM-DD (from 00:00 UTC on), or a time such as 2030-01-31T18:00:00Z";

/** Parses an amount of credits; 0 is refused unless `orNone`. Throws OperatorError naming the flag or argument. */
export function creditsFlag(flag: string, text: string, options: { orNone: boolean }): MicroCredits {
  const amount = /[eE]/.test(text) ? undefined : parseCredits(text);
  if (amount !== undefined && (options.orNone || amount > 0n)) return amount;
  const least = options.orNone ? "0 or more" : "above 0";
  refuse(flag, text, `a decimal number of credits, ${least}, with at most 6 decimals`);
}

/** Checks a text of one line; null where the flag was not given. Throws OperatorError naming the flag. */
export function textFlag(flag: string, text: string | undefined): string | null {
  if (text === undefined) return null;
  if (LINE.test(text)) return text;
  refuse(flag, text.slice(0, 60), "1 to 200 characters on one line");
}

/** Parses a duration such as `1h` or `0` into milliseconds. Throws OperatorError naming the flag. */
export function durationFlag(flag: string, text: string): number {
  const durationMs = text === "0" ? 0 : parseDuration(text);
  if (durationMs === undefined) refuse(flag, text, DURATION_WORDS);
  return durationMs;
}

/** Parses a date or a time, past or future, into milliseconds since 1970. Throws OperatorError naming the flag. */
export function timeFlag(flag: string, text: string): number {
  return parseTime(text) ?? refuse(flag, text, DATE_WORDS);
}

/** Parses a date or a time in the future into milliseconds since 1970. Throws OperatorError naming the flag. */
export function dateFlag(flag: string, text: string, nowMs: number): number {
  const timeMs = parseTime(text);
  if (timeMs === undefined) refuse(flag, text, DATE_WORDS);
  if (timeMs <= nowMs) refuse(flag, text, "a time in the future");
  return timeMs;
}

/** Parses a date or a time in the future, or a duration from now on, into milliseconds since 1970. Throws OperatorError naming the flag. */
export function expiryFlag(flag: string, text: string, nowMs: number): number {
  const durationMs = parseDuration(text);
  if (durationMs === undefined && parseTime(text) === undefined) {
    refuse(flag, text, `${DURATION_WORDS}, or ${DATE_WORDS}`);
  }
  if (durationMs === 0) refuse(flag, text, "a time in the future");
  return durationMs === undefined ? dateFlag(flag, text, nowMs) : nowMs + durationMs;
}

function parseDuration(text: string): number | undefined {
  const [, count, unit] = DURATION.exec(text) ?? [];
  return unit === undefined ? undefined : Number(count) * UNIT_MS[unit as keyof typeof UNIT_MS];
}

function refuse(flag: string, found: string, allowed: string): never {
  throw new OperatorError(`${flag} is ${JSON.stringify(found)}, but must be ${allowed}.`);
}
