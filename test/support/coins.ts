import type { AdjustmentRow, BudgetRow, CreditTransition, RevokeTransition } from "../../src/credits/books.ts";
import type { BudgetUse, Intent, Trace } from "../../src/credits/facts.ts";
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
  /** The budgets that counted it when it was admitted, each with the value and the window. */
  covers: readonly BudgetUse[];
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
  intent: Intent | null;
  /** The attempt that it repeats, and what was paid before it. */
  retry: { of: string; paid: number } | null;
  /** The end of its late settlement. */
  lateEnd: string | null;
}
/** An attempt that broke after it was charged, until a retry takes it. */
interface CoinBreak {
  of: string;
  intent: Intent;
  endsAtMs: number;
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
  budgets: BudgetRow[];
  /** The amounts that raises add, by the text of a use. */
  raises: Map<string, number>;
  keys: Map<string, CoinKey>;
  broken: CoinBreak[];
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
  const unknown = { nextChangeAtMs: null, closedBeforeMs: null, budgetVersion: 0, ...UNWARNED };
  return { organizationId, granted, available, held, spent, expired, ...unknown };
}

/** The columns of warnings, of which the model knows nothing. */
export const UNWARNED = { topUp: 0n, warnAt: null, announced: null };

/** The coins that were spent, less what was given back of them by credits. */
export function spentOf({ grants, adjustments }: CoinOrganization): number {
  const spent = grants.reduce((sum, { coins }) => sum + count(coins, "spent"), 0);
  const credits = adjustments.filter(({ kind }) => kind === "credit");
  return spent - credits.reduce((sum, { amount }) => sum + Number(amount), 0);
}

export function billed({ bills }: CoinHold): number {
  return bills.reduce((sum, bill) => sum + bill, 0);
}

/** The text of a use, for comparison. */
export function textOfUse({ budgetId, windowAtMs, value }: BudgetUse): string {
  return JSON.stringify([budgetId, windowAtMs, value]);
}

export interface CoinLimit {
  use: BudgetUse;
  limit: number;
  held: number;
  spent: number;
}

/** Returns what all holds that a budget counted in the same window, for the same value, hold and have spent. */
export function limitOf({ holds, budgets, raises }: CoinOrganization, use: BudgetUse): CoinLimit | undefined {
  const budget = budgets.find(({ id }) => id === use.budgetId);
  if (budget === undefined) return undefined;
  const text = textOfUse(use);
  const own = [...holds.values()].filter(({ covers }) => covers.some((other) => textOfUse(other) === text));
  const open = own.filter(({ state }) => state === "open");
  const held = open.reduce((sum, { amount }) => sum + amount, 0);
  const spent = own.reduce((sum, hold) => sum + billed(hold) - hold.credited, 0);
  return { use, limit: Number(budget.amount) + (raises.get(text) ?? 0), held, spent };
}

/** Returns the uses that a row or a transition records, as docs/ledger.md describes the text. */
export function usesIn(recorded: string | null | undefined): BudgetUse[] {
  const lists: [string, number, string][] = JSON.parse(recorded ?? "[]");
  return lists.map(([budgetId, windowAtMs, value]) => ({ budgetId, windowAtMs, value }));
}

/** Returns the text that records uses. */
export function recordedText(uses: readonly BudgetUse[]): string | null {
  return uses.length === 0 ? null : JSON.stringify(uses.map((use) => [use.budgetId, use.windowAtMs, use.value]));
}

/** Returns the limits of the budgets that cover a request. */
export function limitsOf(organization: CoinOrganization, covers: readonly BudgetUse[]): CoinLimit[] {
  return covers.flatMap((use) => limitOf(organization, use) ?? []);
}

/** Returns the coins that a hold may take: those that are there, at most what is left of each budget. */
export function reachOf(organization: CoinOrganization, covers: readonly BudgetUse[]): number {
  const rests = limitsOf(organization, covers).map(({ limit, held, spent }) => Math.max(0, limit - held - spent));
  return Math.min(availableCoins(organization).length, ...rests);
}

/** Returns the uses of a request that is admitted at a time, by the words of docs/budgets.md. */
export function usesAt(
  budgets: readonly BudgetRow[],
  request: { callerId: string; model: string; metadata: Record<string, string> | null },
  atMs: number,
): BudgetUse[] {
  const uses: BudgetUse[] = [];
  for (const { id, callerIds, models, metadata, each, window, amount } of budgets) {
    if (amount === null) continue;
    if (callerIds !== null && !callerIds.includes(request.callerId)) continue;
    const isModel = (pattern: string) =>
      new RegExp(`^${pattern.replaceAll(/[.+?^${}()|[\]\\]/g, "\\$&").replace("*", ".*")}$`).test(request.model);
    if (models !== null && !models.some(isModel)) continue;
    const valueOfKey = (key: string) => request.metadata?.[key] || "(none)";
    const isOther = ([key, values]: [string, string[]]) => !values.includes(valueOfKey(key));
    if (Object.entries(metadata ?? {}).some(isOther)) continue;
    const values: Record<string, string> = { token: request.callerId, model: request.model, null: "" };
    const value = values[String(each)] ?? valueOfKey(String(each).replace("metadata.", ""));
    uses.push({ budgetId: id, windowAtMs: startOf(window, atMs), value });
  }
  return uses;
}

/** Goes back day by day to the first one of a window. */
export function startOf(window: BudgetRow["window"], atMs: number): number {
  if (window === "lifetime") return 0;
  const date = new Date(new Date(atMs).toISOString().slice(0, 10));
  const isFirst = () => window === "day" || (window === "week" ? date.getUTCDay() === 1 : date.getUTCDate() === 1);
  while (!isFirst()) date.setTime(date.getTime() - 86_400_000);
  return date.getTime();
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

/** Returns the adjustment of a revocation or a credit that has changed nothing yet. */
export function emptyAdjustment(
  organizationId: string,
  transition: RevokeTransition | CreditTransition,
  nowMs: number,
): AdjustmentRow {
  const { adjustmentId: id, kind, reference, note } = transition;
  const terms = { isAll: false, grantId: null, expiresAtMs: null };
  const nothing = { ...terms, amount: 0n, draws: [], holdId: null, tokenId: null, budgets: null, settlement: null };
  return { organizationId, id, kind, ...nothing, reference, note, madeAtMs: nowMs };
}

/** Takes the first attempt of the same caller with the same body that broke within two minutes and that was paid for. */
export function takeBroken(organization: CoinOrganization, { callerId, fingerprint }: Intent, nowMs: number) {
  const isSame = ({ intent, endsAtMs }: CoinOrganization["broken"][number]) =>
    intent.callerId === callerId && intent.fingerprint === fingerprint && endsAtMs > nowMs;
  for (;;) {
    const first = organization.broken.filter(isSame).toSorted((a, b) => (a.of < b.of ? -1 : 1))[0];
    if (first === undefined) return null;
    organization.broken = organization.broken.filter((one) => one !== first);
    const attempt = organization.holds.get(first.of);
    const paid = attempt === undefined ? 0 : (attempt.retry?.paid ?? 0) + billed(attempt) - attempt.credited;
    const hasLeft = attempt?.lateEnd === "complete" || attempt?.lateEnd === "client_disconnected";
    if (paid > 0 && !hasLeft) return { of: first.of, paid };
  }
}

/** Lets a retry take an attempt that broke, if it or those before it were charged. */
export function addBroken(
  organization: CoinOrganization,
  of: string,
  { intent, retry, bills }: CoinHold,
  nowMs: number,
) {
  const paid = (retry?.paid ?? 0) + (bills[0] ?? 0);
  if (intent !== null && paid > 0) organization.broken.push({ of, intent, endsAtMs: nowMs + 120_000 });
}

/** Returns the adjustment that a transition repeats; undefined if there is none. */
export function earlierAdjustment({ adjustments }: CoinOrganization, transition: RevokeTransition | CreditTransition) {
  const { kind, adjustmentId, reference } = transition;
  const own = adjustments.filter((adjustment) => adjustment.kind === kind);
  const alike = (adjustment: AdjustmentRow) => reference !== null && adjustment.reference === reference;
  return own.find(({ id }) => id === adjustmentId) ?? own.find(alike);
}

/** Returns the coins of a hold beyond a number of them, the last ones first. */
export function giveBack({ grants }: CoinOrganization, hold: CoinHold, kept: number, nowMs: number): void {
  for (const coin of hold.coins.splice(kept)) {
    const grant = grants.find(({ id }) => id === coin.grantId);
    coin.place = grant !== undefined && isExpired(grant, nowMs) ? "expired" : "available";
  }
}
