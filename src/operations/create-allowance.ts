import { makeId } from "../admin/token.ts";
import { isoTime } from "../api/time.ts";
import { type AllowanceRow, auditedAllowance } from "../credits/allowance.ts";
import { formatCredits } from "../credits/amount.ts";
import type { GrantTransition } from "../credits/books.ts";
import { openAllowance } from "../ledger/allowances.ts";
import { referenceMismatch, requireCredits } from "./bookings.ts";
import { argument, command, credits, facts, futureDate, line, optional, required, toggle } from "./command.ts";
import { type CreditCore, rowRecord } from "./core.ts";
import { allowanceAnswer, allowanceJson } from "./list-allowances.ts";
import { amountOf, futureTimeOf, operation } from "./operation.ts";

export const createAllowance = operation({
  route: "POST /organizations/:id/allowances",
  permission: "credits:write",
  summary: "Grant credits every month from a given time; a duplicate reference is ignored",
  body: (s) => s.NewAllowance,
  answer: { status: 201, description: "The allowance.", schema: (s) => s.Allowance },
  async handle(services, { params, body: { amount, begins_at, lapses = true, reference = null }, connection }) {
    const { row, repeated } = await addAllowance(services, {
      organizationId: params.id,
      amount: amountOf("amount", amount),
      anchorAtMs: futureTimeOf(services, "begins_at", begins_at),
      lapses,
      reference,
    });
    if (repeated) connection.repeated();
    return allowanceAnswer(row);
  },
  commands: [
    command({
      usage: "credits allowance create <amount>",
      summary: "Grant credits every month, starting now",
      flags: {
        amount: argument("<amount>", credits),
        organizationId: required("--org <id>", "organization to grant them to"),
        anchorAtMs: optional(
          "--from <date>",
          "start of the first month; the others start on the same day (default: now)",
          futureDate,
        ),
        keep: toggle("--keep", "keep the remaining credits when the next month begins (default: they expire)"),
        reference: optional("--reference <reference>", "purpose; a duplicate reference is ignored", line),
      },
      async run(services, { keep, ...terms }) {
        const { row, repeated } = await addAllowance(services, { ...terms, lapses: !keep });
        const json = { ...allowanceJson(row), repeated };
        const monthly = repeated ? `${json.monthly}, made before under this reference` : json.monthly;
        const text = facts({ id: json.id, monthly, next: json.nextAt, remainder: json.lapses ? "expires" : "stays" });
        return { json, text };
      },
    }),
  ],
});

interface AllowanceRequest extends Pick<AllowanceRow, "organizationId" | "amount" | "lapses" | "reference"> {
  /** Null: now. */
  anchorAtMs: number | null;
}

/** Grants credits every month from a time on, and at once if that time has come. Rejects with an ApiError. */
export async function addAllowance(
  core: CreditCore,
  request: AllowanceRequest,
): Promise<{ row: AllowanceRow; repeated: boolean }> {
  const { organizationId, reference } = request;
  await requireCredits(core, organizationId);
  const { allowances, bookings, clock, random } = core;
  const nowMs = clock();
  const anchorAtMs = request.anchorAtMs ?? nowMs;
  const wanted = { ...request, id: makeId("allowance", random), anchorAtMs, createdAtMs: nowMs };
  const record = rowRecord(core, "allowance.create", wanted, { after: auditedAllowance(wanted) });
  const grant = (first: GrantTransition) => bookings.grant(first);
  const made = await openAllowance({ allowances, grant }, wanted, record);
  if (made.outcome === "created") return made;
  const { row: first } = made;
  const rest = `of which the rest ${first.lapses ? "expires" : "stays"}`;
  const terms = `${formatCredits(first.amount)} credits a month from ${isoTime(first.anchorAtMs)}, ${rest}`;
  throw referenceMismatch(reference, `allowance ${first.id} of ${terms}`, first.createdAtMs);
}
