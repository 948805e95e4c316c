import { type AdjustmentRefusal, type Booked, PLAYGROUND_HOLDS_NO_CREDITS } from "../../admin/credit-adjustments.ts";
import {
  Allowance,
  AllowancePage,
  AllowanceQuery,
  Booking,
  GrantPage,
  GrantQuery,
  NewAllowance,
  NewCredit,
  NewGrant,
  NewRevocation,
} from "../../api/admin/credits.ts";
import { isoTime } from "../../api/time.ts";
import type { AllowanceRow } from "../../credits/allowance.ts";
import { creditsFromMicro, creditsOf } from "../../credits/amount.ts";
import { ApiError } from "../../errors.ts";
import {
  type AdminCall,
  type AdminServices,
  actorOf,
  adminEndpoint,
  amountOf,
  listOf,
  notFound,
  pageOf,
  requireOrganization,
  requireOwn,
  timeOf,
  withApiErrors,
} from "./endpoint.ts";

const listGrants = adminEndpoint({
  method: "GET",
  path: "/organizations/:id/grants",
  access: "member",
  operationId: "listGrants",
  summary: "List an organization's grants, the newest first",
  query: GrantQuery,
  response: { status: 200, description: "A page.", schema: GrantPage },
  async handle(services, { who, params, query }) {
    requireOwn(who, params.id);
    await requireOrganization(services, params.id);
    const { cursor, limit } = pageOf(query);
    return listOf(await withApiErrors(services.directory.grants({ organizationId: params.id, cursor, limit })));
  },
});

const createGrant = adminEndpoint({
  method: "POST",
  path: "/organizations/:id/grants",
  access: "operator",
  operationId: "createGrant",
  summary: "Grant credits; a duplicate reference is ignored",
  body: NewGrant,
  response: { status: 201, description: "The grant.", schema: Booking },
  async handle(services, call) {
    const { amount, effective_at, expires_at, priority = 0, reference = null } = call.body;
    const request = {
      organizationId: call.params.id,
      amount: amountOf("amount", amount),
      effectiveAtMs: timeOf("effective_at", effective_at),
      expiresAtMs: timeToCome(services, "expires_at", expires_at),
      priority,
      reference,
    };
    return answerOf(call, acceptedOf(await services.creditAdjustments.grant(request, actorOf(call))));
  },
});

const createRevocation = adminEndpoint({
  method: "POST",
  path: "/organizations/:id/revocations",
  access: "operator",
  operationId: "createRevocation",
  summary: "Revoke credits that are neither spent nor held: an `amount`, or `all`; a duplicate reference is ignored",
  body: NewRevocation,
  response: { status: 201, description: "The revocation.", schema: Booking },
  async handle(services, call) {
    const { grant_id = null, reference = null, note = null } = call.body;
    const amount = amountToRevoke(call.body);
    const request = { organizationId: call.params.id, amount, grantId: grant_id, reference, note };
    const booked = acceptedOf(await services.creditAdjustments.revoke(request, actorOf(call)));
    if (booked.outcome === "unknown_grant") {
      throw new ApiError("invalid_value", "The organization has no grant with this id.", { param: "grant_id" });
    }
    if (booked.outcome === "excessive") {
      const most = creditsFromMicro(booked.most);
      const where = grant_id === null ? "are available" : "are left of this grant";
      const message = `Invalid 'amount': ${most} credits ${where}. Revoke at most that many, or send \`"all": true\`.`;
      throw new ApiError("invalid_value", message, { param: "amount" });
    }
    return answerOf(call, booked);
  },
});

const createCredit = adminEndpoint({
  method: "POST",
  path: "/organizations/:id/credits",
  access: "operator",
  operationId: "createCredit",
  summary: "Refund credits that were spent, as goodwill or to correct a charge; a duplicate reference is ignored",
  body: NewCredit,
  response: { status: 201, description: "The refund.", schema: Booking },
  async handle(services, call) {
    const { amount, hold_id = null, expires_at, reference = null, note = null } = call.body;
    const request = {
      organizationId: call.params.id,
      amount: amountOf("amount", amount),
      holdId: hold_id,
      expiresAtMs: timeToCome(services, "expires_at", expires_at),
      reference,
      note,
    };
    const booked = acceptedOf(await services.creditAdjustments.credit(request, actorOf(call)));
    if (booked.outcome === "missing") {
      throw new ApiError("invalid_value", "The organization has no request with this id.", { param: "hold_id" });
    }
    if (booked.outcome === "closed") throw new ApiError("request_closed", undefined, { param: "hold_id" });
    if (booked.outcome === "excessive") {
      const message = `Invalid 'amount': at most ${creditsFromMicro(booked.most)} were charged and not refunded yet.`;
      throw new ApiError("invalid_value", message, { param: "amount" });
    }
    return answerOf(call, booked);
  },
});

const listAllowances = adminEndpoint({
  method: "GET",
  path: "/organizations/:id/allowances",
  access: "member",
  operationId: "listAllowances",
  summary: "List an organization's allowances, including those that have ended",
  query: AllowanceQuery,
  response: { status: 200, description: "A page.", schema: AllowancePage },
  async handle(services, { who, params, query }) {
    requireOwn(who, params.id);
    await requireOrganization(services, params.id);
    const { cursor, limit } = pageOf(query);
    const rows = await services.creditAdjustments.allowances(params.id, cursor, limit + 1);
    const data = rows.slice(0, limit).map(toAllowance);
    return listOf({ data, nextCursor: rows.length > limit ? (data.at(-1)?.id ?? null) : null });
  },
});

const createAllowance = adminEndpoint({
  method: "POST",
  path: "/organizations/:id/allowances",
  access: "operator",
  operationId: "createAllowance",
  summary: "Grant credits every month from a given time; a duplicate reference is ignored",
  body: NewAllowance,
  response: { status: 201, description: "The allowance.", schema: Allowance },
  async handle(services, call): Promise<Allowance> {
    const { amount, begins_at, lapses = true, reference = null } = call.body;
    const request = {
      organizationId: call.params.id,
      amount: amountOf("amount", amount),
      anchorAtMs: timeToCome(services, "begins_at", begins_at),
      lapses,
      reference,
    };
    const made = acceptedOf(await services.creditAdjustments.createAllowance(request, actorOf(call)));
    if (made.repeated) call.reply.code(200);
    return toAllowance(made.row);
  },
});

const endAllowance = adminEndpoint({
  method: "DELETE",
  path: "/organizations/:id/allowances/:allowance_id",
  access: "operator",
  operationId: "endAllowance",
  summary: "End an allowance; the current month's grant stays",
  response: { status: 200, description: "The allowance as it is now.", schema: Allowance },
  async handle(services, call): Promise<Allowance> {
    const { id, allowance_id = "" } = call.params;
    const ended = await services.creditAdjustments.endAllowance(id, allowance_id, actorOf(call));
    if (ended === undefined) throw notFound();
    return toAllowance(ended.row);
  },
});

export const creditEndpoints = [
  listGrants,
  createGrant,
  createRevocation,
  createCredit,
  listAllowances,
  createAllowance,
  endAllowance,
];

/** Returns the outcome of an adjustment. Throws ApiError for the refusals that every kind of adjustment has. */
function acceptedOf<Outcome extends { outcome: string }>(
  outcome: Outcome | AdjustmentRefusal,
): Exclude<Outcome, AdjustmentRefusal> {
  const { outcome: name } = outcome;
  if (name === "unknown_organization") throw notFound();
  if (name === "playground") throw new ApiError("invalid_value", PLAYGROUND_HOLDS_NO_CREDITS);
  if (name === "reference_mismatch") {
    throw new ApiError("reference_mismatch", (outcome as { message: string }).message, { param: "reference" });
  }
  return outcome as Exclude<Outcome, AdjustmentRefusal>;
}

/** Returns the amount of a revocation in micro-credits; null for `"all": true`, which must be explicit. */
function amountToRevoke({ amount, all = false }: NewRevocation): bigint | null {
  const asked = amountOf("amount", amount);
  if (all && asked !== null) {
    const message = "Invalid 'all': send either `amount` or `\"all\": true`, not both.";
    throw new ApiError("invalid_value", message, { param: "all" });
  }
  if (all || asked !== null) return asked;
  const message = "Missing required parameter: 'amount'. To revoke all available credits, send `\"all\": true`.";
  throw new ApiError("missing_required_parameter", message, { param: "amount" });
}

function timeToCome({ clock }: AdminServices, param: string, text: string | null | undefined): number | null {
  const timeMs = timeOf(param, text);
  if (timeMs === null || timeMs > clock()) return timeMs;
  throw new ApiError("invalid_value", `Invalid '${param}': expected a time in the future.`, { param });
}

function answerOf({ reply }: AdminCall, { id, amount, balance, repeated }: Booked): Booking {
  if (repeated) reply.code(200);
  const { organizationId: organization_id } = balance;
  const credits = creditsOf(balance);
  return { object: "booking", organization_id, id, amount: creditsFromMicro(amount), repeated, credits };
}

function toAllowance(row: AllowanceRow): Allowance {
  return {
    object: "allowance",
    id: row.id,
    organization_id: row.organizationId,
    amount: creditsFromMicro(row.amount),
    lapses: row.lapses,
    reference: row.reference,
    begins_at: isoTime(row.anchorAtMs),
    next_at: isoTime(row.nextAtMs),
    ended_at: row.endedAtMs === null ? null : isoTime(row.endedAtMs),
    created_at: isoTime(row.createdAtMs),
  };
}
