import { Command, CommanderError, Help, Option } from "commander";
import { printableLines } from "../api/wording.ts";
import type { CommandFlags, OperationCommand } from "../operations/command.ts";
import { operations } from "../operations/list.ts";
import { createAdminToken } from "./admin-token.ts";
import { applyOrganizations } from "./apply.ts";
import { addCommand, type CommonFlags, failureText, type PlaceFlags, print, type Terminal } from "./command.ts";
import { addConfig } from "./config.ts";
import { addImport } from "./import.ts";
import { csvImports } from "./import-csv.ts";
import { listDeadLetters, retryDeadLetters, verifyLedger } from "./ledger.ts";
import { addModels } from "./models.ts";
import { printMargins, reconcileBooks } from "./reconcile.ts";
import { addRetention } from "./retention.ts";
import { addServe } from "./serve.ts";
import { creditsStatement } from "./statement.ts";
import { addStore } from "./store.ts";
import { type Workspace, withWorkspace } from "./workspace.ts";

const EXIT_FAILURE = 1;
const EXIT_USAGE = 2;

/** Returns the whole command line; each noun has a file. */
export function createProgram(terminal: Terminal, version: string): Command {
  const program = new Command("tollgate")
    .description("A chat completion service with prepaid credits.")
    .version(version)
    .exitOverride()
    .configureHelp({ optionDescription })
    .configureOutput({
      writeOut: (text) => terminal.out(text.trimEnd()),
      writeErr: (text) => terminal.error(text.trimEnd()),
      outputError: (text, write) => write(usageLine(text)),
    })
    // Commander prints only the help where a command is missing, or is unknown to `help`.
    .addHelpText("beforeAll", ({ error, command: { args } }) => {
      return error ? usageLine(args.length > 1 ? `unknown command '${args[1]}'` : "a command is missing") : "";
    });
  addServe(program, terminal, version);
  for (const add of [addOperations, addModels, addOtherStoreCommands, addImport, addRetention, addStore, addConfig]) {
    add(program, terminal);
  }
  return program;
}

const help = new Help();

function optionDescription(option: Option): string {
  return `${help.optionDescription(option)}${option.mandatory ? " (required)" : ""}`;
}

/** Runs one command line and returns the exit code of the process. Never rejects. */
export async function runCommandLine(words: readonly string[], process: Omit<Terminal, "exitWith">, version: string) {
  let exitCode = 0;
  const terminal: Terminal = {
    ...process,
    error: (line) => process.error(printableLines(line)),
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
    terminal.error(failureText(error, flags));
    return EXIT_FAILURE;
  }
}

function usageLine(text: string): string {
  const message = text
    .trim()
    .replace(/^error: /, "")
    .replace(/\.$/, "")
    .replaceAll(/\s*\n\s*/g, " ");
  return `tollgate: ${message}; add --help for the usage`;
}

type StoreCommand = OperationCommand<CommandFlags, unknown, Workspace>;

const NOUNS: Record<string, string> = {
  org: "customers and their balances",
  budget: "limits on what requests may spend in a day, a week, a month or in total",
  token: "access tokens of an organization",
  statement: "monthly statements, which never change",
  credits: "credits of an organization",
  "credits allowance": "monthly allowances",
  identity: "people and callers whom an identity provider identifies",
  operator: "people who administer the service, each with a token and a role",
  session: "open sessions of the console",
  receiver: "webhooks and mail addresses that receive warnings",
  admin: "administration of the service",
  ledger: "verification of the books, and charges that could not be booked",
  "ledger dead-letters": "charges that could not be booked",
};
function addOperations(program: Command, terminal: Terminal): void {
  for (const noun of ["org", "token", "credits"]) nounAt(program, noun);
  const commands = Object.values(operations).flatMap(({ summary, commands = [] }) =>
    commands.map((command) => ({ summary, ...command })),
  );
  for (const command of [...commands, creditsStatement]) addStoreCommand(program, terminal, command);
}

function addOtherStoreCommands(program: Command, terminal: Terminal): void {
  const commands = [
    applyOrganizations,
    ...csvImports,
    createAdminToken,
    listDeadLetters,
    retryDeadLetters,
    verifyLedger,
    reconcileBooks,
    printMargins,
  ];
  for (const command of commands) addStoreCommand(program, terminal, command);
}

function nounAt(program: Command, path: string): Command {
  if (path === "") return program;
  const word = path.split(" ").at(-1) ?? "";
  const parent = path === word ? program : nounAt(program, path.slice(0, -word.length - 1));
  return parent.commands.find((noun) => noun.name() === word) ?? parent.command(word).description(NOUNS[path] ?? "");
}

function addStoreCommand(program: Command, terminal: Terminal, command: StoreCommand): void {
  const words = command.usage.split(" ");
  const verb = words.findLastIndex((word) => /^\w/.test(word));
  const noun = nounAt(program, words.slice(0, verb).join(" "));
  const added = addCommand(noun, words.slice(verb).join(" "), command.summary ?? "");
  const names = Object.entries(command.flags).map(([name, flag]) => {
    if (!flag.usage.startsWith("-")) return { name, flag, given: null };
    const option = new Option(flag.usage, flag.description).default(flag.byDefault);
    added.addOption(option.makeOptionMandatory(flag.isRequired === true));
    return { name, flag, given: option.attributeName() };
  });
  added.action(async () => {
    const flags = added.opts<CommonFlags & Record<string, unknown>>();
    const words = [...added.processedArgs];
    const nowMs = terminal.clock();
    const values = Object.fromEntries(
      names.map(({ name, flag, given }) => [name, flag.read(given === null ? words.shift() : flags[given], nowMs)]),
    );
    const input = command.input?.(values, flags) ?? values;
    const work = async (workspace: Workspace) => {
      const output = await command.run(workspace, input);
      if (output !== undefined) print(terminal, flags, output);
    };
    await withWorkspace(terminal, flags, work, command.createsStore);
  });
}
