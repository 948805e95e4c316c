import type { AdjustmentRow, Trace } from "../../src/credits/books.ts";
import type { TokenCounts, UnitPrices } from "../../src/credits/price.ts";

/** One micro-credit in the model of the books. */
export interface Coin {
  grantId: string;
  place: "pending" | "available" | "held" | "spent" | "expired" | "revoked";
}
interface CoinGrant {
  id: string;
  /** True for a refund: its coins replace coins that stay spent, so they do not count as granted. */
  isCredit: boolean;
  reference: string | null;
  priority: number;
  effectiveAtMs: number;
  expiresAtMs: number | null;
  createdAtMs: number;
  isInForce: boolean;
  coins: Coin[];
}
export interface CoinHold {
  tokenId: string;
  state: "open" | "charged" | "released" | "recovered";
  isSettledLate: boolean;
  /** Its charge and its shortfall when it was recovered. */
  recovered: { charged: number; shortfall: number };
  amount: number;
  /** Held or spent for it. */
  coins: Coin[];
  prices: UnitPrices;
  delivered: TokenCounts;
  expiresAtMs: number;
  /** Cost of each event. */
  bills: number[];
  shortfall: number;
  credited: number;
  trace: Trace | null;
}
interface CoinKey {
  fingerprint: string;
  holdId: string;
  answer: string | null;
  endsAtMs: number;
}
export interface CoinOrganization {
  grants: CoinGrant[];
  holds: Map<string, CoinHold>;
  caps: Map<string, number>;
  /** Tokens that share the cap of another one. */
  budgets: Map<string, string>;
  keys: Map<string, CoinKey>;
  adjustments: AdjustmentRow[];
}

/** Returns the available coins in the order in which they are spent. */
export function availableCoins({ grants }: CoinOrganization): Coin[] {
  const rank = ({ priority, expiresAtMs }: CoinGrant) => [priority, expiresAtMs ?? Infinity] as const;
  return grants
    .toSorted((a, b) => (a.id < b.id ? -1 : 1))
    .toSorted((a, b) => (rank(a)[1] === rank(b)[1] ? 0 : rank(a)[1] - rank(b)[1]))
    .toSorted((a, b) => rank(a)[0] - rank(b)[0])
    .flatMap(({ coins }) => coins.filter(({ place }) => place === "available"));
}

export function balanceOf(organizationId: string, organization: CoinOrganization) {
  const all = organization.grants.flatMap((grant) => grant.coins);
  const first = organization.grants.filter(({ isCredit }) => !isCredit).flatMap((grant) => grant.coins);
  // A coin of a credit that was revoked was granted once too: as the spent coin that it replaces.
  const revoked = count(all, "revoked") - count(first, "revoked");
  const granted = BigInt(first.length - count(first, "pending") - count(first, "revoked") - revoked);
  const [available, held, expired] = (["available", "held", "expired"] as const).map((place) =>
    BigInt(count(all, place)),
  ) as [bigint, bigint, bigint];
  const spent = BigInt(spentOf(organization));
  return { organizationId, granted, available, held, spent, expired, nextChangeAtMs: null, closedBeforeMs: null };
}

/** The coins that were spent, less what was given back of them by credits. */
export function spentOf({ grants, adjustments }: CoinOrganization): number {
  const spent = grants.reduce((sum, { coins }) => sum + count(coins, "spent"), 0);
  const credits = adjustments.filter(({ kind }) => kind === "credit");
  return spent - credits.reduce((sum, { amount }) => sum + Number(amount), 0);
}

export function billed({ bills }: CoinHold): number {
  return bills.reduce((sum, bill) => sum + bill, 0);
}

/** Returns the held and spent credits of all tokens that share a cap. */
export function usedBy({ holds, budgets }: CoinOrganization, tokenId: string): { held: number; spent: number } {
  const budgetOf = (id: string) => budgets.get(id) ?? id;
  const own = [...holds.values()].filter((hold) => budgetOf(hold.tokenId) === budgetOf(tokenId));
  const open = own.filter(({ state }) => state === "open");
  const held = open.reduce((sum, { amount }) => sum + amount, 0);
  return { held, spent: own.reduce((sum, hold) => sum + billed(hold) - hold.credited, 0) };
}

/** Returns the rest of a token's cap; Infinity without a cap. */
export function leftOf(organization: CoinOrganization, tokenId: string): number {
  const cap = capOf(organization, tokenId);
  const { held, spent } = usedBy(organization, tokenId);
  return Math.max(0, cap - held - spent);
}

/** Without end where there is none. */
export function capOf({ caps, budgets }: CoinOrganization, tokenId: string): number {
  return caps.get(budgets.get(tokenId) ?? tokenId) ?? Number.POSITIVE_INFINITY;
}

export function count(coins: Coin[], place: Coin["place"]): number {
  return coins.filter((coin) => coin.place === place).length;
}

export function tally(coins: Coin[]): { grantId: string; amount: bigint }[] {
  const groups = Map.groupBy(coins, ({ grantId }) => grantId);
  return [...groups].map(([grantId, group]) => ({ grantId, amount: BigInt(group.length) }));
}

export function isExpired({ expiresAtMs }: CoinGrant, nowMs: number): boolean {
  return expiresAtMs !== null && expiresAtMs <= nowMs;
}

/** Small numbers only: below 2^53 floats are exact. Of parts and calls, those that the histories have. */
export function priceInMicro(tokens: TokenCounts, prices: UnitPrices): number {
  const { cacheWrite1h: hour = 0, outputAudio: audio = 0, searches = 0 } = tokens;
  const { cacheWrite1h = prices.cacheWrite, outputAudio = prices.output, searches: search = 0n } = prices;
  const pico =
    tokens.input * Number(prices.input) +
    tokens.cachedInput * Number(prices.cachedInput) +
    (tokens.cacheWrite - hour) * Number(prices.cacheWrite) +
    hour * Number(cacheWrite1h) +
    (tokens.output - audio) * Number(prices.output) +
    audio * Number(outputAudio) +
    tokens.reasoning * Number(prices.reasoning) +
    searches * Number(search);
  return Math.ceil(pico / 1_000_000);
}
