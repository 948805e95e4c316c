import fc from "fast-check";
import type { Attempt, HoldFacts, Transition } from "../../src/credits/books.ts";
import { fitted, type TokenCounts, type UnitPrices } from "../../src/credits/price.ts";

/**
 * Random histories of the books: few organizations, holds and grants, and small amounts, so that everything meets
 * everything. The dates of grants count from the step that they are in.
 */
export interface Step {
  passedMs: number;
  batch: Transition[];
}

export const ORGANIZATION_IDS = ["org_a", "org_b"];
/** The holds of one token of each organization are under a cap, and those of its successor under the same one. */
export const CAPPED_TOKEN = "tok_capped";
export const SUCCESSOR_TOKEN = "tok_successor";
export const TOKEN_CAP = 25n;
const organizationId = fc.oneof(
  { weight: 20, arbitrary: fc.constant("org_a") },
  { weight: 5, arbitrary: fc.constant("org_b") },
  { weight: 1, arbitrary: fc.constant("org_unknown") },
);
const holdId = fc.constantFrom("hold_1", "hold_2", "hold_3", "hold_4", "hold_5", "hold_6", "hold_7", "hold_8");
const TOKENS: Record<string, string> = { hold_1: CAPPED_TOKEN, hold_2: CAPPED_TOKEN, hold_3: SUCCESSOR_TOKEN };
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
  .tuple(organizationId, holdId, prices, fc.constantFrom("sandbox/a", "sandbox/b"))
  .map(([organizationId, holdId, prices, upstream]) => {
    const tokenId = TOKENS[holdId] ?? "tok_free";
    const rest = { model: "sandbox/a", metadata: { for: holdId }, idempotencyKey: null };
    const request = { tokenId, requestId: `req_${holdId}`, ...rest };
    return { organizationId, holdId, prices, upstream, ...request };
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
  return { kind: "hold" as const, facts, least: a < b ? a : b, most: a < b ? b : a, lifeMs, owner, idempotency };
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
  end: fc.constantFrom("complete" as const, "client_disconnected" as const),
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

/** `passedMs` is how far the clock may move between two steps. */
export function histories(passed: { minMs: number; maxMs: number }): fc.Arbitrary<Step[]> {
  const step = fc.record({
    passedMs: fc.integer({ min: passed.minMs, max: passed.maxMs }),
    batch: fc.array(transition, { minLength: 1, maxLength: 8 }),
  });
  return fc.array(step, { minLength: 1, maxLength: 30, size: "max" });
}
