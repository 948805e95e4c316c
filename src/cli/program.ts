import { Command, CommanderError } from "commander";
import { OperatorError, StoreUnavailableError } from "../errors.ts";
import { addAdminToken } from "./admin-token.ts";
import { type Terminal, UnknownIdError } from "./command.ts";
import { commandText, type PlaceFlags } from "./command-text.ts";
import { addConfigCheck } from "./config-check.ts";
import { addCreditsAllowance } from "./credits-allowance.ts";
import { addCreditsBalance } from "./credits-balance.ts";
import { addCreditsCredit } from "./credits-credit.ts";
import { addCreditsGrant } from "./credits-grant.ts";
import { addCreditsRevoke } from "./credits-revoke.ts";
import { addCreditsStatement } from "./credits-statement.ts";
import { addLedgerVerify } from "./ledger-verify.ts";
import { addModelsCheck } from "./models-check.ts";
import { addModelsList } from "./models-list.ts";
import { addOrgCreate } from "./org-create.ts";
import { addOrgList } from "./org-list.ts";
import { addOrgShow } from "./org-show.ts";
import { addServe } from "./serve.ts";
import { addStoreBackup } from "./store-backup.ts";
import { addTokenCreate } from "./token-create.ts";
import { addTokenList } from "./token-list.ts";
import { addTokenRevoke } from "./token-revoke.ts";
import { addTokenRotate } from "./token-rotate.ts";

const EXIT_FAILURE = 1;
const EXIT_USAGE = 2;

/** The whole command line, a file for each command. */
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
  const group = (name: string, description: string) => program.command(name).description(description);
  addServe(program, terminal, version);
  const org = group("org", "organizations: who holds credits");
  addOrgCreate(org, terminal);
  addOrgList(org, terminal);
  addOrgShow(org, terminal);
  const token = group("token", "access tokens of an organization");
  addTokenCreate(token, terminal);
  addTokenList(token, terminal);
  addTokenRevoke(token, terminal);
  addTokenRotate(token, terminal);
  const credits = group("credits", "credits of an organization");
  addCreditsGrant(credits, terminal);
  addCreditsRevoke(credits, terminal);
  addCreditsCredit(credits, terminal);
  addCreditsAllowance(credits, terminal);
  addCreditsBalance(credits, terminal);
  addCreditsStatement(credits, terminal);
  const models = group("models", "models that callers may name");
  addModelsList(models, terminal);
  addModelsCheck(models, terminal);
  addAdminToken(group("admin", "who looks after the service"), terminal);
  addLedgerVerify(group("ledger", "the books"), terminal);
  addStoreBackup(group("store", "the database"), terminal);
  addConfigCheck(group("config", "the configuration"), terminal);
  return program;
}

/** Runs one command line; gives the code that the process ends with. Never rejects. */
export async function runCommandLine(
  words: readonly string[],
  surroundings: Omit<Terminal, "exitWith">,
  version: string,
): Promise<number> {
  let exitCode = 0;
  const terminal: Terminal = {
    ...surroundings,
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

/** Commander's message in one line, with where to find the usage. */
function usageLine(text: string): string {
  const message = text
    .trim()
    .replace(/^error: /, "")
    .replace(/\.$/, "")
    .replaceAll(/\s*\n\s*/g, " ");
  return `tollgate: ${message}; add --help to see what is allowed`;
}

/** Describes what went wrong in one line; commands that it names are about the store of these flags. */
export function failureLine(error: unknown, flags: PlaceFlags = {}): string {
  const message = error instanceof Error ? error.message : String(error);
  const line = message.replaceAll(/\s*\n\s*/g, " ");
  if (error instanceof UnknownIdError) {
    return `tollgate: ${line}; allowed: an id that \`${commandText(error.listedBy, flags)}\` shows`;
  }
  if (error instanceof OperatorError) return `tollgate: ${line}`;
  if (error instanceof StoreUnavailableError) return `tollgate: the store cannot be reached: ${line}`;
  return `tollgate: this should not have happened: ${line}`;
}
