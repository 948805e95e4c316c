import { Command, CommanderError } from "commander";
import { ApiError, OperatorError, StoreUnavailableError, UnknownIdError } from "../errors.ts";
import { commandText, type PlaceFlags, type Terminal } from "./command.ts";
import { addConfig } from "./config.ts";
import { addModels } from "./models.ts";
import { addOperations, addOtherStoreCommands } from "./operations.ts";
import { addRetention } from "./retention.ts";
import { addServe } from "./serve.ts";
import { addStore } from "./store.ts";

const EXIT_FAILURE = 1;
const EXIT_USAGE = 2;

/** Returns the whole command line; each noun has a file. */
export function createProgram(terminal: Terminal, version: string): Command {
  const program = new Command("tollgate")
    .description("A chat completion service with prepaid credits.")
    .version(version)
    .exitOverride()
    .configureOutput({
      writeOut: (text) => terminal.out(text.trimEnd()),
      writeErr: (text) => terminal.error(text.trimEnd()),
      outputError: (text, write) => write(usageLine(text)),
    });
  addServe(program, terminal, version);
  for (const add of [addOperations, addModels, addOtherStoreCommands, addRetention, addStore, addConfig]) {
    add(program, terminal);
  }
  return program;
}

/** Runs one command line and returns the exit code of the process. Never rejects. */
export async function runCommandLine(
  words: readonly string[],
  process: Omit<Terminal, "exitWith">,
  version: string,
): Promise<number> {
  let exitCode = 0;
  const terminal: Terminal = {
    ...process,
    exitWith: (code) => {
      exitCode = code;
    },
  };
  let flags: PlaceFlags = {};
  try {
    const program = createProgram(terminal, version).hook("preAction", (_program, command) => {
      flags = command.opts();
    });
    await program.parseAsync(words, { from: "user" });
    return exitCode;
  } catch (error) {
    if (error instanceof CommanderError) return error.exitCode === 0 ? 0 : EXIT_USAGE;
    terminal.error(failureLine(error, flags));
    return EXIT_FAILURE;
  }
}

/** Returns Commander's message in one line, with a hint to the usage. */
function usageLine(text: string): string {
  const message = text
    .trim()
    .replace(/^error: /, "")
    .replace(/\.$/, "")
    .replaceAll(/\s*\n\s*/g, " ");
  return `tollgate: ${message}; add --help for the usage`;
}

/** Describes an error in one line; commands that it names get the flags that select the same store. */
export function failureLine(thrown: unknown, flags: PlaceFlags = {}): string {
  const error = thrown instanceof ApiError ? (thrown.command ?? thrown) : thrown;
  const message = error instanceof Error ? error.message : String(error);
  const line = message.replaceAll(/\s*\n\s*/g, " ");
  if (error instanceof UnknownIdError) {
    return `tollgate: ${line} To list the ids: ${commandText(error.listedBy, flags)}`;
  }
  if (error instanceof OperatorError || error instanceof ApiError) return `tollgate: ${line}`;
  if (error instanceof StoreUnavailableError) return `tollgate: the store cannot be reached: ${line}`;
  return `tollgate: internal error: ${line}`;
}
