import { fileURLToPath } from "node:url";
import type { Command } from "commander";
import type { RandomBytes } from "../admin/token.ts";
import { OperatorError } from "../errors.ts";

/** What a command has of the world around it. */
export interface Terminal {
  out(text: string): void;
  /** Resolves when the reader has taken what was printed: whoever prints much waits for it, and needs no memory for it. */
  drained(): Promise<void>;
  /** For a mistake or a warning, one line each. */
  error(line: string): void;
  /** Milliseconds since 1970. */
  clock: () => number;
  random: RandomBytes;
  /** Whether a person reads standard output, so that a secret in it is in no log. */
  isInteractive: boolean;
  /** Sets what the process ends with; without it, 0. */
  exitWith(code: number): void;
}

/** The flags that every command has. */
export interface CommonFlags {
  config?: string;
  dataDir?: string;
  json?: boolean;
}

/** What a command found out: one document for programs, a few lines for people. */
export interface Report {
  json: unknown;
  text: string;
}

/** An id that the store does not have; the message that a person sees adds the command that lists those that it has. */
export class UnknownIdError extends OperatorError {
  readonly listedBy: string;

  constructor(what: string, id: string, listedBy: string) {
    super(`${what}: found ${JSON.stringify(id)}`);
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

/** Prints a report as the flags ask for it. */
export function print(terminal: Terminal, flags: CommonFlags, report: Report): void {
  terminal.out(flags.json === true ? JSON.stringify(report.json) : report.text);
}

/** Rows under their headings in aligned columns; a column whose cells are all numbers stands to the right. */
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

/** Names and values in two columns. */
export function facts(values: Record<string, string>): string {
  const width = Math.max(...Object.keys(values).map((name) => name.length));
  return Object.entries(values)
    .map(([name, value]) => `${name.padEnd(width)}  ${value}`.trimEnd())
    .join("\n");
}

/** A time as commands print it, null where there is none. */
export function isoTime(timeMs: number): string;
export function isoTime(timeMs: number | null): string | null;
export function isoTime(timeMs: number | null): string | null {
  return timeMs === null ? null : new Date(timeMs).toISOString();
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

function shellWord(text: string): string {
  return NEEDS_NO_QUOTES.test(text) ? text : `'${text.replaceAll("'", "'\\''")}'`;
}
