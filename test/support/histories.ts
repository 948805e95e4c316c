import fc from "fast-check";
import type { BudgetRow, Transition } from "../../src/credits/books.ts";
import type { Attempt, BudgetUse, HoldFacts } from "../../src/credits/facts.ts";
import { fitted, type TokenCounts, type UnitPrices } from "../../src/credits/price.ts";
import { recordedText, startOf, usesAt } from "./coins.ts";

/**
 * Random histories of the books: few organizations, holds and grants, and small amounts, so that everything meets
 * everything. The dates of grants count from the step that they are in.
 */
export interface Step {
  passedMs: number;
  /** Changes of budgets, before the batch. */
  changes: BudgetChange[];
  batch: Transition[];
}

/** A change of the budget at an index of `BUDGETS`, of one organization. */
export interface BudgetChange {
  organizationId: string;
  budget: number;
  /** `replace` deletes it, and creates it again with another id. */
  kind: "amount" | "raise" | "replace";
  amount: bigint;
  /** The one that a raise names, where the budget has `each`. */
  value: string;
}

export const ORGANIZATION_IDS = ["org_a", "org_b"];
/** A token of each organization with a cap, and its successor by rotation, which is the same caller. */
export const CAPPED_TOKEN = "tok_capped";
export const SUCCESSOR_TOKEN = "tok_successor";
const FREE_TOKEN = "tok_free";

type BudgetTerms = Omit<BudgetRow, "organizationId" | "id" | "name" | "createdAtMs">;
const OF_ALL = { callerIds: null, models: null, metadata: null, each: null, limits: null, capOf: null };

/** The budgets that each organization begins with. They overlap. */
export const BUDGETS: readonly BudgetTerms[] = [
  { ...OF_ALL, window: "lifetime", amount: 25n, callerIds: [CAPPED_TOKEN], capOf: CAPPED_TOKEN },
  { ...OF_ALL, window: "day", amount: 20n, each: "metadata.user" },
  { ...OF_ALL, window: "week", amount: 40n, models: ["sandbox/*"], each: "token" },
  { ...OF_ALL, window: "month", amount: 90n },
  { ...OF_ALL, window: "day", amount: 15n, metadata: { user: ["ann", "(none)"] }, each: "model" },
  // It counts nothing until it has an amount.
  { ...OF_ALL, window: "day", amount: null, limits: { requestsPerMinute: 1 } },
];
const organizationId = fc.oneof(
  { weight: 20, arbitrary: fc.constant("org_a") },
  { weight: 5, arbitrary: fc.constant("org_b") },
  { weight: 1, arbitrary: fc.constant("org_unknown") },
);
const holdId = fc.constantFrom("hold_1", "hold_2", "hold_3", "hold_4", "hold_5", "hold_6", "hold_7", "hold_8");
const TOKENS: Record<string, string> = { hold_1: CAPPED_TOKEN, hold_2: CAPPED_TOKEN, hold_3: SUCCESSOR_TOKEN };
const USERS: Record<string, string> = { hold_1: "ann", hold_3: "ann", hold_4: "bob", hold_5: "bob", hold_6: "eve" };

/** Returns the caller of a token of the histories, whose ids may have an ending. */
export function callerOf(tokenId: string): string {
  return tokenId.replace(SUCCESSOR_TOKEN, CAPPED_TOKEN);
}
const unitPrice = fc.constantFrom(0n, 1n, 300_000n, 1_000_000n, 2_500_001n);
const prices: fc.Arbitrary<UnitPrices> = fc.record(
  {
    input: unitPrice,
    cachedInput: unitPrice,
    cacheWrite: unitPrice,
    output: unitPrice,
    reasoning: unitPrice,
    ...{ cacheWrite1h: unitPrice, outputAudio: unitPrice, searches: unitPrice },
    tier: fc.constantFrom({ serviceTier: "flex" }, { abovePromptTokens: 1000, promptTokensMax: 2000 }),
  },
  { requiredKeys: ["input", "cachedInput", "cacheWrite", "output", "reasoning"] },
);
const count = fc.integer({ min: 0, max: 9 });
const tokens: fc.Arbitrary<TokenCounts> = fc
  .record(
    {
      ...{ input: count, cachedInput: count, cacheWrite: count, output: count, reasoning: count },
      ...{ cacheWrite1h: count, outputAudio: count, searches: count },
    },
    { requiredKeys: ["input", "cachedInput", "cacheWrite", "output", "reasoning"] },
  )
  .map((counts) => fitted(counts, Number.POSITIVE_INFINITY));
const facts: fc.Arbitrary<HoldFacts> = fc
  .tuple(
    ...([organizationId, holdId, prices, fc.constantFrom("sandbox/a", "sandbox/b")] as const),
    fc.constantFrom(null, "body", "body", "other body"),
  )
  .map(([organizationId, holdId, prices, upstream, fingerprint]) => {
    const tokenId = TOKENS[holdId] ?? FREE_TOKEN;
    const user = USERS[holdId];
    const metadata = { for: holdId, ...(user !== undefined && { user }) };
    const rest = { model: holdId === "hold_8" ? "other/b" : "sandbox/a", metadata, idempotencyKey: null };
    const request = { tokenId, requestId: `req_${holdId}`, ...rest };
    const intent = fingerprint === null ? null : { callerId: callerOf(tokenId), fingerprint };
    return { organizationId, holdId, prices, upstream, intent, ...request };
  });
const amount = fc.bigInt({ min: 0n, max: 40n });
const lifeMs = fc.integer({ min: 0, max: 60 });

const idempotency = fc.option(
  fc.record({
    callerId: fc.constantFrom("tok_one", "tok_one", "tok_two"),
    key: fc.constantFrom("key 1", "key 2", "key 3"),
    fingerprint: fc.constantFrom("body", "body", "other body"),
    keepMs: fc.integer({ min: 0, max: 40 }),
  }),
  { freq: 1 },
);
const trace = fc.option(
  fc.record({
    isStreamed: fc.boolean(),
    firstTokenMs: fc.option(fc.integer({ min: 0, max: 90 })),
    attempts: fc.option(fc.constant<Attempt[]>([{ route: "sandbox/a", outcome: "answered", durationMs: 7 }])),
    failure: fc.option(fc.constant("upstream_error")),
    providerResponseId: fc.option(fc.constant("chatcmpl-1")),
    providerCost: fc.option(fc.constantFrom("0", "0.000014")),
  }),
);

const release = fc.record({ kind: fc.constant("release" as const), facts, trace });
const expire = fc.record({ kind: fc.constant("expire" as const), organizationId, holdId });
const owner = "owner_1";
const hold = fc.tuple(facts, amount, amount, lifeMs, idempotency).map(([facts, a, b, lifeMs, idempotency]) => {
  const [least, most] = a < b ? [a, b] : [b, a];
  const callerId = callerOf(facts.tokenId);
  return { kind: "hold" as const, facts, callerId, least, most, lifeMs, owner, idempotency };
});
const renew = fc.record({
  kind: fc.constant("renew" as const),
  facts,
  amount,
  tokens,
  lifeMs,
  owner: fc.constant(owner),
});
const settle = fc.record({
  kind: fc.constant("settle" as const),
  facts,
  tokens,
  basis: fc.constantFrom("reported" as const, "counted" as const),
  end: fc.constantFrom("complete", "client_disconnected", "upstream_failed", "timed_out", "service_failed"),
  answer: fc.option(fc.constantFrom('"one answer"', '"another"')),
  trace,
});
const grantId = fc.constantFrom("grant_1", "grant_2", "grant_3", "grant_4", "grant_5", "grant_6");
const grant = fc.record({
  kind: fc.constant("grant" as const),
  organizationId,
  grantId,
  amount,
  effectiveAtMs: fc.option(fc.integer({ min: -20, max: 80 }), { freq: 2 }),
  expiresAtMs: fc.option(fc.integer({ min: -20, max: 150 }), { freq: 2 }),
  priority: fc.integer({ min: 0, max: 2 }),
  reference: fc.option(fc.constantFrom("invoice 1", "invoice 2", "invoice 3", "invoice 4"), { freq: 1 }),
});

const adjustment = {
  organizationId,
  adjustmentId: fc.constantFrom("adjustment_1", "adjustment_2", "adjustment_3", "adjustment_4", "adjustment_5"),
  amount: fc.bigInt({ min: 0n, max: 12n }),
  reference: fc.option(fc.constantFrom("case 1", "case 2", "case 3"), { freq: 1 }),
  note: fc.option(fc.constant("why")),
};
const revoke = fc.record({
  kind: fc.constant("revoke" as const),
  ...adjustment,
  adjustmentId: adjustment.adjustmentId.map((id) => `revoked_${id}`),
  amount: fc.option(adjustment.amount, { freq: 3 }),
  grantId: fc.option(grantId, { freq: 2 }),
});
const credit = fc.record({
  kind: fc.constant("credit" as const),
  ...adjustment,
  adjustmentId: adjustment.adjustmentId.map((id) => `credited_${id}`),
  holdId: fc.option(holdId, { freq: 4 }),
  expiresAtMs: fc.option(fc.integer({ min: -20, max: 150 }), { freq: 2 }),
  priority: fc.integer({ min: 0, max: 2 }),
});

/** The transitions of a step that is taken at `nowMs`. */
export function batchAt({ batch }: Step, nowMs: number): Transition[] {
  const at = (atMs: number | null) => (atMs === null ? null : nowMs + atMs);
  return batch.map((transition) => {
    if (transition.kind === "credit") return { ...transition, expiresAtMs: at(transition.expiresAtMs) };
    if (transition.kind !== "grant") return transition;
    return { ...transition, effectiveAtMs: at(transition.effectiveAtMs), expiresAtMs: at(transition.expiresAtMs) };
  });
}

const transition: fc.Arbitrary<Transition> = fc.oneof(
  { weight: 6, arbitrary: hold },
  { weight: 4, arbitrary: settle },
  { weight: 2, arbitrary: release },
  { weight: 3, arbitrary: expire },
  { weight: 3, arbitrary: renew },
  { weight: 4, arbitrary: grant },
  { weight: 1, arbitrary: revoke },
  { weight: 4, arbitrary: credit },
  { weight: 1, arbitrary: fc.record({ kind: fc.constant("refresh" as const), organizationId }) },
);

const change: fc.Arbitrary<BudgetChange> = fc.record({
  organizationId: fc.constantFrom("org_a", "org_a", "org_a", "org_b"),
  budget: fc.nat({ max: BUDGETS.length - 1 }),
  kind: fc.constantFrom("amount" as const, "amount" as const, "raise" as const, "replace" as const),
  amount: fc.bigInt({ min: 1n, max: 60n }),
  value: fc.constantFrom("ann", "bob", "(none)", "sandbox/a", CAPPED_TOKEN),
});

/** `passedMs` is how far the clock may move between two steps. */
export function histories(passed: { minMs: number; maxMs: number }): fc.Arbitrary<Step[]> {
  const step = fc.record({
    passedMs: fc.integer({ min: passed.minMs, max: passed.maxMs }),
    changes: fc.oneof(
      { weight: 4, arbitrary: fc.constant<BudgetChange[]>([]) },
      { weight: 1, arbitrary: fc.array(change, { minLength: 1, maxLength: 2 }) },
    ),
    batch: fc.array(transition, { minLength: 1, maxLength: 8 }),
  });
  return fc.array(step, { minLength: 1, maxLength: 30, size: "max" });
}

/** Books whose budgets a history changes. */
export interface BudgetTarget {
  putBudget(row: BudgetRow): unknown;
  removeBudget(row: BudgetRow): unknown;
  raise(organizationId: string, use: BudgetUse, amount: bigint): unknown;
}

/** The steps of a change, each for one target at a time. */
type ChangeSteps = ((target: BudgetTarget) => unknown)[];

/** The budgets of some organizations in the course of a history. */
export class HistoryBudgets {
  readonly #rows = new Map<string, BudgetRow[]>();
  #made = 0;

  /** `rows` are the budgets that an organization begins with, in the order of `BUDGETS`. */
  constructor(rows: readonly BudgetRow[]) {
    for (const [organizationId, own] of Map.groupBy(rows, (row) => row.organizationId)) {
      this.#rows.set(organizationId, own);
    }
  }

  /** Makes a change, and returns the steps that make it in the books. */
  change({ organizationId, budget, kind, amount, value }: BudgetChange, nowMs: number): ChangeSteps {
    const rows = this.#rows.get(organizationId) ?? [];
    const row = rows[budget];
    if (row === undefined) return [];
    if (kind === "raise") {
      if (row.capOf !== null || row.amount === null) return [];
      const windowAtMs = startOf(row.window, nowMs);
      const use = { budgetId: row.id, windowAtMs, value: row.each === null ? "" : value };
      return [(target) => target.raise(organizationId, use, amount)];
    }
    this.#made += 1;
    const changed = kind === "replace" ? { ...row, id: `${row.id}_${this.#made}` } : { ...row, amount };
    rows[budget] = changed;
    const removals: ChangeSteps = kind === "replace" ? [(target) => target.removeBudget(row)] : [];
    return [...removals, (target) => target.putBudget(changed)];
  }

  /** Lets transitions of requests whose holds were made earlier name the counters that they recorded. */
  recorded(transitions: readonly Transition[], nowMs: number): Transition[] {
    return transitions.map((transition) => {
      if (!("facts" in transition) || transition.kind === "hold") return transition;
      const { organizationId, tokenId, model, metadata } = transition.facts;
      const own = this.#rows.get(organizationId) ?? [];
      const budgets = recordedText(usesAt(own, { callerId: callerOf(tokenId), model, metadata }, nowMs));
      return { ...transition, facts: { ...transition.facts, budgets } };
    });
  }
}

/** Returns the budgets of `BUDGETS` as rows of an organization. */
export function budgetRows(organizationId: string): BudgetRow[] {
  return BUDGETS.map((terms, index) => {
    const name = terms.capOf === null ? `Budget ${index}` : "Spending cap";
    return { ...terms, organizationId, id: `bud_${index}`, name, createdAtMs: 0 };
  });
}
