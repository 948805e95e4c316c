import type { Command } from "commander";
import { parseJson } from "../api/json.ts";
import { convertGateway, GATEWAYS } from "../catalog/other-gateways.ts";
import { OperatorError } from "../errors.ts";
import { credits, wordOf } from "../operations/command.ts";
import { listsOf } from "../stores/database.ts";
import { fileText } from "./apply.ts";
import { addCommand, type CommonFlags, print, type Terminal } from "./command.ts";

/** Organizations of a document, so that `apply` can read it in parts. */
const DOCUMENT_ORGANIZATIONS = 1_000;

type ImportFlags = CommonFlags & { prices?: boolean; creditsPerDollar: string };

export function addImport(program: Command, terminal: Terminal): void {
  const usage = `Convert what the API of another gateway lists (${GATEWAYS.join(", ")}) to a file for apply`;
  addCommand(program, "import <gateway> <files...>", usage)
    .option("--prices", "print its prices as a price list of the configuration instead")
    .option("--credits-per-dollar <number>", "credits for a dollar", "1")
    .action((gateway: string, files: string[], flags: ImportFlags) => convert(terminal, gateway, files, flags));
}

async function convert(terminal: Terminal, gateway: string, files: string[], flags: ImportFlags): Promise<void> {
  wordOf(GATEWAYS)(gateway, "GATEWAY", 0);
  const creditsPerDollar = credits(flags.creditsPerDollar, "--credits-per-dollar");
  const answers = files.map((file) => parseJson(fileText(file)) ?? refuse(`${file} is not JSON.`));
  const { organizations, prices, notes } = convertGateway(gateway, answers, terminal.clock(), creditsPerDollar);
  const priceLists = { [gateway]: { prices } };
  const isEmpty = flags.prices === true ? Object.keys(prices).length === 0 : organizations.length === 0;
  if (isEmpty) refuse(`The files contain no ${flags.prices === true ? "prices" : "organizations"} of ${gateway}.`);
  const { yamlText } = await import("../config/file.ts");
  const parts = listsOf(organizations, DOCUMENT_ORGANIZATIONS).map((part) => ({ organizations: part }));
  const documents = flags.prices === true ? [{ priceLists }] : parts;
  if (flags.prices !== true) for (const note of notes) terminal.error(`tollgate: ${note}.`);
  print(terminal, flags, { json: { organizations, priceLists, notes }, text: documents.map(yamlText).join("\n---\n") });
}

function refuse(message: string): never {
  throw new OperatorError(message);
}
