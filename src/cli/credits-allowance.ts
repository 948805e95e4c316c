import type { Command } from "commander";
import { allowanceMismatch } from "../admin/references.ts";
import { makeId } from "../admin/token.ts";
import type { AllowanceRow } from "../credits/allowance.ts";
import { creditsFromMicro, formatCredits } from "../credits/amount.ts";
import type { GrantTransition, RevokeTransition } from "../credits/books.ts";
import { OperatorError } from "../errors.ts";
import { createAllowance, endAllowance, findAllowance } from "../ledger/allowances.ts";
import type { Store } from "../stores/store.ts";
import {
  addCommand,
  type CommonFlags,
  creditsFlag,
  print,
  type Terminal,
  textFlag,
  UnknownIdError,
} from "./command.ts";
import { facts, table } from "./table.ts";
import { dateFlag, isoTime } from "./times.ts";
import { expectCredited, unknownOrganization, withWorkspace } from "./workspace.ts";

const PAGE_ROWS = 500;

interface CreateFlags extends CommonFlags {
  org: string;
  from?: string;
  keep?: boolean;
  reference?: string;
}

export function addCreditsAllowance(credits: Command, terminal: Terminal): void {
  const allowance = credits.command("allowance").description("credits that are granted again every month");
  addCommand(allowance, "create <amount>", "Grant credits every month, beginning now")
    .requiredOption("--org <id>", "organization to grant them to")
    .option("--from <date>", "when the first month begins; the others begin on the same day (default: now)")
    .option("--keep", "keep what is left of a month when the next one begins (default: it lapses)")
    .option("--reference <reference>", "what the allowance is for; the same reference twice makes one")
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
  const reference = textFlag("--reference", flags.reference);
  const anchorAtMs = flags.from === undefined ? nowMs : dateFlag("--from", flags.from, nowMs);
  await withWorkspace(terminal, flags, async ({ store: { allowances, books }, accounts, changeAudit }) => {
    const { org: organizationId } = flags;
    await expectCredited(accounts, organizationId);
    const id = makeId("allowance", terminal.random);
    const lapses = flags.keep !== true;
    const terms = { organizationId, id, amount, lapses, reference, anchorAtMs, createdAtMs: nowMs };
    // Whether or not a service runs.
    const grant = (transition: GrantTransition) => books.apply("durable", [transition]);
    const after = { amount: formatCredits(amount), lapses, reference, from: isoTime(anchorAtMs) };
    const audit = changeAudit({ action: "allowance.create", organizationId, subjectId: id, after });
    const made = await createAllowance({ allowances, grant }, terms, audit);
    if (made.outcome === "reference_mismatch") throw new OperatorError(allowanceMismatch(reference, made.row));
    const { row, repeated } = made;
    const json = { ...toJson(row), repeated };
    const monthly = repeated ? `${json.monthly}, made before under this reference` : `${json.monthly}`;
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
      return [id, organizationId, `${monthly}`, lapses ? "lapses" : "stays", next];
    });
    const text = table(["ID", "ORGANIZATION", "MONTHLY", "WHAT IS LEFT", "NEXT"], rows);
    print(terminal, flags, { json, text });
  });
}

async function end(terminal: Terminal, id: string, flags: CommonFlags): Promise<void> {
  await withWorkspace(terminal, flags, async ({ store: { allowances, books }, changeAudit }) => {
    const found = await findAllowance(allowances, null, id);
    if (found === undefined) throw new UnknownIdError("allowance", id, "credits allowance list");
    const grant = (transition: GrantTransition) => books.apply("durable", [transition]);
    const revoke = (transition: RevokeTransition) => books.apply("durable", [transition]);
    const audit = changeAudit({ action: "allowance.end", organizationId: found.organizationId, subjectId: id });
    const { row, repeated } = await endAllowance({ allowances, grant, revoke }, found, terminal.clock(), audit);
    const json = toJson(row);
    const text = repeated ? `${id} had ended before, at ${json.endedAt}.` : `${id} has ended.`;
    print(terminal, flags, { json: { ...json, repeated }, text });
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
