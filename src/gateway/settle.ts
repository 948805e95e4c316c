import type { AnswerEnd } from "../api/answer.ts";
import { upstreamOf } from "../catalog/model.ts";
import { formatCredits, type MicroCredits } from "../credits/amount.ts";
import type { Attempt, Trace } from "../credits/facts.ts";
import type { TokenCounts } from "../credits/price.ts";
import { UpstreamError, type UpstreamFailure } from "../errors.ts";
import { type Admission, intentOf } from "./admit.ts";
import { STORED_CHARACTERS_MAX, type StoredAnswer, storedText } from "./answer.ts";
import { type Answered, attemptsOf, type Unanswered } from "./attempt.ts";
import { type Charge, chargedAt, chargeOf, roughTokens, tokenBoundsOf } from "./charge.ts";
import type { Delivery } from "./deliver.ts";
import { publicError } from "./failures.ts";
import type { Gateway, GatewayCall } from "./gateway.ts";
import { usageOf } from "./meter.ts";
import type { Plan } from "./plan.ts";

/** A request that has run, as the results of its steps. */
export interface Completed {
  plan: Plan;
  admission: Admission;
  upstream: Answered | Unanswered;
  delivery: Delivery;
}

/** A committed charge. */
export interface Settlement {
  tokens: TokenCounts;
  charged: MicroCredits;
  available: MicroCredits;
  /** Unix seconds at the end of the answer; absent where nothing was charged and the hold was released. */
  ended?: number;
}

/**
 * Tells whether an answer is charged. A client that disconnects pays once an upstream was called. A failure of the service or the
 * upstream is charged only where it cut a stream that had content. A complete answer is always charged.
 */
export function isCharged({ end, isCalled, isStreamed, hasContent }: AnswerState): boolean {
  if (end === "complete") return true;
  return end === "client_disconnected" ? isCalled : isStreamed && hasContent;
}

/** Time that an answer may wait for its client in all. Providers end one that is read too slowly. */
const WAITED_MS_MAX = 10_000;

/**
 * Tells whether a retry is charged less for an answer: it broke, and neither its request nor its client can have been the
 * cause. Otherwise a customer could break answers on purpose, and receive several for the price of one.
 */
export function isRepeatable({ end, failure, waitedMs }: Pick<Delivery, "end" | "failure" | "waitedMs">): boolean {
  if (end === "complete" || end === "client_disconnected" || waitedMs > WAITED_MS_MAX) return false;
  return !(failure instanceof UpstreamError && OF_REQUESTS.has(failure.failure));
}

/** Failures whose cause is the request. */
const OF_REQUESTS: ReadonlySet<UpstreamFailure> = new Set([
  "rejected",
  "unsupported",
  "context_length",
  "content_filter",
]);

interface AnswerState extends Pick<Delivery, "end" | "isStreamed"> {
  isCalled: boolean;
  hasContent: boolean;
}

/**
 * Charges a request for what was delivered, at the prices of the route that was taken, and releases the rest of its hold;
 * or releases all of it. Rejects with StoreUnavailableError where neither the store nor the spool takes the settlement.
 */
export async function settle(gateway: Gateway, call: GatewayCall, completed: Completed): Promise<Settlement> {
  const { plan, admission, upstream, delivery } = completed;
  const { facts, available } = admission;
  const { end, isStreamed, meter } = delivery;
  if (!isCharged({ end, isStreamed, isCalled: upstream.calledAtMs !== null, hasContent: meter.hasContent })) {
    await gateway.ledger.release({ facts, trace: traceOf(completed, null) });
    return { tokens: roughTokens(plan.model, upstream.route, admission, meter), charged: 0n, available };
  }
  const { tokens: counts, basis, reported } = await chargeFor(gateway, completed);
  const { facts: charging, tokens } = chargedAt(admission, upstream.route, counts, meter.serviceTier);
  const ended = Math.floor(gateway.clock() / 1000);
  const outcome = await gateway.ledger.settle({
    facts: end === "complete" ? charging : { ...charging, intent: isRepeatable(delivery) ? intentOf(call) : null },
    tokens,
    basis,
    end,
    trace: traceOf(completed, reported),
    answer: answerToStore(call, delivery, { tokens, ended }),
  });
  // Only the store knows what is available then: the caller gets the amount from its admission.
  if (outcome.outcome === "spooled") return { tokens, charged: outcome.charged, available, ended };
  if (outcome.outcome !== "charged") throw new Error(`The settlement of an open hold was answered ${outcome.outcome}`);
  return { tokens, charged: outcome.charged, available: outcome.available, ended };
}

/** Calculates the charge, notes how fast the upstream was, and logs a report that is not plausible. */
async function chargeFor(gateway: Gateway, completed: Completed): Promise<Charge> {
  const { plan, admission, upstream, delivery } = completed;
  const { facts, maxTokens, estimate } = admission;
  const { organizationId, prices } = facts;
  const { route, calledAtMs } = upstream;
  const { end, meter } = delivery;
  const nowMs = gateway.clock();
  const elapsedMs = nowMs - (calledAtMs ?? nowMs);
  const bounds = tokenBoundsOf(plan.model, route, estimate, maxTokens);
  const one = { plan, route, bounds, prices, meter, isClientDisconnected: end === "client_disconnected", elapsedMs };
  const { outputRates } = gateway;
  const charge = await chargeOf({ tokenCounter: gateway.tokenCounter.forCharges(organizationId), outputRates }, one);
  const { tokens, basis, reported } = charge;
  if (end === "complete" && basis === "reported" && !plan.isInputOnly) {
    outputRates.note({
      upstream: upstreamOf(route),
      organizationId,
      tokens: tokens.output + tokens.reasoning,
      choices: Math.max(1, meter.choices.begun),
      choicesAsked: estimate.choices,
      durationMs: elapsedMs,
    });
  }
  if (reported === null) return charge;
  const { holdId, requestId } = facts;
  const fields = { organizationId, holdId, requestId, route: upstreamOf(route), reported, charged: tokens };
  if (basis === "bounded") {
    gateway.log.error(fields, "an upstream reported more usage than the request can have; the bound was charged");
  } else if (end === "complete") {
    gateway.log.warn(fields, "an upstream reported fewer tokens than its answer has; the counted tokens were charged");
  }
  return charge;
}

/** Returns the text of a complete answer to store under its idempotency key. */
function answerToStore(
  { idempotency }: GatewayCall,
  delivery: Delivery,
  { tokens, ended }: { tokens: TokenCounts; ended: number },
): string | null {
  const { end, head, fold, meter } = delivery;
  if (idempotency === null || end !== "complete" || head === undefined || fold === undefined) return null;
  if (meter.dataCharacters > STORED_CHARACTERS_MAX) return null;
  return storedText(head, fold, { tokens, ended, reasons: meter.choices.reasons });
}

/** Attempts are recorded where there were several, or where the upstream's report differs from the charge. */
function traceOf({ plan, upstream, delivery }: Completed, reported: TokenCounts | null): Trace {
  const { end, firstTokenMs, meter, failure } = delivery;
  const { made } = upstream;
  const isUsual = made.length === 1 && made[0]?.outcome === "answered" && reported === null;
  const attempts: Attempt[] | null = isUsual || made.length === 0 ? null : attemptsOf(upstream);
  const last = attempts?.at(-1);
  if (last !== undefined && reported !== null) last.reported = reported;
  return {
    isStreamed: plan.isStreamed,
    firstTokenMs,
    attempts,
    failure: end === "complete" || end === "client_disconnected" ? null : publicError(failure).code,
    ...meter.providerRecord,
  };
}

/** Returns the end of an answer whose charge is committed. */
export function endOfAnswer(settlement: Settlement, reasons: StoredAnswer["reasons"]): AnswerEnd {
  const { tokens, charged, available, ended } = settlement;
  const headers = { "x-credits-available": formatCredits(available), "x-credits-charged": formatCredits(charged) };
  const finishReason = reasons[0] ?? "stop";
  return { finishReason, reasons, usage: usageOf(tokens, charged), ...(ended !== undefined && { ended }), headers };
}
