import { idCursor, type PageRequest, pageOf } from "../admin/directory.ts";
import { entityOf } from "../admin/entity.ts";
import { makeId } from "../admin/token.ts";
import type { Allowance } from "../api/admin/credits.ts";
import { isoTime } from "../api/time.ts";
import { type AllowanceRow, auditedAllowance } from "../credits/allowance.ts";
import { formatCredits } from "../credits/amount.ts";
import { closeAllowance, openAllowance } from "../ledger/allowances.ts";
import { argument, credits, facts, futureDate, jsonOf, line, optional, required, text, toggle } from "./command.ts";
import { type Core, type CreditCore, found, rowRecord } from "./core.ts";
import { referenceMismatch, requireCredits } from "./credits.ts";
import { amountOf, futureTimeOf, sharedOperation } from "./operation.ts";

export const listAllowances = sharedOperation({
  route: "GET /organizations/:id/allowances",
  permission: "credits:read",
  summary: "List an organization's allowances, including those that have ended",
  query: (s) => s.Strict(s.PageQuery),
  answer: { status: 200, description: "A page.", schema: (s) => s.PageOf(s.Allowance) },
  handle: (core, { params: { id }, page }) => allowancesOf(core, id, page),
  commands: (make) => [
    make.list({
      usage: "credits allowance list",
      summary: "List the allowances, including those that have ended",
      // Null: those of all organizations.
      flags: { id: optional("--org <id>", "only those of this organization", text) },
      json: allowanceJson,
      columns: {
        ID: ({ id }) => id,
        ORGANIZATION: ({ organization_id }) => organization_id,
        MONTHLY: ({ amount }) => amount,
        REMAINDER: ({ lapses }) => (lapses ? "expires" : "stays"),
        NEXT: ({ next_at, ended_at }) => (ended_at === null ? next_at : `ended ${ended_at}`),
      },
    }),
  ],
});

/** Returns a page of the allowances of an organization, or of all (null). */
export async function allowancesOf({ allowances }: Pick<Core, "allowances">, id: string | null, page: PageRequest) {
  const { cursor, limit } = page;
  const after = idCursor(cursor, "allowance");
  const rows = await allowances.list({ organizationId: id, after, limit: limit + 1 });
  return pageOf(rows, limit, allowanceAnswer, (row) => row.id);
}

function allowanceAnswer({ anchorAtMs: beginsAtMs, priority: _, ...row }: AllowanceRow): Allowance {
  return entityOf("allowance", { ...row, beginsAtMs });
}

function allowanceJson(allowance: Allowance) {
  return { ...jsonOf(allowance), monthly: allowance.amount, from: allowance.begins_at };
}

export const createAllowance = sharedOperation({
  route: "POST /organizations/:id/allowances",
  permission: "credits:write",
  summary: "Grant credits every month from a given time; a duplicate reference is ignored",
  body: (s) => s.NewAllowance,
  answer: { status: 201, description: "The allowance.", schema: (s) => s.ChangedAllowance },
  async handle(core, { params, body: { amount, begins_at, lapses = true, reference = null } }) {
    const { row, repeated } = await addAllowance(core, {
      organizationId: params.id,
      amount: amountOf("amount", amount),
      anchorAtMs: futureTimeOf(core, "begins_at", begins_at),
      lapses,
      reference,
    });
    return { ...allowanceAnswer(row), repeated };
  },
  commands: (make) => [
    make.command({
      usage: "credits allowance create <amount>",
      summary: "Grant credits every month, starting now",
      flags: {
        amount: argument("<amount>", credits),
        id: required("--org <id>", "organization to grant them to"),
        begins_at: optional(
          "--from <date>",
          "start of the first month; the others start on the same day (default: now)",
          futureDate,
        ),
        keep: toggle("--keep", "keep the remaining credits when the next month begins (default: they expire)"),
        reference: optional("--reference <reference>", "purpose; a duplicate reference is ignored", line),
      },
      call: ({ id, keep, ...body }) => ({ params: { id }, body: { ...body, lapses: !keep } }),
      json: allowanceJson,
      text: ({ id, amount, next_at: next, lapses, repeated }) => {
        const monthly = repeated ? `${amount}, made before under this reference` : amount;
        return facts({ id, monthly, next, remainder: lapses ? "expires" : "stays" });
      },
    }),
  ],
});

interface AllowanceRequest extends Pick<AllowanceRow, "organizationId" | "amount" | "lapses" | "reference"> {
  /** Null: now. */
  anchorAtMs: number | null;
}

/** Grants credits every month from a time on, and at once if that time has come. Rejects with an ApiError. */
export async function addAllowance(core: CreditCore, request: AllowanceRequest) {
  const { organizationId, reference } = request;
  await requireCredits(core, organizationId);
  const { clock, random } = core;
  const nowMs = clock();
  const anchorAtMs = request.anchorAtMs ?? nowMs;
  const wanted = { ...request, id: makeId("allowance", random), anchorAtMs, createdAtMs: nowMs };
  const record = rowRecord(core, "allowance.create", wanted, { after: auditedAllowance(wanted) });
  const made = await openAllowance(core, wanted, record);
  if (made.outcome === "created") return made;
  const { row: first } = made;
  const rest = `of which the rest ${first.lapses ? "expires" : "stays"}`;
  const terms = `${formatCredits(first.amount)} credits a month from ${isoTime(first.anchorAtMs)}, ${rest}`;
  throw referenceMismatch(reference, `allowance ${first.id} of ${terms}`, first.createdAtMs);
}

export const endAllowance = sharedOperation({
  route: "DELETE /organizations/:id/allowances/:allowance_id",
  permission: "credits:write",
  summary: "End an allowance; the current month's grant stays",
  answer: { status: 200, description: "The allowance as it is now.", schema: (s) => s.ChangedAllowance },
  async handle(core, { params: { id, allowance_id = "" } }) {
    const { row, repeated } = await stopAllowance(core, id, allowance_id);
    return { ...allowanceAnswer(row), repeated };
  },
  commands: (make) => [
    make.command({
      usage: "credits allowance end <id>",
      flags: { allowance_id: argument("<id>", text) },
      call: ({ allowance_id }) => ({ params: { id: null, allowance_id } }),
      json: allowanceJson,
      text: ({ id, ended_at, repeated }) => (repeated ? `${id} had ended before, at ${ended_at}.` : `${id} has ended.`),
    }),
  ],
});

/** Ends an allowance of an organization (null: of any); the current month's grant stays. Rejects with not_found. */
export async function stopAllowance(core: CreditCore, organizationId: string | null, id: string) {
  const lookup = core.allowances.find(organizationId, id);
  const old = await found(lookup, { kind: "allowance", id, listedBy: "credits allowance list" });
  return closeAllowance(core, old, core.clock(), rowRecord(core, "allowance.end", old));
}
