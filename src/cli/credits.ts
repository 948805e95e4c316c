import type { Command } from "commander";
import { COMMAND_ACTOR } from "../admin/audit.ts";
import { isoTime } from "../api/time.ts";
import type { AllowanceRow } from "../credits/allowance.ts";
import { creditsFromMicro, formatCredits, type MicroCredits, usageReport } from "../credits/amount.ts";
import { OperatorError } from "../errors.ts";
import {
  addCommand,
  type CommonFlags,
  creditsFlag,
  dateFlag,
  facts,
  print,
  type Terminal,
  table,
  textFlag,
  UnknownIdError,
} from "./command.ts";
import { addStatement } from "./statement.ts";
import { acceptedOf, allRows, freshBalance, organizationFlag, type PageOfRows, withWorkspace } from "./workspace.ts";

interface GrantFlags extends CommonFlags {
  org: string;
  expires?: string;
  reference?: string;
}

interface RevokeFlags extends CommonFlags {
  org: string;
  all?: boolean;
  grant?: string;
  reference?: string;
  note?: string;
}

interface AllowanceFlags extends CommonFlags {
  org: string;
  from?: string;
  keep?: boolean;
  reference?: string;
}

interface CreditFlags extends CommonFlags {
  org: string;
  completion?: string;
  expires?: string;
  reference?: string;
  note?: string;
}

export function addCredits(program: Command, terminal: Terminal): void {
  const credits = program.command("credits").description("credits of an organization");
  addCommand(credits, "grant <amount>", "Grant credits to an organization")
    .requiredOption("--org <id>", "organization to grant them to")
    .option("--expires <date>", "expiry of the remaining credits (default: never)")
    .option("--reference <reference>", "purpose, such as an invoice number; a duplicate reference is ignored")
    .action((amount: string, flags: GrantFlags) => grant(terminal, amount, flags));
  addCommand(credits, "revoke [amount]", "Revoke credits that are neither spent nor held")
    .requiredOption("--org <id>", "organization to revoke them from")
    .option("--all", "revoke all available credits, instead of an amount")
    .option("--grant <id>", "only from this grant (default: in the order in which grants are spent)")
    .option("--reference <reference>", "purpose; a duplicate reference is ignored")
    .option("--note <text>", "reason, shown in the statement")
    .action((amount: string | undefined, flags: RevokeFlags) => revoke(terminal, amount, flags));
  addCommand(credits, "credit <amount>", "Refund credits that were charged, as goodwill or to correct a charge")
    .requiredOption("--org <id>", "organization that was charged")
    .option("--completion <id>", "the completion whose charge is corrected, by its `id` (chatcmpl-…, resp_…, msg_…)")
    .option("--expires <date>", "expiry of the remaining credits (default: never)")
    .option("--reference <reference>", "purpose; a duplicate reference is ignored")
    .option("--note <text>", "reason, shown in the statement")
    .action((amount: string, flags: CreditFlags) => credit(terminal, amount, flags));
  addAllowance(credits, terminal);
  addCommand(credits, "balance", "Show an organization's total, available, used and held credits")
    .requiredOption("--org <id>", "organization")
    .action((flags: CommonFlags & { org: string }) => balance(terminal, flags));
  addStatement(credits, terminal);
}

async function grant(terminal: Terminal, amountText: string, flags: GrantFlags): Promise<void> {
  const { org: organizationId } = flags;
  const amount = creditsFlag("AMOUNT", amountText, { orNone: false });
  const expiresAtMs = flags.expires === undefined ? null : dateFlag("--expires", flags.expires, terminal.clock());
  const reference = textFlag("--reference", flags.reference);
  await withWorkspace(terminal, flags, async ({ creditAdjustments }) => {
    const expiresAt = isoTime(expiresAtMs);
    const request = { organizationId, amount, effectiveAtMs: null, expiresAtMs, priority: 0, reference };
    const booked = acceptedOf(organizationId, await creditAdjustments.grant(request, COMMAND_ACTOR));
    const { id, repeated } = booked;
    const { creditsTotal, creditsAvailable } = usageReport(booked.balance);
    const granted = creditsFromMicro(amount);
    print(terminal, flags, {
      json: { id, organizationId, amount: granted, expiresAt, reference, repeated, creditsTotal, creditsAvailable },
      text: facts({
        id,
        amount: repeated ? `${granted}, granted before under this reference` : `${granted}`,
        expires: expiresAt ?? "never",
        credits: `${creditsAvailable} of ${creditsTotal} available`,
      }),
    });
  });
}

async function revoke(terminal: Terminal, amountText: string | undefined, flags: RevokeFlags): Promise<void> {
  const { org: organizationId } = flags;
  const request = {
    organizationId,
    amount: revokedAmount(amountText, flags),
    grantId: flags.grant ?? null,
    reference: textFlag("--reference", flags.reference),
    note: textFlag("--note", flags.note),
  };
  await withWorkspace(terminal, flags, async ({ creditAdjustments }) => {
    const booked = acceptedOf(organizationId, await creditAdjustments.revoke(request, COMMAND_ACTOR));
    if (booked.outcome === "unknown_grant") {
      throw new UnknownIdError("grant", flags.grant ?? "", `credits statement --org ${organizationId}`);
    }
    if (booked.outcome === "excessive") {
      const what = flags.grant === undefined ? "which are available" : `which are left of ${flags.grant}`;
      throw excessive(amountText, `${formatCredits(booked.most)} credits, ${what}, or --all`);
    }
    const { id, repeated } = booked;
    const { creditsTotal, creditsAvailable } = usageReport(booked.balance);
    const amount = creditsFromMicro(booked.amount);
    print(terminal, flags, {
      json: { id, organizationId, amount, reference: request.reference, repeated, creditsTotal, creditsAvailable },
      text: facts({
        id,
        amount: repeated ? `${amount}, revoked before under this reference` : `${amount}`,
        credits: `${creditsAvailable} of ${creditsTotal} available`,
      }),
    });
  });
}

/** Returns the amount to revoke; null for `--all`. */
function revokedAmount(text: string | undefined, { all = false }: RevokeFlags): MicroCredits | null {
  if (all && text !== undefined) {
    throw new OperatorError(`--all and AMOUNT ${JSON.stringify(text)} exclude each other; state one of them.`);
  }
  if (all) return null;
  if (text !== undefined) return creditsFlag("AMOUNT", text, { orNone: false });
  throw new OperatorError("AMOUNT is missing. State a number of credits, or --all for everything that is available.");
}

async function credit(terminal: Terminal, amountText: string, flags: CreditFlags): Promise<void> {
  const { org: organizationId } = flags;
  const amount = creditsFlag("AMOUNT", amountText, { orNone: false });
  const expiresAtMs = flags.expires === undefined ? null : dateFlag("--expires", flags.expires, terminal.clock());
  const [reference, note] = [textFlag("--reference", flags.reference), textFlag("--note", flags.note)];
  const holdId = flags.completion === undefined ? null : completionFlag(flags.completion);
  await withWorkspace(terminal, flags, async ({ creditAdjustments }) => {
    const request = { organizationId, amount, holdId, expiresAtMs, reference, note };
    const booked = acceptedOf(organizationId, await creditAdjustments.credit(request, COMMAND_ACTOR));
    if (booked.outcome === "closed") {
      throw new OperatorError(
        `${flags.completion} belongs to a closed period and can no longer be corrected. Without --completion, the credit is goodwill.`,
      );
    }
    if (booked.outcome === "missing") throw unknownCompletion(flags.completion ?? "");
    if (booked.outcome === "excessive") {
      throw excessive(amountText, `${formatCredits(booked.most)}, which was charged and not refunded yet`);
    }
    const { id, repeated } = booked;
    const { creditsTotal, creditsAvailable, creditsUsed } = usageReport(booked.balance);
    const credited = creditsFromMicro(booked.amount);
    const left = { creditsTotal, creditsAvailable, creditsUsed };
    print(terminal, flags, {
      json: { id, organizationId, amount: credited, expiresAt: isoTime(expiresAtMs), reference, repeated, ...left },
      text: facts({
        id,
        amount: repeated ? `${credited}, credited before under this reference` : `${credited}`,
        credits: `${creditsAvailable} of ${creditsTotal} available, ${creditsUsed} used`,
      }),
    });
  });
}

/** The prefix of a wire and the 32 digits of a hold's UUID, or the UUID itself. */
const COMPLETION =
  /^(?:chatcmpl-|resp_|msg_)?([0-9a-f]{8})-?([0-9a-f]{4})-?([0-9a-f]{4})-?([0-9a-f]{4})-?([0-9a-f]{12})$/;

function completionFlag(text: string): string {
  const [, ...parts] = COMPLETION.exec(text) ?? [];
  if (parts.length === 0) throw unknownCompletion(text);
  return parts.join("-");
}

function unknownCompletion(id: string): OperatorError {
  return new OperatorError(
    `--completion is ${JSON.stringify(id)}, but must be the id of a completion of the organization (chatcmpl-…, resp_…, msg_…).`,
  );
}

function excessive(amount: string | undefined, most: string): OperatorError {
  return new OperatorError(`AMOUNT is ${JSON.stringify(amount)}, but must be at most ${most}.`);
}

async function balance(terminal: Terminal, flags: CommonFlags & { org: string }): Promise<void> {
  await withWorkspace(terminal, flags, async (workspace) => {
    const report = usageReport(await freshBalance(workspace, terminal, flags.org));
    const { organization_id: organizationId, creditsTotal, creditsAvailable, creditsUsed, creditsHeld } = report;
    print(terminal, flags, {
      json: { organizationId, creditsTotal, creditsAvailable, creditsUsed, creditsHeld },
      text: facts({
        total: `${creditsTotal}`,
        available: `${creditsAvailable}`,
        used: `${creditsUsed}`,
        held: `${creditsHeld}`,
      }),
    });
  });
}

function addAllowance(credits: Command, terminal: Terminal): void {
  const allowance = credits.command("allowance").description("monthly allowances");
  addCommand(allowance, "create <amount>", "Grant credits every month, starting now")
    .requiredOption("--org <id>", "organization to grant them to")
    .option("--from <date>", "start of the first month; the others start on the same day (default: now)")
    .option("--keep", "keep the remaining credits when the next month begins (default: they expire)")
    .option("--reference <reference>", "purpose; a duplicate reference is ignored")
    .action((amount: string, flags: AllowanceFlags) => createAllowance(terminal, amount, flags));
  addCommand(allowance, "list", "List the allowances, including those that have ended")
    .option("--org <id>", "only those of this organization")
    .action((flags: CommonFlags & { org?: string }) => listAllowances(terminal, flags));
  addCommand(allowance, "end <id>", "End an allowance; the current month's grant stays").action(
    (id: string, flags: CommonFlags) => endAllowance(terminal, id, flags),
  );
}

async function createAllowance(terminal: Terminal, amountText: string, flags: AllowanceFlags): Promise<void> {
  const { org: organizationId } = flags;
  const amount = creditsFlag("AMOUNT", amountText, { orNone: false });
  const reference = textFlag("--reference", flags.reference);
  const anchorAtMs = flags.from === undefined ? null : dateFlag("--from", flags.from, terminal.clock());
  await withWorkspace(terminal, flags, async ({ creditAdjustments }) => {
    const lapses = flags.keep !== true;
    const request = { organizationId, amount, lapses, reference, anchorAtMs };
    const made = acceptedOf(organizationId, await creditAdjustments.createAllowance(request, COMMAND_ACTOR));
    const json = { ...allowanceJson(made.row), repeated: made.repeated };
    const monthly = json.repeated ? `${json.monthly}, made before under this reference` : `${json.monthly}`;
    const text = facts({ id: json.id, monthly, next: json.nextAt, remainder: json.lapses ? "expires" : "stays" });
    print(terminal, flags, { json, text });
  });
}

async function listAllowances(terminal: Terminal, flags: CommonFlags & { org?: string }): Promise<void> {
  await withWorkspace(terminal, flags, async ({ store, accounts }) => {
    const organizationId = await organizationFlag(accounts, flags.org);
    const rowsOf = (page: PageOfRows) => store.allowances.list({ organizationId, ...page });
    const json = [];
    for await (const row of allRows(rowsOf)) json.push(allowanceJson(row));
    const rows = json.map(({ id, organizationId, monthly, lapses, nextAt, endedAt }) => {
      const next = endedAt === null ? nextAt : `ended ${endedAt}`;
      return [id, organizationId, `${monthly}`, lapses ? "expires" : "stays", next];
    });
    const text = table(["ID", "ORGANIZATION", "MONTHLY", "REMAINDER", "NEXT"], rows);
    print(terminal, flags, { json, text });
  });
}

async function endAllowance(terminal: Terminal, id: string, flags: CommonFlags): Promise<void> {
  await withWorkspace(terminal, flags, async ({ creditAdjustments }) => {
    const ended = await creditAdjustments.endAllowance(null, id, COMMAND_ACTOR);
    if (ended === undefined) throw new UnknownIdError("allowance", id, "credits allowance list");
    const json = { ...allowanceJson(ended.row), repeated: ended.repeated };
    const text = ended.repeated ? `${id} had ended before, at ${json.endedAt}.` : `${id} has ended.`;
    print(terminal, flags, { json, text });
  });
}

function allowanceJson({
  id,
  organizationId,
  amount,
  lapses,
  reference,
  anchorAtMs,
  nextAtMs,
  endedAtMs,
}: AllowanceRow) {
  const times = { from: isoTime(anchorAtMs), nextAt: isoTime(nextAtMs), endedAt: isoTime(endedAtMs) };
  return { id, organizationId, monthly: creditsFromMicro(amount), lapses, reference, ...times };
}
