import type { Command } from "commander";
import type { RandomBytes } from "../admin/token.ts";
import { type MicroCredits, parseCredits } from "../credits/amount.ts";
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

/** An amount of credits, 0 or more. Throws OperatorError naming the flag or argument. */
export function creditsFlag(flag: string, text: string, options: { orNone: boolean }): MicroCredits {
  const amount = /[eE]/.test(text) ? undefined : parseCredits(text);
  if (amount !== undefined && (options.orNone || amount > 0n)) return amount;
  const least = options.orNone ? "0 or more" : "above 0";
  throw new OperatorError(
    `${flag}: found ${JSON.stringify(text)}; allowed: a decimal number of credits, ${least}, with at most 6 decimals`,
  );
}

const LINE = /^[^\p{Cc}]{1,200}$/u;

/** A text on one line, or null where the flag was not given. Throws OperatorError naming the flag. */
export function textFlag(flag: string, text: string | undefined): string | null {
  if (text === undefined) return null;
  if (LINE.test(text)) return text;
  throw new OperatorError(
    `${flag}: found ${JSON.stringify(text.slice(0, 60))}; allowed: 1 to 200 characters on one line`,
  );
}
