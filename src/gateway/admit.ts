import { isoTime } from "../api/time.ts";
import type { StatedOutput } from "../api/wire.ts";
import { highestPricesAt, pricesAt, type Route, upstreamOf } from "../catalog/model.ts";
import { creditsFromMicro, formatCredits, type MicroCredits } from "../credits/amount.ts";
import { type BudgetState, budgetRest, windowEnd } from "../credits/budgets.ts";
import { affordableOutputTokens, type HoldNeed, holdBounds, possiblePrices } from "../credits/estimate.ts";
import type { HoldFacts, Intent } from "../credits/facts.ts";
import type { Outcomes } from "../credits/outcomes.ts";
import { FREE, NO_TOKENS, pricesUsed } from "../credits/price.ts";
import { ApiError, type ErrorFields } from "../errors.ts";
import type { Lease } from "../ledger/lease.ts";
import { type Admitted, tokenBoundsOf } from "./charge.ts";
import type { Gateway, GatewayCall } from "./gateway.ts";
import { type LimitEntry, retryHeaders, wantedLimits } from "./limits.ts";
import { needsCount, type OutputRange, outputRange, withCount } from "./output-bound.ts";
import type { Plan } from "./plan.ts";

/** Time for which a repeated request with the same idempotency key gets the first answer. */
const KEY_KEPT_MS = 24 * 60 * 60 * 1000;

/** An admitted request: its credits are held, its tokens and its concurrency counted. */
export interface Admission extends LimitEntry, Admitted {
  /** The routes of the plan whose largest charge the request's own bound of its cost allows. */
  routes: readonly [Route, ...Route[]];
  lease: Lease;
  /** True where `maxTokens` is less than requested, or than the model's default. */
  isShortened: boolean;
  available: MicroCredits;
  /** The budget with the least left, the hold included; absent if none covers the request. */
  tightest: BudgetState | undefined;
  admittedAtMs: number;
}

/** A request whose answer is stored under its idempotency key. */
export interface Replay extends Pick<LimitEntry, "requestLimit" | "tokenLimit"> {
  /** JSON text of a StoredAnswer. */
  answer: string;
  charged: MicroCredits;
  available: MicroCredits;
}

/**
 * Admits a request, or finds the answer that is stored under its key. Throws rate_limit_exceeded, context_length_exceeded,
 * max_cost_exceeded, insufficient_credits, budget_exhausted, credits_held, idempotency_in_progress, idempotency_interrupted,
 * idempotency_mismatch, or the reason of the signal if it is aborted before the hold.
 */
export async function admit(gateway: Gateway, call: GatewayCall, plan: Plan): Promise<Admission | Replay> {
  const { principal } = call;
  const { model, output, estimate } = plan;
  const isCounted = needsCount(gateway, plan);
  // The limits come before the count, and take what fits with a prompt of the estimated length.
  const rangeWith = (textTokens: number) =>
    outputRange(gateway, principal, isCounted ? { ...plan, estimate: { ...estimate, textTokens } } : plan);
  const { choices, least: leastTokens, likely, likelyBesideText } = estimate;
  const estimatedRange = rangeWith(likely - likelyBesideText);
  // A shorter count allows longer answers. The prompt's unused tokens cover this for one choice; the others need more.
  const longest = choices === 1 ? 0 : rangeWith(Math.max(0, leastTokens - likelyBesideText)).most;
  const wanted = wantedLimits(gateway, principal, likely + estimatedRange.most + (choices - 1) * longest, plan);
  const admitted = call.limited.admit(wanted);
  const entry = admitted instanceof Promise ? await admitted : admitted;
  // A count takes time that callers share, so its tokens stay in the minute even if nothing is charged.
  const tokensUncharged = isCounted ? estimate.likely : 0;
  try {
    const counted = isCounted ? await withCount(gateway, call, plan) : plan;
    const range = isCounted ? outputRange(gateway, principal, counted) : estimatedRange;
    const isFree = principal.organizationKind === "playground";
    const needs = affordableNeeds(
      plan.routes.map((route) => needOf(plan, route, range, isFree)),
      call.maxCost,
    );
    const [first, ...others] = needs;
    const routes: Admission["routes"] = [first.route, ...others.map(({ route }) => route)];
    const prices = isFree ? FREE : pricesUsed(pricesAt(model, first.promptTokensMost), NO_TOKENS);
    const { callerId, organizationId, tokenId } = principal;
    const facts: HoldFacts = {
      holdId: gateway.newId(),
      organizationId,
      tokenId,
      requestId: call.requestId,
      model: model.id,
      upstream: upstreamOf(first.route),
      prices,
      metadata: plan.labels,
      idempotencyKey: call.idempotency && { callerId, key: call.idempotency.key },
      intent: call.repetition?.isRetry ? intentOf(call) : null,
    };
    const idempotency = call.idempotency && { callerId, ...call.idempotency, keepMs: KEY_KEPT_MS };
    const { least, most } = boundsOfAll(needs, call.maxCost);
    const { newValuesPerMinute: newValuesMost } = gateway.limitSettings;
    const outcome = await gateway.ledger.hold({ facts, callerId, least, most, idempotency, newValuesMost });
    if (outcome.outcome === "replayed") {
      entry.leave(tokensUncharged);
      return { ...entry, ...outcome };
    }
    if (outcome.outcome !== "held") throw refusal(outcome, needs, range, output.param);
    const affordable = affordableOnAll(outcome.amount, needs, range);
    const maxTokens = Math.max(Math.min(1, range.most), Math.min(affordable, range.most));
    const { lease, available, covered } = outcome;
    return {
      ...entry,
      facts: covered === undefined ? facts : { ...facts, budgets: covered.budgets },
      routes,
      lease,
      estimate: counted.estimate,
      maxTokens,
      isShortened: maxTokens < range.requested,
      available,
      tightest: covered?.tightest,
      isFree,
      admittedAtMs: gateway.clock(),
    };
  } catch (error) {
    entry.leave(tokensUncharged);
    throw error;
  }
}

/** The need of a request on one of its routes, with the bounds of its hold. */
interface RouteNeed extends HoldNeed {
  route: Route;
  least: MicroCredits;
  most: MicroCredits;
}

type Needs = readonly [RouteNeed, ...RouteNeed[]];

/** Returns the largest charge that is possible on a route. */
function needOf({ model, estimate }: Plan, route: Route, range: OutputRange, isFree: boolean): RouteNeed {
  const { prompt, completion, calls: callsMost } = tokenBoundsOf(model, route, estimate, range.most);
  // A shorter `max_tokens` is a smaller hold only where it bounds everything that is charged as output.
  const outputTokensLeast = completion > range.most * range.choices ? completion : range.least * range.choices;
  const prices = isFree ? FREE : possiblePrices(highestPricesAt(route, prompt), { ...estimate, callsMost });
  const need = { promptTokensMost: prompt, outputTokensLeast, outputTokensMost: completion, callsMost, prices };
  return { ...need, route, ...holdBounds(need) };
}

/** Returns the needs whose least amount is within the bound that the request states. Throws max_cost_exceeded if none is. */
function affordableNeeds(needs: readonly RouteNeed[], maxCost: MicroCredits | null): Needs {
  const [first, ...others] = needs.filter(({ least }) => maxCost === null || least <= maxCost);
  if (first !== undefined) return [first, ...others];
  const required = needs.map(({ least }) => least).reduce((a, b) => (a < b ? a : b));
  throw new ApiError(
    "max_cost_exceeded",
    `The request can cost more than its x-tollgate-max-cost of ${formatCredits(maxCost ?? 0n)} credits: at least ${formatCredits(required)} are needed for its prompt and the shortest answer.`,
    { param: "x-tollgate-max-cost", fields: { credits_required: creditsFromMicro(required) } },
  );
}

/** Returns the bounds of a hold that covers each of the needs, at most the bound that the request states. */
function boundsOfAll(needs: Needs, maxCost: MicroCredits | null): { least: MicroCredits; most: MicroCredits } {
  let { least, most } = needs[0];
  for (const need of needs) {
    if (need.least > least) least = need.least;
    if (need.most > most) most = need.most;
  }
  return { least, most: maxCost !== null && maxCost < most ? maxCost : most };
}

/** Returns the output tokens of each choice that an amount covers on each of the routes. */
function affordableOnAll(amount: MicroCredits, needs: Needs, { choices }: OutputRange): number {
  return Math.min(...needs.map((need) => Math.floor(affordableOutputTokens(amount, need) / choices)));
}

/** Returns what a retry of a request has in common with it; null for one that no retry can repeat. */
export function intentOf({ principal: { callerId }, repetition }: GatewayCall): Intent | null {
  return repetition && { callerId, fingerprint: repetition.fingerprint() };
}

function keyRefusal(outcome: string): ApiError | undefined {
  if (outcome === "in_progress")
    return new ApiError("idempotency_in_progress", undefined, { headers: { "retry-after": "1" } });
  // OpenAI's clients retry every 409.
  const headers = { "x-should-retry": "false" };
  if (outcome === "interrupted") return new ApiError("idempotency_interrupted", undefined, { headers });
  return outcome === "mismatch" ? new ApiError("idempotency_mismatch") : undefined;
}

function refusal(
  outcome: Exclude<Outcomes["hold"], { outcome: "held" | "replayed" }>,
  needs: Needs,
  range: OutputRange,
  param: StatedOutput["param"],
): Error {
  if (outcome.outcome === "too_many_values") {
    const { budget, most, waitMs } = outcome;
    const seconds = Math.ceil(waitMs / 1000);
    const message = `Rate limit reached for new values of the budget "${budget.name}": limit ${most} per minute of this token. Try again in ${seconds} s, or with a value that the budget has counted.`;
    return new ApiError("rate_limit_exceeded", message, {
      fields: limitFields(budget),
      headers: retryHeaders(seconds),
    });
  }
  if (outcome.outcome !== "insufficient" && outcome.outcome !== "busy") {
    return keyRefusal(outcome.outcome) ?? new Error(`A new hold was answered with ${outcome.outcome}`);
  }
  const required = boundsOfAll(needs, null).least;
  const { available, reach, budget } = outcome;
  // The balance is named first: a cap that falls short as well only bounds what is affordable.
  const rest = budget === undefined ? available : reach;
  const fields: ErrorFields = {
    credits_available: creditsFromMicro(rest),
    credits_required: creditsFromMicro(required),
    ...limitFields(budget),
  };
  const credits = limitName(budget);
  const figures = `${formatCredits(required)} credits are needed and ${formatCredits(rest)} are available`;
  const headers = { "x-credits-available": formatCredits(available), ...budgetHeaders(budget) };
  if (outcome.outcome === "busy") {
    const message = `${credits} are held by requests that are still running: ${figures}. Try again when one has ended.`;
    return new ApiError("credits_held", message, { fields, headers: { ...headers, "retry-after": "1" } });
  }
  const isBoundByMaxTokens = needs.every((need) => need.outputTokensMost === range.most * range.choices);
  const affordable = isBoundByMaxTokens ? affordableOnAll(reach, needs, range) : 0;
  if (range.most > 0) fields.affordable_max_tokens = affordable;
  const hint = affordable > 0 ? ` They pay for a ${param} of ${affordable}.` : "";
  const message = `${credits} do not cover this request: ${figures}.${hint}`;
  const code = budget === undefined || budget.isCap ? "insufficient_credits" : "budget_exhausted";
  return new ApiError(code, message, { fields, headers: { ...headers, "x-should-retry": "false" } });
}

/** Share of a budget, in percent, from which answers warn. */
const WARNING_PERCENT = 80n;

/** Returns the headers that tell a caller about the budget with the least left. */
export function budgetHeaders(state: BudgetState | undefined): Record<string, string> {
  if (state === undefined) return {};
  const { limit, spent, held } = state;
  const resetsAt = resetOf(state);
  const percent = limit === 0n ? 100n : ((spent + held) * 100n) / limit;
  return {
    "x-budget-limit": formatCredits(limit),
    "x-budget-remaining": formatCredits(budgetRest(state)),
    ...(resetsAt !== null && { "x-budget-reset": resetsAt }),
    ...(percent >= WARNING_PERCENT && { "x-budget-warning": `${percent}% of the budget is spent or held` }),
  };
}

/** Returns the fields of an error that say which limit refused a request: the credits, or a budget. */
function limitFields(state: BudgetState | undefined): ErrorFields {
  if (state === undefined) return { limit_source: "organization" };
  if (state.isCap) return { limit_source: "token" };
  const { budgetId: id, name, window, limit } = state;
  return {
    limit_source: "budget",
    budget: { id, name, window, amount: creditsFromMicro(limit) },
    budget_remaining: creditsFromMicro(budgetRest(state)),
    resets_at: resetOf(state),
  };
}

function limitName(state: BudgetState | undefined): string {
  if (state === undefined) return "The organization's credits";
  return state.isCap ? "The credits that the token's cap allows" : `The credits of the budget "${state.name}"`;
}

function resetOf({ window, windowAtMs }: BudgetState): string | null {
  return isoTime(windowEnd(window, windowAtMs));
}
