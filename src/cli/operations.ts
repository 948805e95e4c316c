import { type Command, Option } from "commander";
import type { CommandServices, OperationCommand } from "../operations/command.ts";
import { operations } from "../operations/list.ts";
import { addCommand, type CommonFlags, print, type Terminal } from "./command.ts";
import { addStatement } from "./statement.ts";
import { withWorkspace } from "./workspace.ts";

const NOUNS: Record<string, string> = {
  org: "customers and their balances",
  token: "access tokens of an organization",
  credits: "credits of an organization",
  "credits allowance": "monthly allowances",
};
/** Commands that help lists first; the others follow in the order of the operations. */
const FIRST = ["create", "update", "list", "grant", "show", "revoke", "credit", "allowance"];

/** Adds the commands of all operations, and the statement, which is printed while it is read. */
export function addOperations(program: Command, terminal: Terminal): void {
  const nouns = new Map<string, Command>();
  const nounOf = (path: string): Command => {
    const word = path.split(" ").at(-1) ?? "";
    const parent = path === word ? program : nounOf(path.slice(0, -word.length - 1));
    const noun = nouns.get(path) ?? parent.command(word).description(NOUNS[path] ?? "");
    nouns.set(path, noun);
    return noun;
  };
  for (const noun of Object.keys(NOUNS).filter((path) => !path.includes(" "))) nounOf(noun);
  const commands = Object.values(operations).flatMap((operation) => operation.commands ?? []);
  for (const command of commands.sort((a, b) => rankOf(a) - rankOf(b))) {
    const words = command.usage.split(" ");
    const verb = words.findLastIndex((word) => /^\w/.test(word));
    addOperation(nounOf(words.slice(0, verb).join(" ")), words.slice(verb).join(" "), command, terminal);
  }
  addStatement(nounOf("credits"), terminal);
}

/** Returns the place of a command in the help of its noun; all that are not in `FIRST` have the same. */
function rankOf({ usage }: OperationCommand): number {
  const placeOf = (word = "") => (FIRST.includes(word) ? FIRST.indexOf(word) : FIRST.length);
  const [, verb, further] = usage.split(" ");
  return placeOf(verb) * 10 + placeOf(further);
}

function addOperation(noun: Command, usage: string, command: OperationCommand, terminal: Terminal): void {
  const added = addCommand(noun, usage, command.summary);
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
    const input = command.input?.(values) ?? values;
    const work = async (workspace: CommandServices) => print(terminal, flags, await command.run(workspace, input));
    await withWorkspace(terminal, flags, work, { creates: command.createsStore });
  });
}
