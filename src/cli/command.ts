import { fileURLToPath } from "node:url";
import type { Command } from "commander";
import type { RandomBytes } from "../admin/token.ts";
import { printableLines } from "../api/wording.ts";
import type { Flags } from "../config/sources.ts";
import { ApiError, OperatorError, StoreUnavailableError, UnknownIdError } from "../errors.ts";
import type { CommandOutput } from "../operations/command.ts";

/** Interface of a command to the process that runs it. */
export interface Terminal {
  out(text: string): void;
  /** Resolves when the reader has taken what was printed. Long output waits for it, so that it is not buffered. */
  drained(): Promise<void>;
  error(line: string): void;
  clock: () => number;
  random: RandomBytes;
  /** True if standard output is a terminal, so that a secret in it reaches no log. */
  isInteractive: boolean;
  /** Asks for confirmation; true only for yes. Absent without a terminal. */
  confirm?: ((question: string) => Promise<boolean>) | undefined;
  /** Sets the exit code of the process; the default is 0. */
  exitWith(code: number): void;
}

export interface CommonFlags extends PlaceFlags {
  json?: boolean;
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
  terminal.out(flags.json === true ? JSON.stringify(report.json) : printableLines(report.text));
}

/** A list that is printed as it is read: the name of its field in JSON, and the forms of an entry. */
interface ListForm<Entry> {
  name: string;
  json(entry: Entry): object;
  text(entry: Entry): string;
}

/** Prints a document with a list that may be larger than memory, an entry at a time. */
export function listPrinter<Entry>({ out }: Terminal, { json = false }: CommonFlags, form: ListForm<Entry>) {
  let separator = "";
  return {
    begin(head: object, text?: string): void {
      if (json) out(`${JSON.stringify(head).slice(0, -1)},"${form.name}":[`);
      else if (text !== undefined) out(printableLines(text));
    },
    entry(entry: Entry): void {
      out(json ? `${separator}${JSON.stringify(form.json(entry))}` : printableLines(form.text(entry)));
      separator = ",";
    },
    end: (rest: object, text: string) => out(json ? `],${JSON.stringify(rest).slice(1)}` : printableLines(text)),
  };
}

const LAUNCHER = fileURLToPath(new URL("../../bin/tollgate.js", import.meta.url));
const NEEDS_NO_QUOTES = /^[\w@%+=:,./-]+$/;

/** The flags that decide which service a command is about. */
export type PlaceFlags = Pick<Flags, "config" | "dataDir">;

/** Returns a command line to paste into a POSIX shell: with paths, because neither Node nor the launcher need be on its PATH. */
export function commandText(command: string, { config, dataDir }: PlaceFlags = {}): string {
  const places = Object.entries({ "--config": config, "--data-dir": dataDir });
  const flags = places.flatMap(([flag, value]) => (value === undefined ? [] : [flag, value]));
  return [...[process.execPath, LAUNCHER].map(shellWord), command, ...flags.map(shellWord)].join(" ");
}

/** Returns a text as one word of a shell command. */
export function shellWord(text: string): string {
  return NEEDS_NO_QUOTES.test(text) ? text : `'${text.replaceAll("'", "'\\''")}'`;
}

/** Describes an error, in a line for each mistake; commands that it names get the flags that select the same store. */
export function failureText(thrown: unknown, flags: PlaceFlags = {}): string {
  const error = thrown instanceof ApiError ? (thrown.command ?? thrown) : thrown;
  const message = error instanceof Error ? error.message : String(error);
  const line = message.replaceAll(/\s*\n\s*/g, " ");
  if (error instanceof UnknownIdError)
    return `tollgate: ${line} To list the ids: ${commandText(error.listedBy, flags)}`;
  if (error instanceof OperatorError) return `tollgate: ${message.replaceAll(/\s*\n\s*/g, "\ntollgate: ")}`;
  if (error instanceof ApiError) return `tollgate: ${line}`;
  if (error instanceof StoreUnavailableError) return `tollgate: the store cannot be reached: ${line}`;
  return `tollgate: internal error: ${line}`;
}
