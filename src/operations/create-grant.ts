import { makeId } from "../admin/token.ts";
import { isoTime } from "../api/time.ts";
import { formatCredits } from "../credits/amount.ts";
import type { GrantTransition } from "../credits/books.ts";
import type { GrantTerms } from "../credits/outcomes.ts";
import {
  type Booked,
  bookingAnswer,
  bookingAudit,
  bookingOutput,
  expiryText,
  referenceMismatch,
  requireCredits,
} from "./bookings.ts";
import { argument, command, credits, futureDate, line, optional, required } from "./command.ts";
import { type CreditCore, unknownOrganization } from "./core.ts";
import { amountOf, futureTimeOf, operation, timeOf } from "./operation.ts";

export const createGrant = operation({
  route: "POST /organizations/:id/grants",
  permission: "credits:write",
  summary: "Grant credits; a duplicate reference is ignored",
  body: (s) => s.NewGrant,
  answer: { status: 201, description: "The grant.", schema: (s) => s.Booking },
  async handle(services, call) {
    const { amount, effective_at, expires_at, ...terms } = call.body;
    const request = {
      ...terms,
      organizationId: call.params.id,
      amount: amountOf("amount", amount),
      effectiveAtMs: timeOf("effective_at", effective_at),
      expiresAtMs: futureTimeOf(services, "expires_at", expires_at),
    };
    return bookingAnswer(call, await grantCredits(services, request));
  },
  commands: [
    command({
      usage: "credits grant <amount>",
      summary: "Grant credits to an organization",
      flags: {
        amount: argument("<amount>", credits),
        organizationId: required("--org <id>", "organization to grant them to"),
        expiresAtMs: optional("--expires <date>", "expiry of the remaining credits (default: never)", futureDate),
        reference: optional(
          "--reference <reference>",
          "purpose, such as an invoice number; a duplicate reference is ignored",
          line,
        ),
      },
      run: async (services, request) => bookingOutput(await grantCredits(services, request), "granted", request),
    }),
  ],
});

type GrantRequest = Pick<GrantTransition, "organizationId" | "amount"> &
  Partial<Pick<GrantTransition, "effectiveAtMs" | "expiresAtMs" | "priority" | "reference">>;

/** Grants credits. Rejects with not_found, invalid_value or reference_mismatch. */
export async function grantCredits(core: CreditCore, request: GrantRequest): Promise<Booked> {
  const { organizationId, amount } = request;
  const { effectiveAtMs = null, expiresAtMs = null, priority = 0, reference = null } = request;
  await requireCredits(core, organizationId);
  const terms = { amount, effectiveAtMs, expiresAtMs, priority, reference };
  const audit = bookingAudit(core, "credits.grant", terms);
  const grantId = makeId("grant", core.random);
  const outcome = await core.bookings.grant({ organizationId, ...terms, grantId, audit });
  if (outcome.outcome === "unknown_organization") throw unknownOrganization(organizationId);
  if (outcome.outcome === "reference_mismatch") {
    throw referenceMismatch(reference, grantText(outcome.first), outcome.first.createdAtMs);
  }
  return { id: outcome.grantId, amount, balance: outcome.balance, repeated: outcome.repeated };
}

function grantText({ id, amount, effectiveAtMs, expiresAtMs, priority, createdAtMs }: GrantTerms): string {
  const start = effectiveAtMs === createdAtMs ? "" : `, in effect from ${isoTime(effectiveAtMs)}`;
  const rank = priority === 0 ? "" : `, with priority ${priority}`;
  return `grant ${id} of ${formatCredits(amount)} credits${start}, ${expiryText(expiresAtMs)}${rank}`;
}
