import { auditRow } from "../admin/audit.ts";
import { makeId } from "../admin/token.ts";
import type { Booking, NewRevocation } from "../api/admin/credits.ts";
import { isoTime } from "../api/time.ts";
import { auditedBooking, type BookedTerms } from "../credits/adjustments.ts";
import { creditsFromMicro, creditsOf, formatCredits, type MicroCredits, usageReport } from "../credits/amount.ts";
import type { BookingAudit } from "../credits/audit.ts";
import type {
  AdjustmentRow,
  BalanceRow,
  CreditTransition,
  GrantTransition,
  RevokeTransition,
} from "../credits/books.ts";
import type { AdjustmentMismatch, GrantTerms } from "../credits/outcomes.ts";
import { isAccessId, uuidIn } from "../credits/request-id.ts";
import { ApiError, OperatorError, UnknownIdError } from "../errors.ts";
import {
  argument,
  type CommandOutput,
  command,
  credits,
  facts,
  futureDate,
  line,
  optional,
  required,
  text,
  toggle,
} from "./command.ts";
import { type Core, type CreditCore, unknownOrganization } from "./core.ts";
import { amountOf, futureTimeOf, type OperationCall, operation, timeOf } from "./operation.ts";

export const listGrants = operation({
  route: "GET /organizations/:id/grants",
  permission: "credits:read",
  summary: "List an organization's grants, the newest first",
  query: (s) => s.Strict(s.PageQuery),
  answer: { status: 200, description: "A page.", schema: (s) => s.PageOf(s.Grant) },
  handle: ({ directory }, { params: { id: organizationId }, page }) => directory.grants({ organizationId, ...page }),
});

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

/** Result of a grant, a revocation or a refund. */
interface Booked {
  id: string;
  amount: MicroCredits;
  balance: BalanceRow;
  /** True for the repetition of a reference: the values are those of the first booking. */
  repeated: boolean;
}

/** The words of a command, which its errors repeat. */
interface CommandWords {
  amount?: string | null;
  completion?: string | null;
}

/** Prepares the audit record of a booking, with the terms that a request states. The ledger adds the booked amount. */
function bookingAudit(
  { actor, ...time }: CreditCore,
  action: `credits.${string}`,
  { amount, ...terms }: BookedTerms & { amount: MicroCredits | null },
): BookingAudit {
  const stated = Object.entries({ ...auditedBooking(terms), all: amount === null ? true : null });
  const after = Object.fromEntries(stated.filter(([, value]) => value !== null && value !== undefined));
  return { ...auditRow(actor, { action, organizationId: null, subjectId: null }, time), after };
}

/** Rejects for an unknown organization, and for the playground, which holds no credits. */
export async function requireCredits({ accounts }: Pick<Core, "accounts">, organizationId: string): Promise<void> {
  const organization = await accounts.organization(organizationId);
  if (organization === undefined) throw unknownOrganization(organizationId);
  if (organization.kind !== "playground") return;
  throw new ApiError("invalid_value", "The playground organization holds no credits.");
}

/** Returns the outcome of a revocation or a refund. Throws for the refusals that both have. */
function acceptedOf<Outcome extends { outcome: string }>(
  { organizationId, reference }: Pick<AdjustmentRow, "organizationId" | "reference">,
  outcome: Outcome | AdjustmentMismatch | { outcome: "unknown_organization" },
): Exclude<Outcome, AdjustmentMismatch | { outcome: "unknown_organization" }> {
  if (outcome.outcome === "unknown_organization") throw unknownOrganization(organizationId);
  if (outcome.outcome === "reference_mismatch") {
    const { first } = outcome as AdjustmentMismatch;
    throw referenceMismatch(reference, adjustmentText(first), first.madeAtMs);
  }
  return outcome as Exclude<Outcome, AdjustmentMismatch | { outcome: "unknown_organization" }>;
}

function adjustmentText({ kind, id, amount, isAll, grantId, holdId, expiresAtMs }: AdjustmentRow): string {
  const credits = `${formatCredits(amount)} credits`;
  if (kind === "credit") {
    const request = holdId === null ? "" : ` for the request ${holdId}`;
    return `credit ${id} of ${credits}${request}, ${expiryText(expiresAtMs)}`;
  }
  const all = isAll ? ", everything that was available," : "";
  return `revocation ${id} of ${credits}${all}${grantId === null ? "" : ` from ${grantId}`}`;
}

function expiryText(expiresAtMs: number | null): string {
  return expiresAtMs === null ? "without expiry" : `expiring at ${isoTime(expiresAtMs)}`;
}

/** Returns the error for an amount above `most`. */
function excessive(words: CommandWords, message: string, most: string): ApiError {
  const command = new OperatorError(`AMOUNT is ${JSON.stringify(words.amount)}, but must be at most ${most}.`);
  return new ApiError("invalid_value", message, { param: "amount", command });
}

/** Returns the error for a reference that was used with other terms. */
export function referenceMismatch(reference: string | null, first: string, madeAtMs: number): ApiError {
  const text = JSON.stringify(reference);
  const message = `The reference ${text} was used with other terms: ${first}, made at ${isoTime(madeAtMs)}. Use another reference.`;
  return new ApiError("reference_mismatch", message, { param: "reference" });
}

function bookingAnswer({ connection }: Pick<OperationCall, "connection">, booked: Booked): Booking {
  const { id, amount, balance, repeated } = booked;
  if (repeated) connection.repeated();
  const { organizationId: organization_id } = balance;
  const credits = creditsOf(balance);
  return { object: "booking", organization_id, id, amount: creditsFromMicro(amount), repeated, credits };
}

/** Reports a booking as commands do. `done` is what an earlier command did under the same reference. */
function bookingOutput(
  { id, amount, balance, repeated }: Booked,
  done: "granted" | "revoked" | "credited",
  { reference, expiresAtMs }: Pick<AdjustmentRow, "reference"> & { expiresAtMs?: number | null },
): CommandOutput {
  const { organization_id: organizationId, creditsTotal, creditsAvailable, creditsUsed } = usageReport(balance);
  const credits = creditsFromMicro(amount);
  const expires = expiresAtMs === undefined ? {} : { expiresAt: isoTime(expiresAtMs) };
  const left = { creditsTotal, creditsAvailable, ...(done === "credited" && { creditsUsed }) };
  const text = facts({
    id,
    amount: repeated ? `${credits}, ${done} before under this reference` : credits,
    ...(done === "granted" && { expires: expires.expiresAt ?? "never" }),
    credits: `${creditsAvailable} of ${creditsTotal} available${done === "credited" ? `, ${creditsUsed} used` : ""}`,
  });
  return { json: { id, organizationId, amount: credits, ...expires, reference, repeated, ...left }, text };
}
