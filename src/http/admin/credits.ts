import { PLAYGROUND_HOLDS_NOTHING } from "../../admin/accounts.ts";
import type { AuditAction } from "../../api/admin/audit.ts";
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
import type { Organization } from "../../api/admin/organization.ts";
import { isoTime } from "../../api/time.ts";
import { ApiError } from "../../errors.ts";
import { amountOf, listOf, nothingThere, orRefuse, pageOf, requireOwn, timeOf } from "./answers.ts";
import { type AdminCall, type AdminServices, actorOf, adminEndpoint } from "./endpoint.ts";

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
    await organizationOf(services, params.id);
    const { cursor, limit } = pageOf(query);
    return listOf(await orRefuse(services.directory.grants({ organizationId: params.id, cursor, limit })));
  },
});

const createGrant = adminEndpoint({
  method: "POST",
  path: "/organizations/:id/grants",
  access: "operator",
  operationId: "createGrant",
  summary: "Grant credits; the same reference twice grants once",
  body: NewGrant,
  response: { status: 201, description: "The grant.", schema: Booking },
  async handle(services, call) {
    const { amount, effective_at, expires_at, priority = 0, reference = null } = call.body;
    await creditedOf(services, call.params.id);
    const outcome = await services.creditDesk.grant({
      organizationId: call.params.id,
      amount: amountOf("amount", amount),
      effectiveAtMs: timeOf("effective_at", effective_at),
      expiresAtMs: timeToCome(services, "expires_at", expires_at),
      priority,
      reference,
      audit: bookingAudit(services, call, "credits.grant"),
    });
    if (outcome.outcome === "unknown_organization") throw nothingThere();
    if (outcome.outcome === "reference_mismatch") throw referenceMismatch(outcome);
    return answerOf(call, outcome.booking);
  },
});

const createRevocation = adminEndpoint({
  method: "POST",
  path: "/organizations/:id/revocations",
  access: "operator",
  operationId: "createRevocation",
  summary:
    "Revoke credits that are neither spent nor held: an `amount` of them, or `all`; the same reference twice revokes once",
  body: NewRevocation,
  response: { status: 201, description: "What was revoked.", schema: Booking },
  async handle(services, call) {
    const { grant_id = null, reference = null, note = null } = call.body;
    const terms = { organizationId: call.params.id, amount: amountToRevoke(call.body), grantId: grant_id };
    const audit = bookingAudit(services, call, "credits.revoke");
    const outcome = await services.creditDesk.revoke({ ...terms, reference, note, audit });
    if (outcome.outcome === "unknown_organization") throw nothingThere();
    if (outcome.outcome === "unknown_grant") {
      throw new ApiError("invalid_value", "The organization has no grant of this id.", { param: "grant_id" });
    }
    if (outcome.outcome === "excessive") {
      const where = grant_id === null ? "are available" : "are left of this grant";
      const message = `Invalid 'amount': ${outcome.most} credits ${where}. Revoke at most as many, or send \`"all": true\`.`;
      throw new ApiError("invalid_value", message, { param: "amount" });
    }
    if (outcome.outcome === "reference_mismatch") throw referenceMismatch(outcome);
    return answerOf(call, outcome.booking);
  },
});

const createCredit = adminEndpoint({
  method: "POST",
  path: "/organizations/:id/credits",
  access: "operator",
  operationId: "createCredit",
  summary: "Give back credits that were spent, as goodwill or to correct a charge; the same reference twice books once",
  body: NewCredit,
  response: { status: 201, description: "What was given back.", schema: Booking },
  async handle(services, call) {
    const { amount, hold_id = null, expires_at, reference = null, note = null } = call.body;
    const outcome = await services.creditDesk.credit({
      organizationId: call.params.id,
      amount: amountOf("amount", amount),
      holdId: hold_id,
      expiresAtMs: timeToCome(services, "expires_at", expires_at),
      reference,
      note,
      audit: bookingAudit(services, call, "credits.credit"),
    });
    if (outcome.outcome === "unknown_organization") throw nothingThere();
    if (outcome.outcome === "missing") {
      throw new ApiError("invalid_value", "The organization has no request of this id.", { param: "hold_id" });
    }
    if (outcome.outcome === "excessive") {
      const message = `Invalid 'amount': at most ${outcome.most} were charged and not given back yet.`;
      throw new ApiError("invalid_value", message, { param: "amount" });
    }
    if (outcome.outcome === "reference_mismatch") throw referenceMismatch(outcome);
    return answerOf(call, outcome.booking);
  },
});

const listAllowances = adminEndpoint({
  method: "GET",
  path: "/organizations/:id/allowances",
  access: "member",
  operationId: "listAllowances",
  summary: "List an organization's allowances, those that have ended too",
  query: AllowanceQuery,
  response: { status: 200, description: "A page.", schema: AllowancePage },
  async handle(services, { who, params, query }) {
    requireOwn(who, params.id);
    await organizationOf(services, params.id);
    const { cursor, limit } = pageOf(query);
    const rows = await services.creditDesk.allowances(params.id, cursor, limit + 1);
    const data = rows.slice(0, limit);
    return listOf({ data, nextCursor: rows.length > limit ? (data.at(-1)?.id ?? null) : null });
  },
});

const createAllowance = adminEndpoint({
  method: "POST",
  path: "/organizations/:id/allowances",
  access: "operator",
  operationId: "createAllowance",
  summary: "Grant credits every month from a time on; the same reference twice makes one allowance",
  body: NewAllowance,
  response: { status: 201, description: "The allowance.", schema: Allowance },
  async handle(services, call): Promise<Allowance> {
    const { amount, begins_at, lapses = true, reference = null } = call.body;
    const organizationId = call.params.id;
    await creditedOf(services, organizationId);
    const anchorAtMs = timeToCome(services, "begins_at", begins_at);
    const terms = { organizationId, amount: amountOf("amount", amount), anchorAtMs, lapses, reference };
    const made = await services.creditDesk.createAllowance(terms, ({ id: subjectId, anchorAtMs: beginsAtMs }) => {
      const after = { amount, lapses, reference, begins_at: isoTime(beginsAtMs) };
      return services.audit.changeBy(actorOf(call), { action: "allowance.create", organizationId, subjectId, after });
    });
    if (made.outcome === "reference_mismatch") throw referenceMismatch(made);
    if (made.repeated) call.reply.code(200);
    return made.allowance;
  },
});

const endAllowance = adminEndpoint({
  method: "DELETE",
  path: "/organizations/:id/allowances/:allowance_id",
  access: "operator",
  operationId: "endAllowance",
  summary: "End an allowance; what was granted for the current month stays",
  response: { status: 200, description: "The allowance as it is now.", schema: Allowance },
  async handle(services, call): Promise<Allowance> {
    const { id: organizationId, allowance_id = "" } = call.params;
    const change = { action: "allowance.end" as const, organizationId, subjectId: allowance_id };
    const audit = services.audit.changeBy(actorOf(call), change);
    const ended = await services.creditDesk.endAllowance(organizationId, allowance_id, audit);
    if (ended === undefined) throw nothingThere();
    return ended.allowance;
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

async function organizationOf({ directory }: AdminServices, id: string): Promise<Organization> {
  const organization = await directory.organization(id);
  if (organization === undefined) throw nothingThere();
  return organization;
}

async function creditedOf(services: AdminServices, id: string): Promise<void> {
  const { kind } = await organizationOf(services, id);
  if (kind === "playground") throw new ApiError("invalid_value", PLAYGROUND_HOLDS_NOTHING);
}

function referenceMismatch({ message }: { message: string }): ApiError {
  return new ApiError("reference_mismatch", message, { param: "reference" });
}

/** The amount of a revocation in micro-credits; null for all that is available, which has to be asked for. */
function amountToRevoke({ amount, all = false }: NewRevocation): bigint | null {
  const asked = amountOf("amount", amount);
  if (all && asked !== null) {
    const message = "Invalid 'all': send either `amount` or `\"all\": true`, not both.";
    throw new ApiError("invalid_value", message, { param: "all" });
  }
  if (all || asked !== null) return asked;
  const message = "Missing required parameter: 'amount'. To revoke everything that is available, send `\"all\": true`.";
  throw new ApiError("missing_required_parameter", message, { param: "amount" });
}

function timeToCome({ clock }: AdminServices, param: string, text: string | null | undefined): number | null {
  const timeMs = timeOf(param, text);
  if (timeMs === null || timeMs > clock()) return timeMs;
  throw new ApiError("invalid_value", `Invalid '${param}': expected a time to come.`, { param });
}

/** Prepares the audit entry of a booking; the ledger adds the amount. */
function bookingAudit({ audit }: AdminServices, call: AdminCall<unknown, object>, action: AuditAction) {
  return audit.bookingBy(actorOf(call), { action, after: { ...call.body }, amountAs: "number" });
}

function answerOf({ reply }: AdminCall, booking: Booking): Booking {
  if (booking.repeated) reply.code(200);
  return booking;
}
