import type { GrantTransition, Outcome, Transition } from "../../src/credits/books.ts";
import type { TokenCounts, UnitPrices } from "../../src/credits/price.ts";

/**
 * The books as a heap of coins, each worth one micro-credit and lying in one place. Slow and plain on purpose: it is
 * what `decide` is compared with, and shares nothing with it but the types. Its clock never goes back.
 */
export class CoinModel {
  readonly organizations = new Map<string, CoinOrganization>();

  addOrganization(organizationId: string): void {
    this.organizations.set(organizationId, { grants: [], holds: new Map() });
  }

  play(transition: Transition, nowMs: number): Outcome {
    const { organizationId } = "facts" in transition ? transition.facts : transition;
    const organization = this.organizations.get(organizationId);
    if (organization === undefined) return { outcome: "unknown_organization" };
    letTimePass(organization, nowMs);
    switch (transition.kind) {
      case "grant":
        return grant(organizationId, organization, transition, nowMs);
      case "refresh":
        return { outcome: "refreshed", balance: balanceOf(organizationId, organization) };
      case "hold":
        return hold(organization, transition, nowMs);
      case "settle":
        return settle(organization, transition, nowMs);
      default:
        return end(organization, transition, nowMs);
    }
  }

  /** What a checkpoint leaves in an open hold's row. */
  checkpoint(organizationId: string, holdId: string, tokens: TokenCounts): void {
    const hold = this.organizations.get(organizationId)?.holds.get(holdId);
    if (hold?.state === "open") hold.delivered = tokens;
  }

  /** Everything that the store's rows have to agree with. */
  picture(organizationId: string) {
    const organization = this.organizations.get(organizationId);
    if (organization === undefined) throw new Error(`${organizationId} is unknown`);
    const grants = organization.grants.map((grant) => ({
      id: grant.transition.grantId,
      pending: !grant.isInForce,
      remaining: BigInt(count(grant.coins, "available")),
    }));
    const holds = [...organization.holds].map(([id, { state, amount, coins, bills, expiresAtMs, shortfall }]) => ({
      id,
      state,
      amount: BigInt(amount),
      drawn: tally(coins),
      costs: bills.map(BigInt),
      shortfall: BigInt(shortfall),
      expiresAtMs,
    }));
    return { balance: balanceOf(organizationId, organization), grants, holds };
  }
}

interface Coin {
  grantId: string;
  place: "pending" | "available" | "held" | "spent" | "expired";
}
interface CoinGrant {
  transition: GrantTransition;
  effectiveAtMs: number;
  isInForce: boolean;
  coins: Coin[];
}
interface CoinHold {
  state: "open" | "charged" | "released" | "expired";
  amount: number;
  /** Held or spent for it. */
  coins: Coin[];
  prices: UnitPrices;
  delivered: TokenCounts;
  expiresAtMs: number;
  /** What each event came to. */
  bills: number[];
  shortfall: number;
}
interface CoinOrganization {
  grants: CoinGrant[];
  holds: Map<string, CoinHold>;
}
type Of<Kind extends Transition["kind"]> = Extract<Transition, { kind: Kind }>;

function letTimePass({ grants }: CoinOrganization, nowMs: number): void {
  for (const grant of grants) {
    grant.isInForce ||= grant.effectiveAtMs <= nowMs;
    for (const coin of grant.coins) {
      if (coin.place === "pending" && grant.isInForce) coin.place = "available";
      if (coin.place === "available" && hasLapsed(grant.transition, nowMs)) coin.place = "expired";
    }
  }
}

function grant(
  organizationId: string,
  organization: CoinOrganization,
  transition: GrantTransition,
  nowMs: number,
): Outcome {
  const same = organization.grants.find(({ transition: { grantId } }) => grantId === transition.grantId);
  const alike = organization.grants.find(
    ({ transition: { reference } }) => reference !== null && reference === transition.reference,
  );
  const first = same ?? alike;
  if (first === undefined) {
    const coins = Array.from({ length: Number(transition.amount) }, (): Coin => {
      return { grantId: transition.grantId, place: "pending" };
    });
    const effectiveAtMs = transition.effectiveAtMs ?? nowMs;
    organization.grants.push({ transition, effectiveAtMs, isInForce: false, coins });
    letTimePass(organization, nowMs);
  }
  const grantId = first?.transition.grantId ?? transition.grantId;
  const balance = balanceOf(organizationId, organization);
  return { outcome: "granted", grantId, balance, repeated: first !== undefined };
}

function hold(organization: CoinOrganization, transition: Of<"hold">, nowMs: number): Outcome {
  const { facts, lifeMs } = transition;
  const [least, most] = [Number(transition.least), Number(transition.most)];
  const earlier = organization.holds.get(facts.holdId);
  if (earlier !== undefined && earlier.state !== "open") return { outcome: "ended", state: earlier.state };
  if (earlier !== undefined) {
    return { outcome: "held", amount: BigInt(earlier.amount), available: BigInt(purseOf(organization).length) };
  }
  const there = purseOf(organization);
  const held = organization.grants.reduce((sum, { coins }) => sum + count(coins, "held"), 0);
  if (there.length < least) {
    const available = BigInt(there.length);
    const isBusy = there.length + held >= least;
    return isBusy ? { outcome: "busy", available, held: BigInt(held) } : { outcome: "insufficient", available };
  }
  const coins = there.slice(0, most);
  for (const coin of coins) coin.place = "held";
  organization.holds.set(facts.holdId, {
    state: "open",
    amount: coins.length,
    coins,
    prices: facts.prices,
    delivered: { input: 0, cachedInput: 0, cacheWrite: 0, output: 0, reasoning: 0 },
    expiresAtMs: nowMs + lifeMs,
    bills: [],
    shortfall: 0,
  });
  return { outcome: "held", amount: BigInt(coins.length), available: BigInt(there.length - coins.length) };
}

function settle(organization: CoinOrganization, { facts, tokens }: Of<"settle">, nowMs: number): Outcome {
  let hold = organization.holds.get(facts.holdId);
  if (hold === undefined) {
    hold = {
      state: "open",
      amount: 0,
      coins: [],
      prices: facts.prices,
      delivered: tokens,
      expiresAtMs: nowMs,
      bills: [],
      shortfall: 0,
    };
    organization.holds.set(facts.holdId, hold);
  }
  if (hold.state === "released") return { outcome: "released" };
  if (hold.state !== "charged") {
    pay(organization, hold, priceInMicro(tokens, facts.prices), nowMs);
    hold.state = "charged";
  }
  return {
    outcome: "charged",
    charged: BigInt(hold.coins.length),
    shortfall: BigInt(hold.shortfall),
    available: BigInt(purseOf(organization).length),
  };
}

function end(organization: CoinOrganization, transition: Of<"renew" | "release" | "expire">, nowMs: number): Outcome {
  const hold = organization.holds.get(transition.holdId);
  if (hold === undefined) return { outcome: "missing" };
  if (transition.kind === "renew") {
    if (hold.state !== "open") return { outcome: "ended", state: hold.state };
    hold.expiresAtMs = nowMs + transition.lifeMs;
    return { outcome: "renewed" };
  }
  if (transition.kind === "release") {
    if (hold.state === "charged" || hold.state === "expired") return { outcome: hold.state };
    giveBack(organization, hold, 0, nowMs);
    hold.state = "released";
    return { outcome: "released", available: BigInt(purseOf(organization).length) };
  }
  if (hold.state === "open" && hold.expiresAtMs <= nowMs) {
    pay(organization, hold, priceInMicro(hold.delivered, hold.prices), nowMs);
    hold.state = "expired";
  }
  if (hold.state !== "expired") return { outcome: "kept", state: hold.state };
  return { outcome: "expired", charged: BigInt(hold.coins.length), shortfall: BigInt(hold.shortfall) };
}

/** Brings what a hold has taken to its price: gives back, last coins first, or takes more where there is more. */
function pay(organization: CoinOrganization, hold: CoinHold, price: number, nowMs: number): void {
  const before = hold.bills.reduce((sum, bill) => sum + bill, 0);
  giveBack(organization, hold, price, nowMs);
  hold.coins.push(...purseOf(organization).slice(0, price - hold.coins.length));
  for (const coin of hold.coins) coin.place = "spent";
  // Every grant is named once, where it was first drawn on.
  const order = [...new Set(hold.coins.map(({ grantId }) => grantId))];
  hold.coins = order.flatMap((grantId) => hold.coins.filter((coin) => coin.grantId === grantId));
  hold.bills.push(hold.coins.length - before);
  hold.shortfall = price - hold.coins.length;
}

function giveBack({ grants }: CoinOrganization, hold: CoinHold, kept: number, nowMs: number): void {
  for (const coin of hold.coins.splice(kept)) {
    const grant = grants.find(({ transition }) => transition.grantId === coin.grantId);
    coin.place = grant !== undefined && hasLapsed(grant.transition, nowMs) ? "expired" : "available";
  }
}

/** The coins that can be taken, in the order in which they are. */
function purseOf({ grants }: CoinOrganization): Coin[] {
  const rank = ({ transition }: CoinGrant) => [transition.priority, transition.expiresAtMs ?? Infinity] as const;
  return grants
    .toSorted((a, b) => (a.transition.grantId < b.transition.grantId ? -1 : 1))
    .toSorted((a, b) => (rank(a)[1] === rank(b)[1] ? 0 : rank(a)[1] - rank(b)[1]))
    .toSorted((a, b) => rank(a)[0] - rank(b)[0])
    .flatMap(({ coins }) => coins.filter(({ place }) => place === "available"));
}

function balanceOf(organizationId: string, { grants }: CoinOrganization) {
  const coins = grants.flatMap((grant) => grant.coins);
  const [available, held, spent, expired] = (["available", "held", "spent", "expired"] as const).map((place) =>
    BigInt(count(coins, place)),
  ) as [bigint, bigint, bigint, bigint];
  const nextChangeAtMs = null;
  const granted = BigInt(coins.length - count(coins, "pending"));
  return { organizationId, granted, available, held, spent, expired, nextChangeAtMs };
}

function count(coins: Coin[], place: Coin["place"]): number {
  return coins.filter((coin) => coin.place === place).length;
}

function tally(coins: Coin[]): { grantId: string; amount: bigint }[] {
  const groups = Map.groupBy(coins, ({ grantId }) => grantId);
  return [...groups].map(([grantId, group]) => ({ grantId, amount: BigInt(group.length) }));
}

function hasLapsed({ expiresAtMs }: GrantTransition, nowMs: number): boolean {
  return expiresAtMs !== null && expiresAtMs <= nowMs;
}

/** Small numbers only: below 2^53 floats are exact. */
function priceInMicro(tokens: TokenCounts, prices: UnitPrices): number {
  const pico =
    tokens.input * Number(prices.input) +
    tokens.cachedInput * Number(prices.cachedInput) +
    tokens.cacheWrite * Number(prices.cacheWrite) +
    tokens.output * Number(prices.output) +
    tokens.reasoning * Number(prices.reasoning);
  return Math.ceil(pico / 1_000_000);
}
