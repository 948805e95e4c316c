import type { Command } from "commander";
import { makeId } from "../accounts/token.ts";
import { type AllowanceRow, grantOfPeriod, periodAt } from "../credits/allowance.ts";
import { creditsFromMicro } from "../credits/amount.ts";
import { OperatorError } from "../errors.ts";
import { grantAllowances } from "../ledger/allowances.ts";
import type { Store } from "../stores/store.ts";
import { addCommand, type CommonFlags, creditsFlag, print, type Terminal } from "./command.ts";
import { facts, table } from "./table.ts";
import { dateFlag, isoTime } from "./times.ts";
import { unknownOrganization, withWorkspace } from "./workspace.ts";

const PAGE_ROWS = 500;

interface CreateFlags extends CommonFlags {
  org: string;
  from?: string;
  keep?: boolean;
}

export function addCreditsAllowance(credits: Command, terminal: Terminal): void {
  const allowance = credits.command("allowance").description("credits that are granted again every month");
  addCommand(allowance, "create <amount>", "Grant credits every month, beginning now")
    .requiredOption("--org <id>", "organization to grant them to")
    .option("--from <date>", "when the first month begins; the others begin on the same day (default: now)")
    .option("--keep", "keep what is left of a month when the next one begins (default: it lapses)")
    .action((amount: string, flags: CreateFlags) => create(terminal, amount, flags));
  addCommand(allowance, "list", "List the allowances, those that have ended too")
    .option("--org <id>", "only those of this organization")
    .action((flags: CommonFlags & { org?: string }) => list(terminal, flags));
  addCommand(allowance, "end <id>", "End an allowance; what was granted for the current month stays").action(
    (id: string, flags: CommonFlags) => end(terminal, id, flags),
  );
}

async function create(terminal: Terminal, amountText: string, flags: CreateFlags): Promise<void> {
  const amount = creditsFlag("AMOUNT", amountText, { orNone: false });
  const nowMs = terminal.clock();
  const anchorAtMs = flags.from === undefined ? nowMs : dateFlag("--from", flags.from, nowMs);
  await withWorkspace(terminal, flags, async ({ store, accounts }) => {
    if ((await accounts.organization(flags.org)) === undefined) throw unknownOrganization(flags.org);
    const id = makeId("allowance", terminal.random);
    const times = { anchorAtMs, nextAtMs: anchorAtMs, createdAtMs: nowMs, endedAtMs: null };
    const lapses = flags.keep !== true;
    await store.allowances.insert({ organizationId: flags.org, id, amount, priority: 0, lapses, ...times });
    // At once, whether or not a service runs.
    await grantAllowances({ allowances: store.allowances, grant: (grant) => store.books.apply("durable", [grant]) });
    const row = await find(store, id);
    const json = toJson(row);
    const { nextAt, monthly } = json;
    print(terminal, flags, { json, text: facts({ id, monthly: `${monthly}`, next: nextAt, lapses: String(lapses) }) });
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
      return [id, organizationId, `${monthly}`, lapses ? "lapses" : "stays", next];
    });
    const text = table(["ID", "ORGANIZATION", "MONTHLY", "WHAT IS LEFT", "NEXT"], rows);
    print(terminal, flags, { json, text });
  });
}

async function end(terminal: Terminal, id: string, flags: CommonFlags): Promise<void> {
  await withWorkspace(terminal, flags, async ({ store }) => {
    const nowMs = terminal.clock();
    const row = await find(store, id);
    const ended = await store.allowances.end(row, nowMs);
    await revokeComing(store, row, nowMs);
    const json = toJson(await find(store, id));
    const text = ended ? `${id} has ended.` : `${id} had ended before, at ${json.endedAt}.`;
    print(terminal, flags, { json: { ...json, repeated: !ended }, text });
  });
}

/** The next month's grant stands in the books a little before it takes effect. */
async function revokeComing({ books }: Store, row: AllowanceRow, nowMs: number): Promise<void> {
  const startMs = nowMs < row.anchorAtMs ? row.anchorAtMs : periodAt(row.anchorAtMs, nowMs).endMs;
  const { organizationId, grantId, amount } = grantOfPeriod(row, periodAt(row.anchorAtMs, startMs));
  const terms = { reference: grantId, note: "the allowance has ended" };
  await books.apply("durable", [
    { kind: "revoke", organizationId, adjustmentId: `${grantId}_ended`, amount, grantId, ...terms },
  ]);
}

async function find(store: Store, id: string): Promise<AllowanceRow> {
  for await (const row of allowancesOf(store, null)) if (row.id === id) return row;
  throw new OperatorError(
    `allowance: found ${JSON.stringify(id)}; allowed: an id that \`tollgate credits allowance list\` shows`,
  );
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

function toJson({ id, organizationId, amount, lapses, anchorAtMs, nextAtMs, endedAtMs }: AllowanceRow) {
  const times = { from: isoTime(anchorAtMs), nextAt: isoTime(nextAtMs), endedAt: isoTime(endedAtMs) };
  return { id, organizationId, monthly: creditsFromMicro(amount), lapses, ...times };
}
