import type { EventKind } from "../api/admin/event-kinds.ts";
import { DAY_MS, isoTime } from "../api/time.ts";
import type { EVENT, RECEIVER } from "../stores/admin-schema.ts";
import type { ORGANIZATION } from "../stores/schema.ts";
import type { RowOf } from "../stores/table.ts";
import { creditsFromMicro, type MicroCredits } from "./amount.ts";
import type { BalanceRow, BudgetUseRow } from "./books.ts";
import { type SpendingBudget, windowEnd } from "./budgets.ts";

export type EventRow = RowOf<typeof EVENT>;

/** Prefix of the ids of contacts. */
export const CONTACTS_ID = "contacts_";

/** Returns the receiver that stands for the contacts of an organization, who get its statements by mail. */
export function contactsOf({ id: organizationId, contacts }: RowOf<typeof ORGANIZATION>): RowOf<typeof RECEIVER> {
  return {
    ...{ id: `${CONTACTS_ID}${organizationId}`, organizationId, name: "Contacts", format: "mail", secrets: [] },
    ...{ target: (contacts ?? []).join(", "), kinds: ["statement.ready"], createdAtMs: 0 },
    ...{ failingSinceMs: null, disabledAtMs: null },
  };
}

/** Returns the organization for whose contacts a receiver stands; undefined for any other receiver. */
export function organizationOfContacts(receiverId: string): string | undefined {
  return receiverId.startsWith(CONTACTS_ID) ? receiverId.slice(CONTACTS_ID.length) : undefined;
}

/** The time of a batch, and the list of its events. */
interface EventSink {
  nowMs: number;
  newEvents: EventRow[];
}

/** Percentages of the last top-up at which an organization is warned. */
export const CREDIT_PERCENTS = [50n, 20n, 5n, 0n] as const;
const NEARLY_USED_PERCENT = 80;

/** Returns an event whose key is made of its kind, its subject and the period. */
export function eventOf(
  kind: EventKind,
  { organizationId, nowMs, period }: { organizationId: string | null; nowMs: number; period: readonly unknown[] },
  data: Record<string, unknown>,
): EventRow {
  const key = JSON.stringify([kind, organizationId, ...period]);
  return {
    key,
    kind,
    organizationId,
    madeAtMs: nowMs,
    data: { organization_id: organizationId, ...data },
    isRouted: false,
  };
}

/** Returns the credits that are not spent, those of open holds included. */
export function creditsLeft({ available, held }: Pick<BalanceRow, "available" | "held">): MicroCredits {
  return available + held;
}

/**
 * Returns the lowest threshold at or above the credits that are left: a percentage of the last top-up, or one of the
 * organization's own amounts; null if all are lower.
 */
export function reachedThreshold(
  left: MicroCredits,
  { topUp, warnAt }: Pick<BalanceRow, "topUp" | "warnAt">,
): MicroCredits | null {
  let lowest: MicroCredits | null = null;
  const consider = (threshold: MicroCredits) => {
    if (threshold >= left && (lowest === null || threshold < lowest)) lowest = threshold;
  };
  for (const percent of CREDIT_PERCENTS) consider((topUp * percent) / 100n);
  for (const threshold of warnAt ?? []) consider(threshold);
  return lowest;
}

/** Arms the warnings of an organization again after a top-up. Thresholds above its credits count as announced. */
export function armCredits(balance: BalanceRow, topUp: MicroCredits): void {
  balance.topUp = topUp;
  balance.announced = reachedThreshold(creditsLeft(balance), balance);
}

/**
 * Announces the threshold that an organization's credits have reached, unless it or a lower one was announced since the last
 * top-up. A fall below several thresholds is one event, for the lowest.
 */
export function warnOfCredits(sink: EventSink, balance: BalanceRow, left = creditsLeft(balance)): void {
  const threshold = reachedThreshold(left, balance);
  const { organizationId, announced, topUp } = balance;
  if (threshold === null || (announced !== null && threshold >= announced)) return;
  balance.announced = threshold;
  const { nowMs } = sink;
  const percent = CREDIT_PERCENTS.findLast((one) => (topUp * one) / 100n === threshold);
  const data = {
    percent: percent === undefined ? null : Number(percent),
    threshold: creditsFromMicro(threshold),
    credits_left: creditsFromMicro(creditsLeft(balance)),
    last_top_up: creditsFromMicro(topUp),
  };
  sink.newEvents.push(eventOf("credits.low", { organizationId, nowMs, period: [nowMs, `${threshold}`] }, data));
}

/**
 * Announces that credits are used up when a request is refused, although a rest is left that is too small for it. The rest of
 * a larger balance is no reason: the request may just be expensive.
 */
export function warnOfRefusal(sink: EventSink, balance: BalanceRow): void {
  if (creditsLeft(balance) * 100n <= balance.topUp * 5n) warnOfCredits(sink, balance, 0n);
}

/** Announces a charge that credits did not cover, once a day for each organization. */
export function warnOfShortfall(sink: EventSink, organizationId: string, shortfall: MicroCredits): void {
  if (shortfall <= 0n) return;
  const { nowMs } = sink;
  const period = [Math.floor(nowMs / DAY_MS)];
  const data = { shortfall: creditsFromMicro(shortfall) };
  sink.newEvents.push(eventOf("credits.shortfall", { organizationId, nowMs, period }, data));
}

/** The last warning of a new counter. */
export const UNWARNED_USE = { warnedLimit: 0n, warnedPercent: 0 };

/**
 * Announces that a counter of a budget has reached 80 or 100 % of its limit, and notes that in the counter. Each percentage of
 * each limit is announced once: a change of the limit begins again. `isRefused`: a request no longer fits.
 */
export function warnOfBudget(sink: EventSink, budget: SpendingBudget, use: BudgetUseRow, isRefused = false): void {
  const { organizationId, budgetId, windowAtMs, value, spent, raised } = use;
  const limit = budget.amount + raised;
  if (spent * 100n < limit * BigInt(NEARLY_USED_PERCENT)) return;
  const percent = isRefused || spent >= limit ? 100 : NEARLY_USED_PERCENT;
  if (use.warnedLimit === limit && use.warnedPercent >= percent) return;
  const { nowMs } = sink;
  const resetsAtMs = windowEnd(budget.window, windowAtMs);
  const data = {
    ...{ budget_id: budgetId, name: budget.name, value: budget.each === null ? null : value, cap_of: budget.capOf },
    ...{ percent, limit: creditsFromMicro(limit), spent: creditsFromMicro(spent), window: budget.window },
    resets_at: resetsAtMs === null ? null : isoTime(resetsAtMs),
  };
  const period = [budgetId, windowAtMs, value, `${limit}`, percent];
  sink.newEvents.push(eventOf("budget.used", { organizationId, nowMs, period }, data));
  use.warnedLimit = limit;
  use.warnedPercent = percent;
}
