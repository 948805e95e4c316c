import { pricesAt, upstreamOf } from "../catalog/model.ts";
import type { MicroCredits } from "../credits/amount.ts";
import type { EventEnd, HoldFacts, Trace } from "../credits/books.ts";
import { FREE, NO_TOKENS, TOKEN_CLASSES, type TokenCounts } from "../credits/price.ts";
import type { ErrorCode } from "../errors.ts";
import type { Checkpoint } from "../ledger/upkeep.ts";
import type { Admission } from "./admit.ts";
import type { Course } from "./attempt.ts";
import type { Gateway } from "./gateway.ts";
import { KeepingSink } from "./kept-answer.ts";
import type { Meter } from "./meter.ts";
import type { AnswerSink } from "./sink.ts";

/** How an answer ended, and how far it had come. */
export interface Ending extends Course {
  end: Exclude<EventEnd, "recovered">;
  /** Whether the client asked for a stream. */
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
 * The one rule of what is charged. A client that leaves pays the input and what was produced for it, once an upstream was
 * called. A failure of ours or the upstream's is charged only where it cut a stream: the input, and what was sent. A
 * complete answer is charged always.
 */
export function isCharged({ end, isCalled, isStreamed }: Pick<Ending, "end" | "isCalled" | "isStreamed">): boolean {
  if (end === "complete") return true;
  return end === "client_left" ? isCalled : isStreamed;
}

/**
 * Charges what was delivered, at the prices of the route that was taken, and releases the rest; or releases all. Rejects
 * with StoreUnavailableError where neither the store nor the spool takes it.
 */
export async function settle(
  { ledger }: Gateway,
  admission: Admission,
  meter: Meter,
  ending: Ending,
  sink: AnswerSink,
): Promise<Settlement> {
  const { facts, available } = admission;
  const { tokens, basis } = meter.reading();
  if (!isCharged(ending)) {
    await ledger.release({ organizationId: facts.organizationId, holdId: facts.holdId, trace: traceOf(ending) });
    return { tokens, charged: 0n, available };
  }
  const outcome = await ledger.settle({
    facts: factsAt(admission, ending, tokens),
    tokens,
    basis,
    end: ending.end,
    trace: traceOf(ending),
    answer: ending.end === "complete" && sink instanceof KeepingSink ? sink.answer(tokens, meter.finishReason) : null,
  });
  // What is available then only the store knows: the caller is told what was when the request was admitted.
  if (outcome.outcome === "spooled") return { tokens, charged: outcome.charged, available };
  if (outcome.outcome !== "charged") throw new Error(`The settlement of an open hold was answered ${outcome.outcome}`);
  return { tokens, charged: outcome.charged, available: outcome.available };
}

/** What the client has of the answer by now, as an expiry would charge it: of an answer that is not streamed, nothing. */
export function delivered(admission: Admission, meter: Meter, ending: Ending): ReturnType<Checkpoint> {
  if (!ending.isStreamed) return { facts: admission.facts, tokens: NO_TOKENS };
  const { tokens } = meter.reading();
  return { facts: factsAt(admission, ending, tokens), tokens };
}

/** With the route that was taken, and its prices for so many tokens. */
function factsAt({ facts, isFree }: Admission, { route }: Ending, tokens: TokenCounts): HoldFacts {
  const prices = isFree ? FREE : pricesAt(route, tokens.input + tokens.cachedInput + tokens.cacheWrite);
  return { ...facts, upstream: upstreamOf(route), prices };
}

/** Of the attempts nothing is kept where the first one answered: the hold names its route. */
function traceOf({ isStream, firstTokenMs, attempts, failure }: Ending): Trace {
  const isPlain = attempts.length === 1 && attempts[0]?.outcome === "answered";
  const kept = isPlain || attempts.length === 0 ? null : attempts;
  return { isStreamed: isStream, firstTokenMs, attempts: kept, failure };
}

/** All tokens, of every class. */
export function totalTokens(tokens: TokenCounts): number {
  return TOKEN_CLASSES.reduce((sum, tokenClass) => sum + tokens[tokenClass], 0);
}
