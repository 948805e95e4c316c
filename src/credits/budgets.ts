import { toLimits } from "../api/principal.ts";
import { DAY_MS } from "../api/time.ts";
import { creditsFromMicro, type MicroCredits, minimum } from "./amount.ts";
import type { BudgetRow, BudgetUseRow, BudgetWindow, HoldTransition } from "./books.ts";
import { recordedTextOf } from "./budget-uses.ts";
import type { BudgetUse, HoldFacts, RecordedUses } from "./facts.ts";

/** The value of a request that states none for the metadata key of a budget. */
export const NO_VALUE = "(none)";
/** Begins an `each` that names a metadata key. */
export const METADATA_PREFIX = "metadata.";

/** Budgets of an organization. A hold compares its request with each of them, and with the cap of its token. */
export const BUDGETS_MAX = 100;

/** 1970 began on a Thursday. */
const DAYS_FROM_MONDAY = 3;

/** Returns the first millisecond of the window that contains a time; weeks begin on Monday. */
export function windowAt(window: BudgetWindow, atMs: number): number {
  if (window === "lifetime") return 0;
  const day = Math.floor(atMs / DAY_MS);
  if (window === "day") return day * DAY_MS;
  if (window === "week") return (day - ((day + DAYS_FROM_MONDAY) % 7)) * DAY_MS;
  const date = new Date(atMs);
  return Date.UTC(date.getUTCFullYear(), date.getUTCMonth());
}

/** Returns the first millisecond after a window; null for a lifetime. */
export function windowEnd(window: BudgetWindow, startMs: number): number | null {
  if (window === "lifetime") return null;
  if (window === "day") return startMs + DAY_MS;
  if (window === "week") return startMs + 7 * DAY_MS;
  const date = new Date(startMs);
  return Date.UTC(date.getUTCFullYear(), date.getUTCMonth() + 1);
}

/** Returns the counter that a value of a budget uses at a time; empty: the one that all share. */
export function currentUse({ id, window }: BudgetRow, atMs: number, value = ""): BudgetUse {
  return { budgetId: id, windowAtMs: windowAt(window, atMs), value };
}

/** A budget with an amount. Others only limit requests and tokens per minute, and count nothing. */
export type SpendingBudget = BudgetRow & { amount: MicroCredits };

export function hasAmount(budget: BudgetRow): budget is SpendingBudget {
  return budget.amount !== null;
}

/** Returns the terms of a budget for the audit log. */
export function auditedBudget({ name, callerIds, models, metadata, each, window, amount, limits }: BudgetRow) {
  const selector = { tokens: callerIds, models, metadata };
  return {
    name,
    selector,
    each,
    window,
    amount: amount === null ? null : creditsFromMicro(amount),
    limits: toLimits(limits),
  };
}

/** The budgets of one organization that have an amount. Those of single callers, which can be many, are found by the caller. */
export class BudgetIndex {
  readonly #byId = new Map<string, SpendingBudget>();
  readonly #ofAll: SpendingBudget[] = [];
  readonly #byCaller = new Map<string, SpendingBudget[]>();
  readonly #keys = new Set<string>();
  /** The last record, and what it depended on: requests of a batch are often alike. */
  #last: { facts: readonly unknown[]; record: RecordedUses } | undefined;

  constructor(rows: readonly BudgetRow[]) {
    for (const row of rows.filter(hasAmount)) {
      this.#byId.set(row.id, row);
      for (const key of Object.keys(row.metadata ?? {})) this.#keys.add(key);
      if (row.each?.startsWith(METADATA_PREFIX)) this.#keys.add(row.each.slice(METADATA_PREFIX.length));
      if (row.callerIds === null) this.#ofAll.push(row);
      for (const callerId of row.callerIds ?? []) {
        this.#byCaller.set(callerId, [...(this.#byCaller.get(callerId) ?? []), row]);
      }
    }
  }

  get(id: string): SpendingBudget | undefined {
    return this.#byId.get(id);
  }

  /** Returns what a request records of the counters that its hold uses: of each budget that covers it. */
  recordFor(hold: HoldTransition, nowMs: number): RecordedUses {
    // Every window begins at midnight.
    const facts: unknown[] = [hold.callerId, hold.facts.model, Math.floor(nowMs / DAY_MS)];
    for (const key of this.#keys) facts.push(metadataValue(key, hold.facts));
    const last = this.#last;
    if (last !== undefined && facts.every((fact, index) => fact === last.facts[index])) return last.record;
    const ofCaller = this.#byCaller.get(hold.callerId) ?? [];
    const covering = [...ofCaller, ...this.#ofAll].filter((budget) => isCovered(budget, hold.facts));
    const record = recordedTextOf(covering.map((budget) => currentUse(budget, nowMs, eachValue(budget, hold))));
    this.#last = { facts, record };
    return record;
  }
}

type RequestFacts = Pick<HoldFacts, "model" | "metadata">;

/** Returns true if a budget covers a request of one of its callers. */
export function isCovered({ models, metadata }: Pick<BudgetRow, "models" | "metadata">, facts: RequestFacts): boolean {
  if (models?.some((pattern) => isModel(pattern, facts.model)) === false) return false;
  if (metadata === null) return true;
  return Object.entries(metadata).every(([key, values]) => values.includes(metadataValue(key, facts)));
}

/** Returns true if a model is the one of a selector, or begins as it says. */
export function isModel(pattern: string, model: string): boolean {
  return pattern.endsWith("*") ? model.startsWith(pattern.slice(0, -1)) : model === pattern;
}

function metadataValue(key: string, { metadata }: RequestFacts): string {
  return (metadata !== null && Object.hasOwn(metadata, key) && metadata[key]) || NO_VALUE;
}

/** Returns the value that a request has for the `each` of a budget; empty: the one that all share. */
export function eachValue(
  { each }: Pick<BudgetRow, "each">,
  { callerId, facts }: { callerId: string; facts: RequestFacts },
): string {
  if (each === null) return "";
  if (each === "token") return callerId;
  if (each === "model") return facts.model;
  return metadataValue(each.slice(METADATA_PREFIX.length), facts);
}

/** A budget with one of its counters, as answers show it. */
export interface BudgetState extends BudgetUse {
  name: string;
  window: BudgetWindow;
  /** True for the spending cap of a token. */
  isCap: boolean;
  /** Its amount, with what raises add to this window. */
  limit: MicroCredits;
  spent: MicroCredits;
  held: MicroCredits;
}

/** Returns a budget with a counter; a counter without a row has counted nothing. */
export function budgetState(budget: SpendingBudget, use: BudgetUse, row: BudgetUseRow | undefined): BudgetState {
  const { name, window, amount, capOf } = budget;
  const { budgetId, windowAtMs, value } = use;
  const { spent = 0n, held = 0n, raised = 0n } = row ?? {};
  return { budgetId, windowAtMs, value, name, window, isCap: capOf !== null, limit: amount + raised, spent, held };
}

/** Returns what is left of a budget, 0 if more than its limit is spent or held. */
export function budgetRest({ limit, spent, held }: BudgetState): MicroCredits {
  const rest = limit - spent - held;
  return rest < 0n ? 0n : rest;
}

/** Returns the state with the least left; undefined if there is none. */
export function tightest(
  states: readonly BudgetState[],
  leftOf: (state: BudgetState) => MicroCredits = budgetRest,
): BudgetState | undefined {
  let least: BudgetState | undefined;
  for (const state of states) if (least === undefined || leftOf(state) < leftOf(least)) least = state;
  return least;
}

/** Returns the credits that a request can hold: the available ones, at most what is left of each budget. */
export function reachWithin(available: MicroCredits, states: readonly BudgetState[]): MicroCredits {
  return states.reduce((reach, state) => minimum(reach, budgetRest(state)), available);
}
