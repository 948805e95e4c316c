import { makeId } from "../admin/token.ts";
import type { NewRevocation } from "../api/admin/credits.ts";
import { creditsFromMicro, formatCredits } from "../credits/amount.ts";
import type { RevokeTransition } from "../credits/books.ts";
import { ApiError, OperatorError, UnknownIdError } from "../errors.ts";
import {
  acceptedOf,
  type Booked,
  bookingAnswer,
  bookingAudit,
  bookingOutput,
  type CommandWords,
  excessive,
} from "./bookings.ts";
import { command, credits, line, optional, required, text, toggle } from "./command.ts";
import type { CreditCore } from "./core.ts";
import { amountOf, operation } from "./operation.ts";

export const createRevocation = operation({
  route: "POST /organizations/:id/revocations",
  permission: "credits:write",
  summary: "Revoke credits that are neither spent nor held: an `amount`, or `all`; a duplicate reference is ignored",
  body: (s) => s.NewRevocation,
  answer: { status: 201, description: "The revocation.", schema: (s) => s.Booking },
  async handle(services, call) {
    const { grant_id: grantId = null, reference = null, note = null } = call.body;
    const amount = amountToRevoke(call.body);
    const request = { organizationId: call.params.id, amount, grantId, reference, note };
    return bookingAnswer(call, await revokeCredits(services, request));
  },
  commands: [
    command({
      usage: "credits revoke [amount]",
      summary: "Revoke credits that are neither spent nor held",
      flags: {
        words: optional("[amount]", "", text),
        organizationId: required("--org <id>", "organization to revoke them from"),
        all: toggle("--all", "revoke all available credits, instead of an amount"),
        grantId: optional(
          "--grant <id>",
          "only from this grant (default: in the order in which grants are spent)",
          text,
        ),
        reference: optional("--reference <reference>", "purpose; a duplicate reference is ignored", line),
        note: optional("--note <text>", "reason, shown in the statement", line),
      },
      input: ({ words, all, ...terms }) => ({ words, request: { ...terms, amount: revokedAmount(words, all) } }),
      run: async (services, { words, request }) =>
        bookingOutput(await revokeCredits(services, request, { amount: words }), "revoked", request),
    }),
  ],
});

type RevocationRequest = Pick<RevokeTransition, "organizationId" | "amount" | "grantId" | "reference" | "note">;

/** Revokes credits; an amount of null revokes all that are available. Rejects with not_found, invalid_value or reference_mismatch. */
export async function revokeCredits(
  core: CreditCore,
  request: RevocationRequest,
  words: CommandWords = {},
): Promise<Booked> {
  const { organizationId, grantId } = request;
  const audit = bookingAudit(core, "credits.revoke", request);
  const adjustmentId = makeId("adjustment", core.random);
  const outcome = acceptedOf(request, await core.bookings.revoke({ ...request, adjustmentId, audit }));
  if (outcome.outcome === "unknown_grant") {
    const command = new UnknownIdError("grant", grantId ?? "", `credits statement --org ${organizationId}`);
    const message = "The organization has no grant with this id.";
    throw new ApiError("invalid_value", message, { param: "grant_id", command });
  }
  if (outcome.outcome === "excessive") {
    const where = grantId === null ? "are available" : "are left of this grant";
    const message = `Invalid 'amount': ${creditsFromMicro(outcome.most)} credits ${where}. Revoke at most that many, or send \`"all": true\`.`;
    const what = grantId === null ? "which are available" : `which are left of ${grantId}`;
    throw excessive(words, message, `${formatCredits(outcome.most)} credits, ${what}, or --all`);
  }
  return { ...outcome, id: outcome.adjustment.id, amount: outcome.adjustment.amount };
}

/** Returns the amount of a revocation in micro-credits; null for `"all": true`, which must be explicit. */
function amountToRevoke({ amount = null, all = false }: NewRevocation): bigint | null {
  const asked = amount === null ? null : amountOf("amount", amount);
  if (all && asked !== null) {
    const message = "Invalid 'all': send either `amount` or `\"all\": true`, not both.";
    throw new ApiError("invalid_value", message, { param: "all" });
  }
  if (all || asked !== null) return asked;
  const message = "Missing required parameter: 'amount'. To revoke all available credits, send `\"all\": true`.";
  throw new ApiError("missing_required_parameter", message, { param: "amount" });
}

/** Does the same for the argument of a command and its flag `--all`. */
function revokedAmount(text: string | null, all: boolean): bigint | null {
  if (all && text !== null) {
    throw new OperatorError(`--all and AMOUNT ${JSON.stringify(text)} exclude each other; state one of them.`);
  }
  if (text !== null) return credits(text, "AMOUNT");
  if (all) return null;
  throw new OperatorError("AMOUNT is missing. State a number of credits, or --all for everything that is available.");
}
