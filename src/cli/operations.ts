import { type Command, Option } from "commander";
import type { CommandFlags, OperationCommand } from "../operations/command.ts";
import { operations } from "../operations/list.ts";
import { createAdminToken } from "./admin-token.ts";
import { addCommand, type CommonFlags, print, type Terminal } from "./command.ts";
import { listDeadLetters, retryDeadLetters, verifyLedger } from "./ledger.ts";
import { creditsStatement } from "./statement.ts";
import { type Workspace, withWorkspace } from "./workspace.ts";

/** A command that works on an opened store. */
type StoreCommand = OperationCommand<CommandFlags, unknown, Workspace>;

const NOUNS: Record<string, string> = {
  org: "customers and their balances",
  budget: "limits on what requests may spend in a day, a week, a month or in total",
  token: "access tokens of an organization",
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
/** Adds the commands of all operations, and the statement, which is printed while it is read. */
export function addOperations(program: Command, terminal: Terminal): void {
  for (const noun of ["org", "token", "credits"]) nounAt(program, noun);
  const commands = Object.values(operations).flatMap(({ summary, commands = [] }) =>
    commands.map((command) => ({ summary, ...command })),
  );
  for (const command of [...commands, creditsStatement]) addStoreCommand(program, terminal, command);
}

/** Adds the commands that are no operations of the admin API. */
export function addOtherStoreCommands(program: Command, terminal: Terminal): void {
  const commands = [createAdminToken, listDeadLetters, retryDeadLetters, verifyLedger];
  for (const command of commands) addStoreCommand(program, terminal, command);
}

/** Returns the group of commands that some words name. */
function nounAt(program: Command, path: string): Command {
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
