import type { HoldFacts, HoldTransition, SettleTransition, Trace, Transition } from "../../credits/books.ts";
import type { TokenCounts } from "../../credits/price.ts";

/**
 * Transitions between threads. A structured clone writes the property names of each object, so holds and settlements, which
 * are nearly all of a batch, are sent as lists, which take a third of the time to read.
 */
export type PackedTransition = PackedHold | PackedSettlement | Exclude<Transition, HoldTransition | SettleTransition>;

type PackedHold = [
  "hold",
  PackedFacts,
  HoldTransition["least"],
  HoldTransition["most"],
  HoldTransition["lifeMs"],
  HoldTransition["owner"],
  HoldTransition["idempotency"],
];
type PackedSettlement = [
  "settle",
  PackedFacts,
  [number, number, number, number, number, TokenCounts["further"]?],
  SettleTransition["basis"],
  SettleTransition["end"],
  SettleTransition["answer"],
  PackedTrace | null,
];
type PackedFacts = [
  HoldFacts["holdId"],
  HoldFacts["organizationId"],
  HoldFacts["tokenId"],
  HoldFacts["requestId"],
  HoldFacts["model"],
  HoldFacts["upstream"],
  /** Many requests share this object, which a clone writes once. */
  HoldFacts["prices"],
  HoldFacts["metadata"],
  HoldFacts["idempotencyKey"],
];
type PackedTrace = [
  Trace["isStreamed"],
  Trace["firstTokenMs"],
  Trace["attempts"],
  Trace["failure"],
  Trace["providerResponseId"],
  Trace["providerCost"],
];

/** Converts transitions to the form in which they are sent to the worker. */
export function packTransitions(transitions: readonly Transition[]): PackedTransition[] {
  return transitions.map((transition) => {
    if (transition.kind === "hold") return packHold(transition);
    return transition.kind === "settle" ? packSettlement(transition) : transition;
  });
}

/** Restores transitions that were packed. */
export function unpackTransitions(packed: readonly PackedTransition[]): Transition[] {
  return packed.map((transition) => {
    if (!Array.isArray(transition)) return transition;
    return transition[0] === "hold" ? unpackHold(transition) : unpackSettlement(transition);
  });
}

function packHold({ facts, least, most, lifeMs, owner, idempotency = null }: HoldTransition): PackedHold {
  return ["hold", packFacts(facts), least, most, lifeMs, owner, idempotency];
}

function unpackHold([kind, facts, least, most, lifeMs, owner, idempotency = null]: PackedHold): HoldTransition {
  return { kind, facts: unpackFacts(facts), least, most, lifeMs, owner, idempotency };
}

function packSettlement(transition: SettleTransition): PackedSettlement {
  const { facts, tokens, basis, end, answer = null, trace = null } = transition;
  const { input, cachedInput, cacheWrite, output, reasoning, further } = tokens;
  const counts: PackedSettlement[2] = [input, cachedInput, cacheWrite, output, reasoning];
  if (further !== undefined) counts.push(further);
  return ["settle", packFacts(facts), counts, basis, end, answer, trace && packTrace(trace)];
}

function unpackSettlement(packed: PackedSettlement): SettleTransition {
  const [kind, facts, counts, basis, end, answer = null, trace] = packed;
  const [input, cachedInput, cacheWrite, output, reasoning, further] = counts;
  const tokens: TokenCounts = { input, cachedInput, cacheWrite, output, reasoning, ...(further && { further }) };
  return { kind, facts: unpackFacts(facts), tokens, basis, end, answer, trace: trace && unpackTrace(trace) };
}

function packFacts(facts: HoldFacts): PackedFacts {
  const { holdId, organizationId, tokenId, requestId, model, upstream, prices, metadata, idempotencyKey } = facts;
  return [holdId, organizationId, tokenId, requestId, model, upstream, prices, metadata, idempotencyKey];
}

function unpackFacts(packed: PackedFacts): HoldFacts {
  const [holdId, organizationId, tokenId, requestId, model, upstream, prices, metadata, idempotencyKey] = packed;
  return { holdId, organizationId, tokenId, requestId, model, upstream, prices, metadata, idempotencyKey };
}

function packTrace(trace: Trace): PackedTrace {
  const { isStreamed, firstTokenMs, attempts, failure, providerResponseId, providerCost } = trace;
  return [isStreamed, firstTokenMs, attempts, failure, providerResponseId, providerCost];
}

function unpackTrace(packed: PackedTrace): Trace {
  const [isStreamed, firstTokenMs, attempts, failure, providerResponseId, providerCost] = packed;
  return { isStreamed, firstTokenMs, attempts, failure, providerResponseId, providerCost };
}
