import { makeId } from "../admin/token.ts";
import { creditsFromMicro, formatCredits } from "../credits/amount.ts";
import type { CreditTransition } from "../credits/books.ts";
import { isAccessId, uuidIn } from "../credits/request-id.ts";
import { ApiError, OperatorError } from "../errors.ts";
import {
  acceptedOf,
  type Booked,
  bookingAnswer,
  bookingAudit,
  bookingOutput,
  type CommandWords,
  excessive,
} from "./bookings.ts";
import { argument, command, credits, futureDate, line, optional, required } from "./command.ts";
import type { CreditCore } from "./core.ts";
import { amountOf, futureTimeOf, operation } from "./operation.ts";

export const createCredit = operation({
  route: "POST /organizations/:id/credits",
  permission: "credits:write",
  summary: "Refund credits that were spent, as goodwill or to correct a charge; a duplicate reference is ignored",
  body: (s) => s.NewCredit,
  answer: { status: 201, description: "The refund.", schema: (s) => s.Booking },
  async handle(services, call) {
    const { amount, request_id: anyId = null, expires_at, reference = null, note = null } = call.body;
    const request = {
      organizationId: call.params.id,
      amount: amountOf("amount", amount),
      holdId: anyId === null ? null : await services.requests.ownId(anyId),
      expiresAtMs: futureTimeOf(services, "expires_at", expires_at),
      reference,
      note,
    };
    return bookingAnswer(call, await refundCredits(services, request));
  },
  commands: [
    command({
      usage: "credits credit <amount>",
      summary: "Refund credits that were charged, as goodwill or to correct a charge",
      flags: {
        amount: argument("<amount>", (text, name) => ({ text, amount: credits(text, name) })),
        organizationId: required("--org <id>", "organization that was charged"),
        completion: optional(
          "--completion <id>",
          "the completion whose charge is corrected, by its `id` (chatcmpl-…, cmpl-…, resp_…, msg_…)",
          (text) => ({ text, holdId: holdIdOf(text) }),
        ),
        expiresAtMs: optional("--expires <date>", "expiry of the remaining credits (default: never)", futureDate),
        reference: optional("--reference <reference>", "purpose; a duplicate reference is ignored", line),
        note: optional("--note <text>", "reason, shown in the statement", line),
      },
      async run(services, { amount: { text, amount }, completion, ...terms }) {
        const request = { ...terms, amount, holdId: completion?.holdId ?? null };
        const words = { amount: text, completion: completion?.text };
        return bookingOutput(await refundCredits(services, request, words), "credited", request);
      },
    }),
  ],
});

type CreditRequest = Pick<
  CreditTransition,
  "organizationId" | "amount" | "holdId" | "expiresAtMs" | "reference" | "note"
>;

/** Refunds credits that were spent, as goodwill or to correct the charge of a hold. Rejects with an ApiError. */
export async function refundCredits(
  core: CreditCore,
  request: CreditRequest,
  words: CommandWords = {},
): Promise<Booked> {
  const audit = bookingAudit(core, "credits.credit", request);
  const adjustmentId = makeId("credit", core.random);
  const outcome = acceptedOf(request, await core.bookings.credit({ ...request, priority: 0, adjustmentId, audit }));
  if (outcome.outcome === "missing") {
    const command = unknownCompletion(words.completion ?? "");
    throw new ApiError("invalid_value", "The organization has no request with this id.", {
      param: "request_id",
      command,
    });
  }
  if (outcome.outcome === "closed") {
    const command = new OperatorError(
      `${words.completion} belongs to a closed period and can no longer be corrected. Without --completion, the credit is goodwill.`,
    );
    throw new ApiError("request_closed", undefined, { param: "request_id", command });
  }
  if (outcome.outcome === "excessive") {
    const message = `Invalid 'amount': at most ${creditsFromMicro(outcome.most)} were charged and not refunded yet.`;
    throw excessive(words, message, `${formatCredits(outcome.most)}, which was charged and not refunded yet`);
  }
  return { ...outcome, id: outcome.adjustment.id, amount: outcome.adjustment.amount };
}

function holdIdOf(completion: string): string {
  const id = isAccessId(completion) ? undefined : uuidIn(completion);
  if (id === undefined) throw unknownCompletion(completion);
  return id;
}

function unknownCompletion(id: string): OperatorError {
  return new OperatorError(
    `--completion is ${JSON.stringify(id)}, but must be the id of a completion of the organization (chatcmpl-…, cmpl-…, resp_…, msg_…).`,
  );
}
