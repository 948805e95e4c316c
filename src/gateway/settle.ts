import type { ChatCompletionRequest } from "../api/request.ts";
import { type CatalogModel, pricesAt, upstreamOf } from "../catalog/model.ts";
import type { MicroCredits } from "../credits/amount.ts";
import type { Attempt, EventEnd, HoldFacts, Trace } from "../credits/books.ts";
import { FREE, NO_TOKENS, TOKEN_CLASSES, type TokenCounts } from "../credits/price.ts";
import type { ErrorCode } from "../errors.ts";
import type { Checkpoint } from "../ledger/hold-renewal.ts";
import type { Admission } from "./admit.ts";
import type { Course } from "./attempt.ts";
import { boundsOf, type Charge, chargeOf, roughCharge } from "./charge.ts";
import type { Gateway } from "./gateway.ts";
import { KeepingSink } from "./kept-answer.ts";
import type { Meter } from "./meter.ts";
import type { AnswerSink } from "./sink.ts";

/** How an answer ended, and how far it had come. */
export interface Ending extends Course {
  end: Exclude<EventEnd, "recovered">;
  /** True where the client asked for a stream. */
  isStream: boolean;
  /** Whether pieces of the answer were sent to the client as they came. */
  isStreamed: boolean;
  /** From admission to the first piece of the answer. */
  firstTokenMs: number | null;
  /** What the client was told went wrong. */
  failure: ErrorCode | null;
}

export interface Settlement {
  tokens: TokenCounts;
  charged: MicroCredits;
  available: MicroCredits;
}

/**
 * Tells whether an answer is charged. A client that disconnects pays once an upstream was called. A failure of the service or the
 * upstream is charged only where it cut a stream that had content. A complete answer is always charged.
 */
export function isCharged({ end, isCalled, isStreamed, hasContent }: AnswerState): boolean {
  if (end === "complete") return true;
  return end === "client_left" ? isCalled : isStreamed && hasContent;
}

interface AnswerState extends Pick<Ending, "end" | "isStreamed"> {
  isCalled: boolean;
  hasContent: boolean;
}

/** An answer that is to be charged, and what it answers. */
export interface Answered {
  model: CatalogModel;
  request: ChatCompletionRequest;
  admission: Admission;
  meter: Meter;
  ending: Ending;
}

/**
 * Charges what was delivered, at the prices of the route that was taken, and releases the rest; or releases all. Rejects
 * with StoreUnavailableError where neither the store nor the spool takes it.
 */
export async function settle(gateway: Gateway, answered: Answered, sink: AnswerSink): Promise<Settlement> {
  const { ledger } = gateway;
  const { admission, meter, ending } = answered;
  const { facts, available } = admission;
  const isCalled = ending.calledAtMs !== null;
  if (!isCharged({ ...ending, isCalled, hasContent: meter.hasContent })) {
    await ledger.release({ facts, trace: traceOf(answered, null) });
    return { tokens: roughTokens(answered), charged: 0n, available };
  }
  const { tokens, basis, reported } = await chargeOfAnswer(gateway, answered);
  const outcome = await ledger.settle({
    facts: factsAt(admission, ending, tokens),
    tokens,
    basis,
    end: ending.end,
    trace: traceOf(answered, reported),
    answer: ending.end === "complete" && sink instanceof KeepingSink ? sink.answer(tokens, meter.finishReason) : null,
  });
  // What is available then only the store knows: the caller is told what was when the request was admitted.
  if (outcome.outcome === "spooled") return { tokens, charged: outcome.charged, available };
  if (outcome.outcome !== "charged") throw new Error(`The settlement of an open hold was answered ${outcome.outcome}`);
  return { tokens, charged: outcome.charged, available: outcome.available };
}

/** The charge by the rule; notes how fast the upstream was, and tells the operator of a report that cannot be true. */
async function chargeOfAnswer(
  gateway: Gateway,
  { model, request, admission, meter, ending }: Answered,
): Promise<Charge> {
  const { route, end, isStream: isStreamed, calledAtMs } = ending;
  const { estimate, maxTokens, facts } = admission;
  const elapsedMs = gateway.clock() - (calledAtMs ?? gateway.clock());
  const bounds = boundsOf(model, route, estimate, maxTokens);
  const hasClientLeft = end === "client_left";
  const { prices } = facts;
  const one = { model, route, request, estimate, bounds, prices, meter, hasClientLeft, isStreamed, elapsedMs };
  const charge = await chargeOf(gateway, one);
  const { tokens, basis, reported } = charge;
  if (end === "complete" && basis === "reported") {
    gateway.outputRates.note(upstreamOf(route), tokens.output + tokens.reasoning, elapsedMs);
  }
  if (reported !== null) {
    const { organizationId, holdId, requestId } = facts;
    const fields = { organizationId, holdId, requestId, route: upstreamOf(route), reported, charged: tokens };
    if (basis === "bounded") {
      gateway.log.error(fields, "an upstream reported more tokens than the request can have; the bound was charged");
    } else if (end === "complete") {
      gateway.log.warn(
        fields,
        "an upstream reported fewer tokens than its answer has; the counted tokens were charged",
      );
    }
  }
  return charge;
}

/** Returns the part of the answer that the client has by now, as an expiry would charge it: nothing of an unstreamed answer. */
export function delivered(answered: Answered): ReturnType<Checkpoint> {
  const { admission, meter, ending } = answered;
  if (!ending.isStreamed || !meter.hasContent) return { facts: admission.facts, tokens: NO_TOKENS };
  const tokens = roughTokens(answered);
  return { facts: factsAt(admission, ending, tokens), tokens };
}

function roughTokens({ model, admission: { estimate, maxTokens }, meter, ending }: Answered): TokenCounts {
  return roughCharge(meter, estimate.likely, boundsOf(model, ending.route, estimate, maxTokens)).tokens;
}

/** With the route that was taken, and its prices for so many tokens. */
function factsAt({ facts, isFree }: Admission, { route }: Ending, tokens: TokenCounts): HoldFacts {
  const prices = isFree ? FREE : pricesAt(route, tokens.input + tokens.cachedInput + tokens.cacheWrite);
  return { ...facts, upstream: upstreamOf(route), prices };
}

/** Attempts are kept where more than one was needed, or where the upstream's report was not what was charged. */
function traceOf({ ending, meter }: Answered, reported: TokenCounts | null): Trace {
  const { isStream, firstTokenMs, attempts, failure } = ending;
  const { responseId: providerResponseId, cost: providerCost } = meter.providerRecord;
  const kept = keptAttempts(attempts, reported);
  return { isStreamed: isStream, firstTokenMs, attempts: kept, failure, providerResponseId, providerCost };
}

function keptAttempts(attempts: readonly Attempt[], reported: TokenCounts | null): Attempt[] | null {
  const last = attempts.at(-1);
  if (last === undefined) return null;
  if (reported !== null) return [...attempts.slice(0, -1), { ...last, reported }];
  return attempts.length === 1 && last.outcome === "answered" ? null : [...attempts];
}

/** All tokens, of every class. */
export function totalTokens(tokens: TokenCounts): number {
  return TOKEN_CLASSES.reduce((sum, tokenClass) => sum + tokens[tokenClass], 0);
}
