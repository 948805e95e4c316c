import { auditRow } from "../admin/audit.ts";
import { makeId } from "../admin/token.ts";
import type { Booking, NewRevocation } from "../api/admin/credits.ts";
import { DAY_MS, isoTime } from "../api/time.ts";
import { auditedBooking, type BookedTerms } from "../credits/adjustments.ts";
import { creditsFromMicro, creditsJson, creditsOf, formatCredits, type MicroCredits } from "../credits/amount.ts";
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
import { eventOf } from "../credits/warnings.ts";
import { ApiError, OperatorError, UnknownIdError } from "../errors.ts";
import {
  argument,
  command,
  credits,
  facts,
  futureDate,
  jsonOf,
  line,
  optional,
  required,
  text,
  toggle,
} from "./command.ts";
import { type Core, type CreditCore, closedOrganization, rowRecord, unknownOrganization } from "./core.ts";
import { amountOf, futureTimeOf, operation, sharedOperation, timeOf } from "./operation.ts";

export const listGrants = operation({
  route: "GET /organizations/:id/grants",
  permission: "credits:read",
  summary: "List an organization's grants, the newest first",
  query: (s) => s.Strict(s.PageQuery),
  answer: { status: 200, description: "A page.", schema: (s) => s.PageOf(s.Grant) },
  handle: ({ directory }, { params: { id: organizationId }, page }) => directory.grants({ organizationId, ...page }),
});

export const createGrant = sharedOperation({
  route: "POST /organizations/:id/grants",
  permission: "credits:write",
  summary: "Grant credits; a duplicate reference is ignored",
  body: (s) => s.NewGrant,
  answer: { status: 201, description: "The grant.", schema: (s) => s.Booking },
  async handle(core, { params, body: { amount, effective_at, expires_at, ...terms } }) {
    return grantCredits(core, {
      ...terms,
      organizationId: params.id,
      amount: amountOf("amount", amount),
      effectiveAtMs: timeOf("effective_at", effective_at),
      expiresAtMs: futureTimeOf(core, "expires_at", expires_at),
    });
  },
  commands: (make) => [
    make.command({
      usage: "credits grant <amount>",
      summary: "Grant credits to an organization",
      flags: {
        amount: argument("<amount>", credits),
        id: required("--org <id>", "organization to grant them to"),
        expires_at: optional("--expires <date>", "expiry of the remaining credits (default: never)", futureDate),
        reference: optional(
          "--reference <reference>",
          "purpose, such as an invoice number; a duplicate reference is ignored",
          line,
        ),
      },
      json: bookingJson,
      text: (booking, terms) => bookingText(booking, "granted", terms),
    }),
  ],
});

type GrantRequest = Pick<GrantTransition, "organizationId" | "amount"> &
  Partial<Pick<GrantTransition, "effectiveAtMs" | "expiresAtMs" | "priority" | "reference">>;

/** Grants credits. Rejects with not_found, invalid_value or reference_mismatch. */
export async function grantCredits(core: CreditCore, request: GrantRequest): Promise<Booking> {
  const { organizationId, amount } = request;
  const { effectiveAtMs = null, expiresAtMs = null, priority = 0, reference = null } = request;
  await requireCredits(core, organizationId);
  const terms = { amount, effectiveAtMs, expiresAtMs, priority, reference };
  const audit = bookingAudit(core, "credits.grant", terms);
  const grantId = makeId("grant", core.random);
  const outcome = await core.book({ kind: "grant", organizationId, ...terms, grantId, audit });
  if (outcome.outcome === "unknown_organization") throw unknownOrganization(organizationId);
  if (outcome.outcome === "reference_mismatch") {
    throw referenceMismatch(reference, grantText(outcome.first), outcome.first.createdAtMs);
  }
  return bookingOf({ ...outcome, id: outcome.grantId, amount });
}

function grantText({ id, amount, effectiveAtMs, expiresAtMs, priority, createdAtMs }: GrantTerms): string {
  const start = effectiveAtMs === createdAtMs ? "" : `, in effect from ${isoTime(effectiveAtMs)}`;
  const rank = priority === 0 ? "" : `, with priority ${priority}`;
  return `grant ${id} of ${formatCredits(amount)} credits${start}, ${expiryText(expiresAtMs)}${rank}`;
}

export const requestCredits = operation({
  route: "POST /organizations/:id/credit-requests",
  permission: "credits:request",
  summary: "Ask for credits: the receivers of warnings get the event `credits.requested`, once a day from each person",
  body: (s) => s.NewCreditRequest,
  answer: { status: 201, description: "The request. Nothing is granted.", schema: (s) => s.CreditRequest },
  async handle(core, { params: { id }, body: { amount, note = null } }) {
    amountOf("amount", amount);
    const nowMs = core.clock();
    const { id: personId, name, kind } = core.actor;
    // A person can ask once a day.
    const period = [personId, Math.floor(nowMs / DAY_MS)];
    const data = { amount, note, requested_by: name ?? personId, role: kind };
    const event = eventOf("credits.requested", { organizationId: id, nowMs, period }, data);
    const audit = rowRecord(core, "credits.request", { organizationId: id, id }, { after: { amount, note } });
    const isNew = await core.events.insertEvent(event, audit);
    return { object: "credit_request", organization_id: id, amount, note, repeated: !isNew };
  },
});

export const createRevocation = sharedOperation({
  route: "POST /organizations/:id/revocations",
  permission: "credits:write",
  summary: "Revoke credits that are neither spent nor held: an `amount`, or `all`; a duplicate reference is ignored",
  body: (s) => s.NewRevocation,
  answer: { status: 201, description: "The revocation.", schema: (s) => s.Booking },
  async handle(core, { params, body }) {
    const { grant_id: grantId = null, reference = null, note = null } = body;
    const amount = amountToRevoke(body);
    return revokeCredits(core, { organizationId: params.id, amount, grantId, reference, note });
  },
  commands: (make) => [
    make.command({
      usage: "credits revoke [amount]",
      summary: "Revoke credits that are neither spent nor held",
      flags: {
        amount: optional("[amount]", "", credits),
        id: required("--org <id>", "organization to revoke them from"),
        all: toggle("--all", "revoke all available credits, instead of an amount"),
        grant_id: optional(
          "--grant <id>",
          "only from this grant (default: in the order in which grants are spent)",
          text,
        ),
        reference: optional("--reference <reference>", "purpose; a duplicate reference is ignored", line),
        note: optional("--note <text>", "reason, shown in the statement", line),
      },
      call({ id, ...body }) {
        const { amount, all } = body;
        if (all && amount !== null) throw new OperatorError("AMOUNT and --all exclude each other; state one of them.");
        if (all || amount !== null) return { params: { id }, body };
        throw new OperatorError("AMOUNT is missing. State a number of credits, or --all for all that are available.");
      },
      json: bookingJson,
      text: (booking) => bookingText(booking, "revoked"),
    }),
  ],
});

type RevocationRequest = Omit<RevokeTransition, "kind" | "adjustmentId" | "audit">;

/** Revokes credits; an amount of null revokes all that are available. Rejects with not_found, invalid_value or reference_mismatch. */
export async function revokeCredits(core: CreditCore, request: RevocationRequest): Promise<Booking> {
  const { organizationId, grantId } = request;
  const audit = bookingAudit(core, "credits.revoke", request);
  const adjustmentId = makeId("adjustment", core.random);
  const outcome = acceptedOf(request, await core.book({ kind: "revoke", ...request, adjustmentId, audit }));
  if (outcome.outcome === "unknown_grant") {
    const command = new UnknownIdError("grant", grantId ?? "", `credits statement --org ${organizationId}`);
    const message = "The organization has no grant with this id.";
    throw new ApiError("invalid_value", message, { param: "grant_id", command });
  }
  if (outcome.outcome === "excessive") {
    const where = grantId === null ? "are available" : `are left of ${grantId}`;
    throw excessive(`${creditsFromMicro(outcome.most)} credits ${where}. Revoke at most that many, or all of them.`);
  }
  return bookingOf({ ...outcome, ...outcome.adjustment });
}

/** Returns the amount of a revocation in micro-credits; null for all that are available, which must be explicit. */
function amountToRevoke({ amount = null, all = false }: NewRevocation): bigint | null {
  const asked = amount === null ? null : amountOf("amount", amount);
  if (all && asked !== null) {
    const message = "Invalid 'all': state either an amount or `all`, not both.";
    throw new ApiError("invalid_value", message, { param: "all" });
  }
  if (all || asked !== null) return asked;
  const message = "Missing required parameter: 'amount'. To revoke all available credits, send `\"all\": true`.";
  throw new ApiError("missing_required_parameter", message, { param: "amount" });
}

export const createCredit = operation({
  route: "POST /organizations/:id/credits",
  permission: "credits:write",
  summary: "Refund credits that were spent, as goodwill or to correct a charge; a duplicate reference is ignored",
  body: (s) => s.NewCredit,
  answer: { status: 201, description: "The refund.", schema: (s) => s.Booking },
  async handle(
    services,
    { params, body: { amount, request_id: anyId = null, expires_at, reference = null, note = null } },
  ) {
    return refundCredits(services, {
      organizationId: params.id,
      amount: amountOf("amount", amount),
      holdId: anyId === null ? null : await services.requests.ownId(anyId),
      expiresAtMs: futureTimeOf(services, "expires_at", expires_at),
      reference,
      note,
    });
  },
  commands: [
    command({
      usage: "credits credit <amount>",
      summary: "Refund credits that were charged, as goodwill or to correct a charge",
      flags: {
        amount: argument("<amount>", credits),
        organizationId: required("--org <id>", "organization that was charged"),
        holdId: optional(
          "--completion <id>",
          "the completion whose charge is corrected, by its `id` (chatcmpl-…, cmpl-…, resp_…, msg_…)",
          holdIdOf,
        ),
        expires_at: optional("--expires <date>", "expiry of the remaining credits (default: never)", futureDate),
        reference: optional("--reference <reference>", "purpose; a duplicate reference is ignored", line),
        note: optional("--note <text>", "reason, shown in the statement", line),
      },
      async run(services, { amount, expires_at, ...terms }) {
        const [amountMicro, expiresAtMs] = [amountOf("amount", amount), timeOf("expires_at", expires_at)];
        const booking = await refundCredits(services, { ...terms, amount: amountMicro, expiresAtMs });
        return {
          json: bookingJson(booking, { ...terms, expires_at }),
          text: bookingText(booking, "credited", { expires_at }),
        };
      },
    }),
  ],
});

type CreditRequest = Pick<
  CreditTransition,
  "organizationId" | "amount" | "holdId" | "expiresAtMs" | "reference" | "note"
>;

/** Refunds credits that were spent, as goodwill or to correct the charge of a hold. Rejects with an ApiError. */
export async function refundCredits(core: CreditCore, request: CreditRequest): Promise<Booking> {
  const audit = bookingAudit(core, "credits.credit", request);
  const adjustmentId = makeId("credit", core.random);
  const outcome = acceptedOf(
    request,
    await core.book({ kind: "credit", ...request, priority: 0, adjustmentId, audit }),
  );
  if (outcome.outcome === "missing") {
    throw new ApiError("invalid_value", "The organization has no request with this id.", { param: "request_id" });
  }
  if (outcome.outcome === "closed") throw new ApiError("request_closed", undefined, { param: "request_id" });
  if (outcome.outcome === "excessive") {
    throw excessive(`at most ${creditsFromMicro(outcome.most)} were charged and not refunded yet.`);
  }
  return bookingOf({ ...outcome, ...outcome.adjustment });
}

function holdIdOf(completion: string, name: string): string {
  const id = isAccessId(completion) ? undefined : uuidIn(completion);
  if (id !== undefined) return id;
  const allowed = "the id of a completion of the organization (chatcmpl-…, cmpl-…, resp_…, msg_…)";
  throw new OperatorError(`${name} is ${JSON.stringify(completion)}, but must be ${allowed}.`);
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

/** Rejects for an unknown organization, for a closed one, and for the playground, which holds no credits. */
export async function requireCredits({ accounts }: Pick<Core, "accounts">, organizationId: string): Promise<void> {
  const organization = await accounts.organization(organizationId);
  if (organization === undefined) throw unknownOrganization(organizationId);
  if (organization.status === "closed") throw closedOrganization(organizationId);
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

function excessive(most: string): ApiError {
  return new ApiError("invalid_value", `Invalid 'amount': ${most}`, { param: "amount" });
}

/** Returns the error for a reference that was used with other terms. */
export function referenceMismatch(reference: string | null, first: string, madeAtMs: number): ApiError {
  const text = JSON.stringify(reference);
  const message = `The reference ${text} was used with other terms: ${first}, made at ${isoTime(madeAtMs)}. Use another reference.`;
  return new ApiError("reference_mismatch", message, { param: "reference" });
}

/** Formats a grant, a revocation or a refund. Of a repeated reference, the values are those of the first booking. */
export function bookingOf(booked: {
  id: string;
  amount: MicroCredits;
  balance: BalanceRow;
  repeated: boolean;
}): Booking {
  const { id, amount, balance, repeated } = booked;
  const { organizationId: organization_id } = balance;
  const credits = creditsOf(balance);
  return { object: "booking", organization_id, id, amount: creditsFromMicro(amount), repeated, credits };
}

interface StatedTerms {
  reference?: string | null;
  expires_at?: string | null;
}

/** Formats a booking as commands do. */
export function bookingJson({ credits, ...booking }: Booking, { reference, expires_at: expiresAt }: StatedTerms) {
  const stated = { ...(expiresAt !== undefined && { expiresAt }), reference };
  return { ...jsonOf(booking), ...stated, ...creditsJson(credits) };
}

/** Describes a booking. `done` is what an earlier one did under the same reference. */
export function bookingText(
  { id, amount, repeated, credits: { available, total, used } }: Booking,
  done: "granted" | "revoked" | "credited",
  { expires_at }: StatedTerms = {},
): string {
  return facts({
    id,
    amount: repeated ? `${amount}, ${done} before under this reference` : amount,
    ...(expires_at !== undefined && { expires: expires_at ?? "never" }),
    credits: `${available} of ${total} available, ${used} used`,
  });
}
