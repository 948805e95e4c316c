import type { Command } from "commander";
import { COMMAND_ACTOR } from "../admin/audit.ts";
import type { AllowanceRow } from "../credits/allowance.ts";
import { creditsFromMicro, formatCredits } from "../credits/amount.ts";
import type { Store } from "../stores/store.ts";
import {
  addCommand,
  type CommonFlags,
  facts,
  isoTime,
  print,
  type Terminal,
  table,
  UnknownIdError,
} from "./command.ts";
import { creditsFlag, dateFlag, textFlag } from "./flags.ts";
import { acceptedOf, unknownOrganization, withWorkspace } from "./workspace.ts";

const PAGE_ROWS = 500;

interface CreateFlags extends CommonFlags {
  org: string;
  from?: string;
  keep?: boolean;
  reference?: string;
}

export function addAllowance(credits: Command, terminal: Terminal): void {
  const allowance = credits.command("allowance").description("credits that are granted every month");
  addCommand(allowance, "create <amount>", "Grant credits every month, starting now")
    .requiredOption("--org <id>", "organization to grant them to")
    .option("--from <date>", "start of the first month; the others start on the same day (default: now)")
    .option("--keep", "keep the remaining credits when the next month begins (default: they expire)")
    .option("--reference <reference>", "what the allowance is for; a duplicate reference is ignored")
    .action((amount: string, flags: CreateFlags) => create(terminal, amount, flags));
  addCommand(allowance, "list", "List the allowances, including those that have ended")
    .option("--org <id>", "only those of this organization")
    .action((flags: CommonFlags & { org?: string }) => list(terminal, flags));
  addCommand(allowance, "end <id>", "End an allowance; the current month's grant stays").action(
    (id: string, flags: CommonFlags) => end(terminal, id, flags),
  );
}

async function create(terminal: Terminal, amountText: string, flags: CreateFlags): Promise<void> {
  const { org: organizationId } = flags;
  const amount = creditsFlag("AMOUNT", amountText, { orNone: false });
  const reference = textFlag("--reference", flags.reference);
  const anchorAtMs = flags.from === undefined ? null : dateFlag("--from", flags.from, terminal.clock());
  await withWorkspace(terminal, flags, async ({ creditAdjustments }) => {
    const lapses = flags.keep !== true;
    const termsOf = (from: string) => ({ amount: formatCredits(amount), lapses, reference, from });
    const request = { organizationId, amount, lapses, reference, anchorAtMs };
    const requester = { actor: COMMAND_ACTOR, termsOf };
    const made = acceptedOf(organizationId, await creditAdjustments.createAllowance(request, requester));
    const json = { ...toJson(made.row), repeated: made.repeated };
    const monthly = json.repeated ? `${json.monthly}, made before under this reference` : `${json.monthly}`;
    const text = facts({ id: json.id, monthly, next: json.nextAt, lapses: String(json.lapses) });
    print(terminal, flags, { json, text });
  });
}

async function list(terminal: Terminal, flags: CommonFlags & { org?: string }): Promise<void> {
  await withWorkspace(terminal, flags, async ({ store, accounts }) => {
    if (flags.org !== undefined && (await accounts.organization(flags.org)) === undefined) {
      throw unknownOrganization(flags.org);
    }
    const json = [];
    for await (const row of allowancesOf(store, flags.org ?? null)) json.push(toJson(row));
    const rows = json.map(({ id, organizationId, monthly, lapses, nextAt, endedAt }) => {
      const next = endedAt === null ? nextAt : `ended ${endedAt}`;
      return [id, organizationId, `${monthly}`, lapses ? "expires" : "stays", next];
    });
    const text = table(["ID", "ORGANIZATION", "MONTHLY", "REMAINDER", "NEXT"], rows);
    print(terminal, flags, { json, text });
  });
}

async function end(terminal: Terminal, id: string, flags: CommonFlags): Promise<void> {
  await withWorkspace(terminal, flags, async ({ creditAdjustments }) => {
    const ended = await creditAdjustments.endAllowance(null, id, COMMAND_ACTOR);
    if (ended === undefined) throw new UnknownIdError("allowance", id, "credits allowance list");
    const json = { ...toJson(ended.row), repeated: ended.repeated };
    const text = ended.repeated ? `${id} had ended before, at ${json.endedAt}.` : `${id} has ended.`;
    print(terminal, flags, { json, text });
  });
}

async function* allowancesOf({ allowances }: Store, organizationId: string | null): AsyncGenerator<AllowanceRow> {
  let after: string | null = null;
  for (;;) {
    const page: AllowanceRow[] = await allowances.list({ organizationId, after, limit: PAGE_ROWS });
    yield* page;
    if (page.length < PAGE_ROWS) return;
    after = page.at(-1)?.id ?? null;
  }
}

function toJson({ id, organizationId, amount, lapses, reference, anchorAtMs, nextAtMs, endedAtMs }: AllowanceRow) {
  const times = { from: isoTime(anchorAtMs), nextAt: isoTime(nextAtMs), endedAt: isoTime(endedAtMs) };
  return { id, organizationId, monthly: creditsFromMicro(amount), lapses, reference, ...times };
}
