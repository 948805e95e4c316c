import fc from "fast-check";
import { beforeEach, describe, expect, test } from "vitest";
import { MemoryBooks } from "../../test/support/memory-books.ts";
import type { BalanceRow, GrantTransition } from "./books.ts";
import type { SpendingBudget } from "./budgets.ts";
import type { HoldFacts } from "./facts.ts";
import { FREE, NO_TOKENS } from "./price.ts";
import { armCredits, CREDIT_PERCENTS, type EventRow, warnOfCredits } from "./warnings.ts";

const ORGANIZATION = "org_1";
const DAY_MS = 86_400_000;
/** A credit an input token. */
const PRICES = { ...FREE, input: 1_000_000_000_000n };
const CREDIT = 1_000_000n;

type Step = { kind: "top-up" | "fall" | "refund"; amount: bigint };
const steps = fc.array(
  fc.record({
    kind: fc.constantFrom<Step["kind"]>("top-up", "fall", "fall", "fall", "refund"),
    amount: fc.bigInt({ min: 0n, max: 60n }),
  }),
  { maxLength: 30 },
);
const own = fc.option(fc.array(fc.bigInt({ min: 0n, max: 80n }), { minLength: 1, maxLength: 3 }), { nil: null });

describe("thresholds of credits", () => {
  /** Compares with a set of the thresholds that may still be announced. */
  test("each is announced once when credits fall to it, the lowest of several, and again after a top-up", () => {
    fc.assert(
      fc.property(steps, own, (history, warnAt) => {
        const balance = { ...EMPTY, warnAt };
        let armed = thresholdsOf(balance);
        const sink = { nowMs: 0, newEvents: [] as EventRow[] };
        for (const { kind, amount } of history) {
          sink.newEvents = [];
          if (kind === "fall") balance.available -= amount < balance.available ? amount : balance.available;
          else balance.available += amount;
          const left = balance.available;
          if (kind === "top-up" && amount > 0n) {
            armCredits(balance, amount);
            const reached = thresholdsOf(balance).filter((threshold) => threshold >= left);
            const lowest = reached.toSorted(ascending)[0];
            armed = thresholdsOf(balance).filter((threshold) => lowest === undefined || threshold < lowest);
          }
          if (kind === "fall") warnOfCredits(sink, balance);
          const crossed =
            kind === "fall" ? armed.filter((threshold) => threshold >= left).toSorted(ascending)[0] : undefined;
          expect(sink.newEvents.map(({ data }) => data.threshold)).toEqual(
            crossed === undefined ? [] : [Number(crossed) / 1e6],
          );
          if (crossed !== undefined) armed = armed.filter((threshold) => threshold < crossed);
        }
      }),
      { numRuns: 2_000 },
    );
  });

  const EMPTY: BalanceRow = {
    ...{ organizationId: ORGANIZATION, granted: 0n, available: 0n, held: 0n, spent: 0n, expired: 0n },
    ...{ nextChangeAtMs: null, closedBeforeMs: null, budgetVersion: 0, topUp: 0n, warnAt: null, announced: null },
  };
  const thresholdsOf = ({ topUp, warnAt }: BalanceRow) => [
    ...CREDIT_PERCENTS.map((percent) => (topUp * percent) / 100n),
    ...(warnAt ?? []),
  ];
  const ascending = (a: bigint, b: bigint) => Number(a - b);
});

let books: MemoryBooks;
beforeEach(() => {
  books = new MemoryBooks();
  books.addOrganization(ORGANIZATION);
  books.nowMs = 10 * DAY_MS;
});

const factsOf = (holdId: string): HoldFacts => ({
  ...{ holdId, organizationId: ORGANIZATION, prices: PRICES, idempotencyKey: null, tokenId: "tok_1" },
  ...{ requestId: "req_1", model: "gpt", upstream: "openai/gpt", metadata: null },
});
function grant(grantId: string, credits: bigint, rest: Partial<GrantTransition> = {}) {
  const terms = { effectiveAtMs: null, expiresAtMs: null, priority: 0, reference: null, ...rest };
  return books.bookOne({ kind: "grant", organizationId: ORGANIZATION, grantId, amount: credits * CREDIT, ...terms });
}
function hold(holdId: string, credits: bigint) {
  const amounts = { least: credits * CREDIT, most: credits * CREDIT };
  return books.bookOne({ kind: "hold", facts: factsOf(holdId), callerId: "tok_1", ...amounts, lifeMs: 9, owner: "me" });
}
function spend(holdId: string, credits: number) {
  const tokens = { ...NO_TOKENS, input: credits };
  const facts = { ...factsOf(holdId), budgets: books.seen.get(`${ORGANIZATION} ${holdId}`)?.budgets ?? null };
  return books.bookOne({ kind: "settle", facts, tokens, basis: "reported", end: "complete" });
}
/** Returns the kinds and numbers of the warnings so far. */
const told = () =>
  [...books.warnings.values()].map(({ kind, data }) => [kind, data.percent ?? data.threshold ?? data.shortfall]);

describe("warnings of the books", () => {
  test("a hold warns of nothing; a charge warns once when it reaches a threshold", () => {
    grant("g", 100n);
    hold("a", 90n);
    expect(told()).toEqual([]);
    spend("a", 50);
    for (const id of ["b", "c"]) spend(id, 1);
    expect(told()).toEqual([["credits.low", 50]]);
    expect([...books.warnings.values()][0]?.data).toEqual({
      ...{ organization_id: ORGANIZATION, percent: 50, threshold: 50, credits_left: 50, last_top_up: 100 },
    });
  });

  test("a charge below several thresholds warns of the lowest, and the next top-up arms them again", () => {
    grant("g", 100n);
    spend("a", 96);
    expect(told()).toEqual([["credits.low", 5]]);
    grant("h", 20n);
    spend("b", 14);
    expect(told()).toEqual([
      ["credits.low", 5],
      ["credits.low", 50],
    ]);
  });

  test("a refused request warns at 0 % once if little is left, and not if it is only expensive", () => {
    grant("g", 100n);
    expect(hold("a", 101n).outcome).toBe("insufficient");
    expect(told()).toEqual([]);
    spend("b", 97);
    for (const id of ["c", "d"]) expect(hold(id, 4n).outcome).toBe("insufficient");
    expect(told()).toEqual([
      ["credits.low", 5],
      ["credits.low", 0],
    ]);
  });

  test("an organization without any credits is warned once, at 0 %", () => {
    for (const id of ["a", "b"]) expect(hold(id, 1n).outcome).toBe("insufficient");
    expect(told()).toEqual([["credits.low", 0]]);
  });

  test("an expired grant and the organization's own amounts warn as a charge does", () => {
    const balance = books.balances.get(ORGANIZATION);
    if (balance) books.balances.set(ORGANIZATION, { ...balance, warnAt: [70n * CREDIT] });
    grant("g", 60n);
    grant("h", 40n, { expiresAtMs: books.nowMs + 5 });
    books.nowMs += 10;
    books.bookOne({ kind: "refresh", organizationId: ORGANIZATION });
    expect(told()).toEqual([["credits.low", 70]]);
  });

  test("a shortfall warns once a day", () => {
    spend("a", 3);
    spend("b", 4);
    books.nowMs += DAY_MS;
    spend("c", 5);
    expect(told()).toEqual([
      ["credits.shortfall", 3],
      ["credits.shortfall", 5],
    ]);
  });
});

describe("warnings of budgets", () => {
  const budget: SpendingBudget = {
    ...{ organizationId: ORGANIZATION, id: "bud_1", name: "Team", callerIds: null, models: null, metadata: null },
    ...{ each: null, window: "day", amount: 10n * CREDIT, limits: null, capOf: null, createdAtMs: 0 },
  };
  function used(holdId: string, credits: number) {
    hold(holdId, BigInt(credits));
    spend(holdId, credits);
  }
  beforeEach(() => {
    grant("g", 1_000n);
    books.putBudget(budget);
  });

  test("a budget warns at 80 and 100 %, each once in a window", () => {
    used("a", 7);
    expect(told()).toEqual([]);
    for (const id of ["b", "c", "d"]) used(id, 1);
    expect(told()).toEqual([
      ["budget.used", 80],
      ["budget.used", 100],
    ]);
    books.nowMs += DAY_MS;
    used("e", 10);
    expect(told().slice(2)).toEqual([["budget.used", 100]]);
    expect([...books.warnings.values()].at(-1)?.data).toEqual({
      ...{ organization_id: ORGANIZATION, budget_id: "bud_1", name: "Team", value: null, cap_of: null, percent: 100 },
      ...{ limit: 10, spent: 10, window: "day", resets_at: "1970-01-13T00:00:00.000Z" },
    });
  });

  test("a refused request warns at 100 % once, and a raise arms both", () => {
    used("a", 9);
    for (const id of ["b", "c"]) expect(hold(id, 2n).outcome).toBe("insufficient");
    expect(told()).toEqual([
      ["budget.used", 80],
      ["budget.used", 100],
    ]);
    books.raise(ORGANIZATION, { budgetId: "bud_1", windowAtMs: 10 * DAY_MS, value: "" }, 10n * CREDIT);
    used("d", 8);
    used("e", 3);
    expect(told().slice(2)).toEqual([
      ["budget.used", 80],
      ["budget.used", 100],
    ]);
  });

  test.each([8n, 5n])("a budget that is lowered to %i of 10 credits, of which 8 are spent, is used up", (credits) => {
    used("a", 8);
    books.putBudget({ ...budget, amount: credits * CREDIT });
    for (const id of ["b", "c"]) expect(hold(id, 1n).outcome).toBe("insufficient");
    expect(told()).toEqual([
      ["budget.used", 80],
      ["budget.used", 100],
    ]);
    books.putBudget(budget);
    used("d", 1);
    used("e", 1);
    expect(told().slice(2)).toEqual([["budget.used", 100]]);
  });
});
