import { isDeepStrictEqual } from "node:util";
import type { BudgetRow, Transition } from "../../src/credits/books.ts";
import type { BudgetUse } from "../../src/credits/facts.ts";
import type { Outcome } from "../../src/credits/outcomes.ts";
import {
  addBroken,
  availableCoins,
  balanceOf,
  billed,
  type Coin,
  type CoinHold,
  type CoinLimit,
  type CoinOrganization,
  count,
  earlierAdjustment,
  emptyAdjustment,
  giveBack,
  isExpired,
  limitOf,
  limitsOf,
  priceInMicro,
  reachOf,
  recordedText,
  spentOf,
  takeBroken,
  tally,
  textOfUse,
  UNWARNED,
  usesAt,
  usesIn,
} from "./coins.ts";

/**
 * The books as coins, each worth one micro-credit and in one place. Slow and simple on purpose: it is
 * what `decide` is compared with, and shares nothing with it but the types. Its clock never goes back.
 */
export class CoinModel {
  readonly organizations = new Map<string, CoinOrganization>();

  addOrganization(organizationId: string): void {
    const empty = { grants: [], holds: new Map(), keys: new Map(), broken: [], adjustments: [] };
    this.organizations.set(organizationId, { ...empty, budgets: [], raises: new Map() });
  }

  /** Adds a budget, or replaces the one with its id. */
  putBudget(budget: BudgetRow): void {
    const organization = this.organizations.get(budget.organizationId);
    if (organization === undefined) return;
    const others = organization.budgets.filter(({ id }) => id !== budget.id);
    organization.budgets = [...others, budget].sort((a, b) => (a.id < b.id ? -1 : 1));
  }

  removeBudget({ organizationId, id }: Pick<BudgetRow, "organizationId" | "id">): void {
    const organization = this.organizations.get(organizationId);
    if (organization === undefined) return;
    organization.budgets = organization.budgets.filter((budget) => budget.id !== id);
  }

  raise(organizationId: string, use: BudgetUse, amount: bigint): void {
    const raises = this.organizations.get(organizationId)?.raises;
    raises?.set(textOfUse(use), (raises.get(textOfUse(use)) ?? 0) + Number(amount));
  }

  play(transition: Transition, nowMs: number): ComparedOutcome {
    const { organizationId } = "facts" in transition ? transition.facts : transition;
    const organization = this.organizations.get(organizationId);
    if (organization === undefined) return { outcome: "unknown_organization" };
    letTimePass(organization, nowMs);
    if (transition.kind === "payment" || transition.kind === "redeem") throw new Error("test/stores/ has properties");
    switch (transition.kind) {
      case "grant":
        return grant(organizationId, organization, transition, nowMs);
      case "refresh":
        return { outcome: "refreshed", balance: balanceOf(organizationId, organization) };
      case "hold":
        return hold(organization, transition, nowMs);
      case "renew":
        return renew(organization, transition, nowMs);
      case "settle":
        return settle(organization, transition, nowMs);
      case "revoke":
        return revoke(organizationId, organization, transition, nowMs);
      case "credit":
        return credit(organizationId, organization, transition, nowMs);
      default:
        return end(organization, transition, nowMs);
    }
  }

  /** Everything that the store's rows have to agree with. */
  picture(organizationId: string) {
    const organization = this.organizations.get(organizationId);
    if (organization === undefined) throw new Error(`${organizationId} is unknown`);
    const grants = organization.grants.map((grant) => ({
      id: grant.id,
      pending: !grant.isInForce,
      remaining: BigInt(count(grant.coins, "available")),
    }));
    const holds = [...organization.holds].map(([id, hold]) => {
      const { state, amount, coins, bills, shortfall, credited, retry, trace = null } = hold;
      const expiresAtMs = state === "open" ? hold.expiresAtMs : null;
      const drawn = tally(coins);
      const costs = bills.map(BigInt);
      const amounts = { amount: BigInt(amount), shortfall: BigInt(shortfall), credited: BigInt(credited) };
      return { id, state, ...amounts, drawn, costs, retry, expiresAtMs, trace };
    });
    const used = new Map(
      [...organization.holds.values()].flatMap(({ covers }) => covers.map((use) => [textOfUse(use), use])),
    );
    const budgets = [...used].flatMap(([id, use]) => {
      const limit = limitOf(organization, use);
      if (limit === undefined || (limit.held === 0 && limit.spent === 0)) return [];
      return [{ id, held: BigInt(limit.held), spent: BigInt(limit.spent) }];
    });
    const keys = [...organization.keys].map(([id, { holdId, answer }]) => ({ id, holdId, answer }));
    return { balance: balanceOf(organizationId, organization), grants, holds, budgets, keys };
  }
}

/** An outcome as the model has it: of a budget only its use, and nothing of the budgets of a hold that was made. */
export type ComparedOutcome =
  | Exclude<Outcome, { outcome: "held" | "insufficient" | "busy" }>
  | { outcome: "held"; amount: bigint; available: bigint }
  | { outcome: "insufficient"; limitedBy: string | null; available: bigint; reach: bigint }
  | { outcome: "busy"; limitedBy: string | null; held: bigint; available: bigint; reach: bigint };

/** Returns an outcome of the books as the model has it. The version of the budgets counts their changes. */
export function comparable(outcome: Outcome | ComparedOutcome): ComparedOutcome {
  if (outcome.outcome === "held" && "covered" in outcome) {
    const { covered: _, ...rest } = outcome;
    return rest;
  }
  if ("balance" in outcome) return { ...outcome, balance: { ...outcome.balance, budgetVersion: 0, ...UNWARNED } };
  if ((outcome.outcome !== "insufficient" && outcome.outcome !== "busy") || "limitedBy" in outcome) return outcome;
  const { budget, ...rest } = outcome;
  return { ...rest, limitedBy: budget === undefined ? null : textOfUse(budget) };
}

type Of<Kind extends Transition["kind"]> = Extract<Transition, { kind: Kind }>;

function letTimePass({ grants }: CoinOrganization, nowMs: number): void {
  for (const grant of grants) {
    grant.isInForce ||= grant.effectiveAtMs <= nowMs;
    for (const coin of grant.coins) {
      if (coin.place === "pending" && grant.isInForce) coin.place = "available";
      if (coin.place === "available" && isExpired(grant, nowMs)) coin.place = "expired";
    }
  }
}

function grant(
  organizationId: string,
  organization: CoinOrganization,
  transition: Of<"grant">,
  nowMs: number,
): ComparedOutcome {
  const same = organization.grants.find(({ id }) => id === transition.grantId);
  const alike = organization.grants.find(({ reference }) => reference !== null && reference === transition.reference);
  const first = same ?? alike;
  if (first !== undefined && first !== same) {
    const { id, priority, effectiveAtMs, expiresAtMs, createdAtMs } = first;
    const terms = { priority, expiresAtMs, effectiveAtMs: effectiveAtMs - createdAtMs, amount: first.coins.length };
    const { effectiveAtMs: startsAtMs } = transition;
    const asked = { priority: transition.priority, expiresAtMs: transition.expiresAtMs };
    const delayMs = startsAtMs === null ? 0 : startsAtMs - createdAtMs;
    if (!isDeepStrictEqual(terms, { ...asked, effectiveAtMs: delayMs, amount: Number(transition.amount) })) {
      const first = { id, priority, effectiveAtMs, expiresAtMs, createdAtMs, amount: BigInt(terms.amount) };
      return { outcome: "reference_mismatch", first };
    }
  }
  if (first === undefined) {
    const coins = Array.from({ length: Number(transition.amount) }, (): Coin => {
      return { grantId: transition.grantId, place: "pending" };
    });
    const { grantId: id, priority, expiresAtMs, reference, effectiveAtMs } = transition;
    const terms = { id, isCredit: false, priority, expiresAtMs, reference, effectiveAtMs: effectiveAtMs ?? nowMs };
    organization.grants.push({ ...terms, createdAtMs: nowMs, isInForce: false, coins });
    letTimePass(organization, nowMs);
  }
  const grantId = first?.id ?? transition.grantId;
  const balance = balanceOf(organizationId, organization);
  return { outcome: "granted", grantId, balance, repeated: first !== undefined };
}

function hold(organization: CoinOrganization, transition: Of<"hold">, nowMs: number): ComparedOutcome {
  const { facts, lifeMs, idempotency } = transition;
  const [least, most] = [Number(transition.least), Number(transition.most)];
  const earlier = organization.holds.get(facts.holdId);
  if (earlier !== undefined && earlier.state !== "open") return { outcome: "ended", state: earlier.state };
  const there = availableCoins(organization).length;
  if (earlier !== undefined) return { outcome: "held", amount: BigInt(earlier.amount), available: BigInt(there) };
  const key = idempotency ? organization.keys.get(`${idempotency.callerId} ${idempotency.key}`) : undefined;
  if (idempotency && key !== undefined && key.endsAtMs > nowMs) {
    if (key.fingerprint !== idempotency.fingerprint) return { outcome: "mismatch" };
    const first = organization.holds.get(key.holdId);
    if (key.answer !== null) {
      const charged = BigInt(first?.coins.length ?? 0);
      return { outcome: "replayed", answer: key.answer, charged, available: BigInt(there) };
    }
    return { outcome: first?.state === "open" ? "in_progress" : "interrupted" };
  }
  const covers = usesAt(organization.budgets, { callerId: transition.callerId, ...facts }, nowMs);
  const reach = reachOf(organization, covers);
  if (reach < least) return shortage(organization, covers, least);
  const made = setAside(
    organization,
    { ...facts, budgets: recordedText(covers) },
    Math.min(most, reach),
    nowMs + lifeMs,
  );
  if (facts.intent) made.retry = takeBroken(organization, facts.intent, nowMs);
  if (idempotency) {
    const { fingerprint, keepMs } = idempotency;
    organization.keys.set(`${idempotency.callerId} ${idempotency.key}`, {
      fingerprint,
      holdId: facts.holdId,
      answer: null,
      endsAtMs: nowMs + keepMs,
    });
  }
  return { outcome: "held", amount: BigInt(made.amount), available: BigInt(there - made.amount) };
}

/** Returns why a hold is refused: for lack of the organization's credits first, then of a budget's. */
function shortage(organization: CoinOrganization, covers: readonly BudgetUse[], least: number): ComparedOutcome {
  const there = availableCoins(organization).length;
  const heldByAll = organization.grants.reduce((sum, { coins }) => sum + count(coins, "held"), 0);
  const reach = { available: BigInt(there), reach: BigInt(reachOf(organization, covers)) };
  const limits = limitsOf(organization, covers);
  if (there + heldByAll < least) return { outcome: "insufficient", limitedBy: null, ...reach };
  const unspent = limits.toSorted((a, b) => a.limit - a.spent - (b.limit - b.spent))[0];
  if (unspent !== undefined && unspent.limit - unspent.spent < least) {
    return { outcome: "insufficient", limitedBy: textOfUse(unspent.use), ...reach };
  }
  if (there < least) return { outcome: "busy", limitedBy: null, held: BigInt(heldByAll), ...reach };
  const rest = ({ limit, held, spent }: CoinLimit) => Math.max(0, limit - held - spent);
  const full = limits.toSorted((a, b) => rest(a) - rest(b))[0];
  if (full === undefined) throw new Error("a hold is refused for no reason");
  return { outcome: "busy", limitedBy: textOfUse(full.use), held: BigInt(full.held), ...reach };
}

function renew(organization: CoinOrganization, transition: Of<"renew">, nowMs: number): ComparedOutcome {
  const { facts, amount, tokens, lifeMs } = transition;
  const earlier = organization.holds.get(facts.holdId);
  if (earlier !== undefined && earlier.state !== "open") return { outcome: "ended", state: earlier.state };
  const most = Math.min(Number(amount), reachOf(organization, usesIn(facts.budgets)));
  const hold = earlier ?? setAside(organization, facts, most, 0);
  Object.assign(hold, { prices: facts.prices, delivered: tokens, expiresAtMs: nowMs + lifeMs });
  hold.intent ??= facts.intent ?? null;
  return { outcome: "renewed", remade: earlier === undefined };
}

function setAside(
  organization: CoinOrganization,
  { holdId, tokenId, prices, budgets, intent = null }: Of<"hold">["facts"],
  amount: number,
  expiresAtMs: number,
): CoinHold {
  const coins = availableCoins(organization).slice(0, amount);
  for (const coin of coins) coin.place = "held";
  const delivered = { input: 0, cachedInput: 0, cacheWrite: 0, output: 0, reasoning: 0 };
  const recovered = { charged: 0, shortfall: 0 };
  const nothing = { bills: [], shortfall: 0, credited: 0, trace: null, isSettledLate: false, recovered, retry: null };
  const terms = { tokenId, covers: usesIn(budgets), amount, prices, expiresAtMs, intent, lateEnd: null };
  const hold: CoinHold = { ...terms, state: "open", coins, delivered, ...nothing };
  organization.holds.set(holdId, hold);
  return hold;
}

function settle(organization: CoinOrganization, transition: Of<"settle">, nowMs: number): ComparedOutcome {
  const { facts, tokens, answer, trace } = transition;
  const hold = organization.holds.get(facts.holdId) ?? setAside(organization, facts, 0, nowMs);
  if (hold.state === "released") return { outcome: "released" };
  if (hold.state === "open" || (hold.state === "recovered" && !hold.isSettledLate)) {
    pay(organization, hold, priceInMicro(tokens, facts.prices), nowMs);
    if (hold.state === "open") {
      hold.state = "charged";
      hold.intent = facts.intent ?? null;
      const isBroken = transition.end !== "complete" && transition.end !== "client_disconnected";
      if (isBroken) addBroken(organization, facts.holdId, hold, nowMs);
    } else Object.assign(hold, { isSettledLate: true, lateEnd: transition.end });
    hold.trace = trace ?? null;
    for (const key of organization.keys.values()) {
      if (key.holdId === facts.holdId && typeof answer === "string") key.answer = answer;
    }
  }
  return {
    outcome: "charged",
    charged: BigInt(hold.coins.length),
    shortfall: BigInt(hold.shortfall),
    available: BigInt(availableCoins(organization).length),
  };
}

function end(organization: CoinOrganization, transition: Of<"release" | "expire">, nowMs: number): ComparedOutcome {
  if (transition.kind === "release") {
    const { facts } = transition;
    const hold = organization.holds.get(facts.holdId) ?? setAside(organization, facts, 0, nowMs);
    if (hold.state === "charged" || hold.state === "recovered") return { outcome: hold.state };
    giveBack(organization, hold, 0, nowMs);
    if (hold.state === "open") {
      for (const [id, key] of organization.keys) if (key.holdId === facts.holdId) organization.keys.delete(id);
      Object.assign(hold, { state: "released", trace: transition.trace });
      addBroken(organization, facts.holdId, hold, nowMs);
    }
    return { outcome: "released", available: BigInt(availableCoins(organization).length) };
  }
  const hold = organization.holds.get(transition.holdId);
  if (hold === undefined) return { outcome: "missing" };
  if (hold.state === "open" && hold.expiresAtMs <= nowMs) {
    pay(organization, hold, priceInMicro(hold.delivered, hold.prices), nowMs);
    hold.state = "recovered";
    hold.recovered = { charged: hold.coins.length, shortfall: hold.shortfall };
    addBroken(organization, transition.holdId, hold, nowMs);
  }
  if (hold.state !== "recovered") return { outcome: "kept", state: hold.state };
  const { charged, shortfall } = hold.recovered;
  return { outcome: "expired", charged: BigInt(charged), shortfall: BigInt(shortfall) };
}

function revoke(
  organizationId: string,
  organization: CoinOrganization,
  transition: Of<"revoke">,
  nowMs: number,
): ComparedOutcome {
  const first = earlierAdjustment(organization, transition);
  if (first !== undefined && first.id !== transition.adjustmentId) {
    const asked = transition.amount === null ? "all" : transition.amount;
    const isSame = (first.isAll ? "all" : first.amount) === asked && first.grantId === transition.grantId;
    if (!isSame) return { outcome: "reference_mismatch", first };
  }
  const named = organization.grants.find(({ id }) => id === transition.grantId);
  if (first === undefined && transition.grantId !== null && named === undefined) return { outcome: "unknown_grant" };
  const adjustment = first ?? { ...emptyAdjustment(organizationId, transition, nowMs) };
  if (first === undefined) {
    const free = named?.coins.filter(({ place }) => place === "pending" || place === "available");
    const there = free ?? availableCoins(organization);
    const asked = Number(transition.amount ?? there.length);
    if (asked > there.length) return { outcome: "excessive", most: BigInt(there.length) };
    const coins = there.slice(0, asked);
    for (const coin of coins) coin.place = "revoked";
    const terms = { isAll: transition.amount === null, grantId: transition.grantId };
    Object.assign(adjustment, { ...terms, amount: BigInt(coins.length), draws: tally(coins) });
    organization.adjustments.push(adjustment);
  }
  const balance = balanceOf(organizationId, organization);
  return { outcome: "revoked", adjustment, balance, repeated: first !== undefined };
}

function credit(
  organizationId: string,
  organization: CoinOrganization,
  transition: Of<"credit">,
  nowMs: number,
): ComparedOutcome {
  const { amount, holdId, adjustmentId: id, priority, expiresAtMs } = transition;
  const first = earlierAdjustment(organization, transition);
  if (first !== undefined && first.id !== id) {
    const terms = [first.amount, first.holdId, first.expiresAtMs];
    if (!isDeepStrictEqual(terms, [amount, holdId, expiresAtMs])) return { outcome: "reference_mismatch", first };
  }
  const adjustment = first ?? emptyAdjustment(organizationId, transition, nowMs);
  if (first === undefined) {
    const hold = holdId === null ? undefined : organization.holds.get(holdId);
    if (holdId !== null && hold === undefined) return { outcome: "missing" };
    const owed = hold === undefined ? Number.POSITIVE_INFINITY : billed(hold) - hold.credited;
    const most = Math.min(spentOf(organization), owed);
    if (Number(amount) > most || hold?.state === "open") return { outcome: "excessive", most: BigInt(most) };
    if (hold !== undefined) hold.credited += Number(amount);
    const coins = Array.from({ length: Number(amount) }, (): Coin => ({ grantId: id, place: "available" }));
    const terms = { id, isCredit: true, reference: null, priority, expiresAtMs, effectiveAtMs: nowMs };
    organization.grants.push({ ...terms, createdAtMs: nowMs, isInForce: true, coins });
    letTimePass(organization, nowMs);
    const draws = [{ grantId: id, amount }];
    const budgets = recordedText(hold?.covers ?? []);
    Object.assign(adjustment, { amount, draws, holdId, expiresAtMs, tokenId: hold?.tokenId ?? null, budgets });
    organization.adjustments.push(adjustment);
  }
  const balance = balanceOf(organizationId, organization);
  return { outcome: "credited", adjustment, balance, repeated: first !== undefined };
}

/** Brings what a hold has taken to its price: gives back, last coins first, or takes more where there is more. */
function pay(organization: CoinOrganization, hold: CoinHold, price: number, nowMs: number): void {
  const before = billed(hold);
  // Credits that were returned are not returned again.
  const isLate = hold.bills.length > 0;
  const due = Math.max(0, price - (hold.retry?.paid ?? 0));
  const cost = isLate ? Math.max(due, hold.credited, before - spentOf(organization)) : due;
  giveBack(organization, hold, cost, nowMs);
  hold.coins.push(...availableCoins(organization).slice(0, cost - hold.coins.length));
  for (const coin of hold.coins) coin.place = "spent";
  // Every grant is named once, where it was first drawn on.
  const order = [...new Set(hold.coins.map(({ grantId }) => grantId))];
  hold.coins = order.flatMap((grantId) => hold.coins.filter((coin) => coin.grantId === grantId));
  hold.bills.push(hold.coins.length - before);
  hold.shortfall = cost - hold.coins.length;
}
