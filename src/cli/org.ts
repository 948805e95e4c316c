import type { Command } from "commander";
import { COMMAND_ACTOR } from "../admin/audit.ts";
import { usageReport } from "../credits/amount.ts";
import type { BalanceRow } from "../credits/books.ts";
import type { OrganizationChange, OrganizationRow } from "../stores/queries/accounts.ts";
import {
  addCommand,
  type CommandOutput,
  type CommonFlags,
  creditsFlag,
  facts,
  print,
  type Terminal,
  table,
} from "./command.ts";
import { acceptedOf, freshBalance, unknownOrganization, type Workspace, withWorkspace } from "./workspace.ts";

export function addOrg(program: Command, terminal: Terminal): void {
  const org = program.command("org").description("customers and their balances");
  addCommand(org, "create <name>", "Create an organization, optionally with credits")
    .option("--credits <amount>", "credits to grant to it", "0")
    .action((name: string, flags: CommonFlags & { credits: string }) => create(terminal, name, flags));
  addCommand(org, "list", "List the organizations, the oldest first").action((flags: CommonFlags) =>
    list(terminal, flags),
  );
  addCommand(org, "show <id>", "Show an organization and its credits").action((id: string, flags: CommonFlags) =>
    show(terminal, id, flags),
  );
  addCommand(org, "pause <id>", "Refuse new requests of an organization; running ones complete")
    .option("--allowances", "also grant no month of its allowances until it is resumed")
    .action((id: string, flags: CommonFlags & { allowances?: boolean }) =>
      change(terminal, id, flags, { status: "paused", pausesAllowances: flags.allowances === true }),
    );
  addCommand(org, "resume <id>", "Accept requests of an organization again, and continue its allowances").action(
    (id: string, flags: CommonFlags) => change(terminal, id, flags, { status: "active" }),
  );
}

async function create(terminal: Terminal, name: string, flags: CommonFlags & { credits: string }): Promise<void> {
  const amount = creditsFlag("--credits", flags.credits, { orNone: true });
  const work = async (workspace: Workspace) => {
    const organization = await workspace.accounts.createOrganization(name);
    const { id: organizationId } = organization;
    if (amount === 0n) {
      return print(terminal, flags, reportOf(organization, await freshBalance(workspace, terminal, organizationId)));
    }
    const request = { organizationId, amount, effectiveAtMs: null, expiresAtMs: null, priority: 0, reference: null };
    const granted = acceptedOf(organizationId, await workspace.creditAdjustments.grant(request, COMMAND_ACTOR));
    print(terminal, flags, reportOf(organization, granted.balance));
  };
  await withWorkspace(terminal, flags, work, { creates: true });
}

async function list(terminal: Terminal, flags: CommonFlags): Promise<void> {
  await withWorkspace(terminal, flags, async (workspace) => {
    const json = [];
    for (const { id, name, kind } of await workspace.accounts.organizations()) {
      const { creditsTotal, creditsAvailable } = usageReport(await freshBalance(workspace, terminal, id));
      json.push({ id, name, kind, creditsTotal, creditsAvailable });
    }
    const rows = json.map((row) => [row.id, row.name, row.kind, `${row.creditsTotal}`, `${row.creditsAvailable}`]);
    print(terminal, flags, { json, text: table(["ID", "NAME", "KIND", "CREDITS", "AVAILABLE"], rows) });
  });
}

async function show(terminal: Terminal, id: string, flags: CommonFlags): Promise<void> {
  await withWorkspace(terminal, flags, async (workspace) => {
    const organization = await workspace.accounts.organization(id);
    if (organization === undefined) throw unknownOrganization(id);
    print(terminal, flags, reportWithStatus(organization, await freshBalance(workspace, terminal, id)));
  });
}

async function change(terminal: Terminal, id: string, flags: CommonFlags, wanted: OrganizationChange): Promise<void> {
  await withWorkspace(terminal, flags, async (workspace) => {
    const organization = await workspace.accounts.changeOrganization(id, wanted);
    if (organization === undefined) throw unknownOrganization(id);
    print(terminal, flags, reportWithStatus(organization, await freshBalance(workspace, terminal, id)));
  });
}

function reportOf({ id, name, kind }: OrganizationRow, balance: BalanceRow): CommandOutput {
  const { creditsTotal, creditsAvailable } = usageReport(balance);
  return {
    json: { id, name, kind, creditsTotal, creditsAvailable },
    text: facts({ id, name, kind, credits: `${creditsAvailable} of ${creditsTotal} available` }),
  };
}

/** Reports an organization that exists already, which may be paused. */
function reportWithStatus(organization: OrganizationRow, balance: BalanceRow): CommandOutput {
  const { status, pausesAllowances } = organization;
  const { json, text } = reportOf(organization, balance);
  const line = facts({ status: pausesAllowances ? "paused, with its allowances" : status });
  return { json: { ...(json as object), status, pausesAllowances }, text: `${text}\n${line}` };
}
