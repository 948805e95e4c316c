import type {
  HoldFacts,
  HoldTransition,
  Outcome,
  Outcomes,
  SettleTransition,
  Trace,
  Transition,
} from "../../credits/books.ts";
import type { TokenCounts, UnitPrices } from "../../credits/price.ts";
import { type PlainPrices, plainPrices, pricesFromPlain } from "../fields.ts";

/**
 * Transitions and outcomes between threads. Holds, settlements and their outcomes, which are nearly all of a batch, are
 * lists in one JSON text: a structured clone of the same lists takes five times as long on both sides. Other values are
 * cloned, and the text has their places.
 */
export interface Packed<Value> {
  text: string;
  others: readonly Value[];
}

type PackedHold = [
  "hold",
  PackedFacts,
  least: string,
  most: string,
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
  /** Many requests have the same object, which is in the text once. */
  placeOfPrices: number,
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
/** The prices, and the transitions or their places among the others. */
type TransitionText = [PlainPrices[], (PackedHold | PackedSettlement | number)[]];

/** Packs transitions for the worker. */
export function packTransitions(transitions: readonly Transition[]): Packed<Transition> {
  const prices = new PricesList();
  const others: Transition[] = [];
  const packed = transitions.map((transition) => {
    if (transition.kind === "hold") return packHold(transition, prices);
    return transition.kind === "settle" ? packSettlement(transition, prices) : others.push(transition) - 1;
  });
  const text: TransitionText = [prices.plain, packed];
  return { text: JSON.stringify(text), others };
}

/** Restores transitions that were packed. */
export function unpackTransitions({ text, others }: Packed<Transition>): Transition[] {
  const [plain, packed] = JSON.parse(text) as TransitionText;
  const prices = plain.map(pricesFromPlain);
  return packed.map((transition) => {
    if (typeof transition === "number") return at(others, transition);
    return transition[0] === "hold" ? unpackHold(transition, prices) : unpackSettlement(transition, prices);
  });
}

type PackedOutcome =
  | ["held", amount: string, available: string]
  | ["charged", charged: string, shortfall: string, available: string];

/** Packs the outcomes of a batch for the main thread. */
export function packOutcomes(outcomes: readonly Outcome[]): Packed<Outcome> {
  const others: Outcome[] = [];
  const packed = outcomes.map((outcome): PackedOutcome | number => {
    if (outcome.outcome === "held") return ["held", `${outcome.amount}`, `${outcome.available}`];
    // A release finds requests that were charged, too, without amounts.
    if (outcome.outcome !== "charged" || !("shortfall" in outcome)) return others.push(outcome) - 1;
    return ["charged", `${outcome.charged}`, `${outcome.shortfall}`, `${outcome.available}`];
  });
  return { text: JSON.stringify(packed), others };
}

/** Restores outcomes that were packed. */
export function unpackOutcomes({ text, others }: Packed<Outcome>): Outcome[] {
  const packed = JSON.parse(text) as (PackedOutcome | number)[];
  return packed.map((outcome): Outcome => {
    if (typeof outcome === "number") return at(others, outcome);
    return outcome[0] === "held" ? unpackHeld(outcome) : unpackCharged(outcome);
  });
}

function at<Value>(values: readonly Value[], place: number): Value {
  const value = values[place];
  if (value === undefined) throw new Error(`A packed batch has no value at ${place}`);
  return value;
}

/** The distinct prices of a batch, in the order in which they first appear. */
class PricesList {
  readonly plain: PlainPrices[] = [];
  readonly #places = new Map<UnitPrices, number>();

  placeOf(prices: UnitPrices): number {
    const known = this.#places.get(prices);
    if (known !== undefined) return known;
    const place = this.plain.push(plainPrices(prices)) - 1;
    this.#places.set(prices, place);
    return place;
  }
}

function packHold(transition: HoldTransition, prices: PricesList): PackedHold {
  const { facts, least, most, lifeMs, owner, idempotency = null } = transition;
  return ["hold", packFacts(facts, prices), `${least}`, `${most}`, lifeMs, owner, idempotency];
}

function unpackHold(packed: PackedHold, prices: readonly UnitPrices[]): HoldTransition {
  const [kind, facts, least, most, lifeMs, owner, idempotency = null] = packed;
  return {
    kind,
    facts: unpackFacts(facts, prices),
    least: BigInt(least),
    most: BigInt(most),
    lifeMs,
    owner,
    idempotency,
  };
}

function packSettlement(transition: SettleTransition, prices: PricesList): PackedSettlement {
  const { facts, tokens, basis, end, answer = null, trace = null } = transition;
  const { input, cachedInput, cacheWrite, output, reasoning, further } = tokens;
  const counts: PackedSettlement[2] = [input, cachedInput, cacheWrite, output, reasoning];
  if (further !== undefined) counts.push(further);
  return ["settle", packFacts(facts, prices), counts, basis, end, answer, trace && packTrace(trace)];
}

function unpackSettlement(packed: PackedSettlement, prices: readonly UnitPrices[]): SettleTransition {
  const [kind, facts, counts, basis, end, answer = null, trace] = packed;
  const [input, cachedInput, cacheWrite, output, reasoning, further] = counts;
  const tokens: TokenCounts = { input, cachedInput, cacheWrite, output, reasoning, ...(further && { further }) };
  return { kind, facts: unpackFacts(facts, prices), tokens, basis, end, answer, trace: trace && unpackTrace(trace) };
}

function packFacts(facts: HoldFacts, list: PricesList): PackedFacts {
  const { holdId, organizationId, tokenId, requestId, model, upstream, prices, metadata, idempotencyKey } = facts;
  const place = list.placeOf(prices);
  return [holdId, organizationId, tokenId, requestId, model, upstream, place, metadata, idempotencyKey];
}

function unpackFacts(packed: PackedFacts, list: readonly UnitPrices[]): HoldFacts {
  const [holdId, organizationId, tokenId, requestId, model, upstream, place, metadata, idempotencyKey] = packed;
  const prices = at(list, place);
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

function unpackHeld([outcome, amount, available]: Extract<PackedOutcome, ["held", ...unknown[]]>): Outcomes["hold"] {
  return { outcome, amount: BigInt(amount), available: BigInt(available) };
}

function unpackCharged(packed: Extract<PackedOutcome, ["charged", ...unknown[]]>): Outcomes["settle"] {
  const [outcome, charged, shortfall, available] = packed;
  return { outcome, charged: BigInt(charged), shortfall: BigInt(shortfall), available: BigInt(available) };
}
