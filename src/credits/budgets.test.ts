import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { MemoryBooks } from "../../test/support/memory-books.ts";
import type { BudgetRow, HoldTransition, SettleTransition } from "./books.ts";
import { countersIn } from "./budget-uses.ts";
import { BudgetIndex, windowAt, windowEnd } from "./budgets.ts";
import { FREE, NO_TOKENS } from "./price.ts";

const ORGANIZATION = "org_1";
const DAY_MS = 86_400_000;
const SUNDAY = Date.UTC(2026, 10, 29, 23, 59, 59, 999);

function budgetOf(terms: Partial<BudgetRow>): BudgetRow {
  const all = { callerIds: null, models: null, metadata: null, each: null, limits: null, capOf: null };
  const made = { organizationId: ORGANIZATION, id: "bud_1", name: "Budget", createdAtMs: 0 };
  return { ...made, ...all, window: "day", amount: 100n, ...terms };
}

function holding(holdId: string, amount: bigint, metadata: Record<string, string> | null = null): HoldTransition {
  const request = { tokenId: "tok_1", requestId: "req_1", model: "sandbox/a", upstream: "sandbox/a", metadata };
  const facts = { holdId, organizationId: ORGANIZATION, prices: PRICES, idempotencyKey: null, ...request };
  return { kind: "hold", facts, callerId: "tok_1", least: amount, most: amount, lifeMs: 1_000, owner: "owner_1" };
}
/** A micro-credit an output token. */
const PRICES = { ...FREE, output: 1_000_000n };

function settling({ facts }: HoldTransition, output: number): SettleTransition {
  return { kind: "settle", facts, tokens: { ...NO_TOKENS, output }, basis: "reported", end: "complete" };
}

describe("windows", () => {
  test.each([
    ["day", Date.UTC(2026, 10, 29), Date.UTC(2026, 10, 30)],
    ["week", Date.UTC(2026, 10, 23), Date.UTC(2026, 10, 30)],
    ["month", Date.UTC(2026, 10, 1), Date.UTC(2026, 11, 1)],
    ["lifetime", 0, null],
  ] as const)("The %s of a Sunday night begins and ends in UTC.", (window, start, end) => {
    expect(windowAt(window, SUNDAY)).toBe(start);
    expect(windowEnd(window, start)).toBe(end);
    if (end !== null) expect(windowAt(window, end)).toBe(end);
  });

  test("The month after December is January of the next year.", () => {
    expect(windowEnd("month", Date.UTC(2026, 11, 1))).toBe(Date.UTC(2027, 0, 1));
  });
});

describe("coverage", () => {
  const usesOf = (budget: BudgetRow, metadata: Record<string, string> | null) =>
    countersIn(new BudgetIndex([budget]).recordFor(holding("a", 1n, metadata), SUNDAY)).map(({ value }) => value);

  test.each<[string, Partial<BudgetRow>, Record<string, string> | null, string[]]>([
    ["every request without a selector", {}, null, [""]],
    ["a named caller", { callerIds: ["tok_1", "tok_2"] }, null, [""]],
    ["no other caller", { callerIds: ["tok_2"] }, null, []],
    ["a model by its beginning", { models: ["other", "sandbox/*"] }, null, [""]],
    ["no other model", { models: ["sandbox"] }, null, []],
    ["one of several values", { metadata: { team: ["red", "blue"] } }, { team: "blue" }, [""]],
    ["no request without a value", { metadata: { team: ["red"] } }, null, []],
    ["the absence of a value", { metadata: { team: ["(none)"] } }, null, [""]],
    ["each value by itself", { each: "metadata.user" }, { user: "ada" }, ["ada"]],
    ["an empty value like none", { each: "metadata.user" }, { user: "" }, ["(none)"]],
    ["an inherited name like none", { each: "metadata.constructor" }, { user: "ada" }, ["(none)"]],
    ["each model", { each: "model" }, null, ["sandbox/a"]],
    ["each caller", { each: "token" }, null, ["tok_1"]],
  ])("A budget covers %s.", (_, terms, metadata, values) => {
    expect(usesOf(budgetOf(terms), metadata)).toEqual(values);
  });
});

describe("what requests record", () => {
  const [team, user] = [
    budgetOf({ id: "b_team", each: "metadata.team" }),
    budgetOf({ id: "b_user", each: "metadata.user" }),
  ];
  const index = new BudgetIndex([team, user]);
  const valuesOf = (metadata: Record<string, string>) =>
    countersIn(index.recordFor(holding("a", 1n, metadata), SUNDAY)).map(({ value }) => value);

  test("Values with separators are distinct, however often they are requested.", () => {
    const pairs = [
      ["a\nb", "c"],
      ["a", "b\nc"],
      ['a","b', "c"],
      ["a", 'b","c'],
    ];
    for (const [one = "", other = ""] of [...pairs, ...pairs]) {
      expect(valuesOf({ team: one, user: other })).toEqual([one, other]);
    }
  });

  test("Recent texts are kept up to a total size, and forgotten together above it.", () => {
    const textOf = (value: string) => JSON.stringify([["b_1", 0, value]]);
    const first = countersIn(textOf("first"));
    expect(countersIn(textOf("first"))).toBe(first);
    for (let number = 0; number < 10; number += 1) countersIn(textOf(`${number}`.padEnd(50_000)));
    expect(countersIn(textOf("first"))).not.toBe(first);
    expect(countersIn(textOf("first"))).toEqual(first);
  });

  test("Budgets of others, or as they were before, do not answer for these.", () => {
    const others = new BudgetIndex([{ ...team, id: "b_other", organizationId: "org_2" }]);
    const idsOf = (of: BudgetIndex) => countersIn(of.recordFor(holding("a", 1n), SUNDAY)).map((one) => one.budgetId);
    for (const _ of [1, 2]) expect([index, others].map(idsOf)).toEqual([["b_team", "b_user"], ["b_other"]]);
  });

  test("A record does not depend on the requests before it.", () => {
    const rows = [
      budgetOf({ id: "b_caller", callerIds: ["tok_1"], window: "week" }),
      budgetOf({ id: "b_model", models: ["sandbox/a*"], each: "token", window: "lifetime" }),
      budgetOf({ id: "b_red", metadata: { team: ["red", "(none)"] }, each: "model" }),
      budgetOf({ id: "b_user", each: "metadata.user", window: "month" }),
    ];
    const value = fc.constantFrom("red", "blue", "(none)", "");
    const facts = fc.record({
      callerId: fc.constantFrom("tok_1", "tok_2"),
      model: fc.constantFrom("sandbox/a", "sandbox/ab", "sandbox/b"),
      metadata: fc.option(fc.dictionary(fc.constantFrom("team", "user", "other"), value)),
      nowMs: fc.constantFrom(SUNDAY, SUNDAY + 1, SUNDAY + DAY_MS, SUNDAY + 31 * DAY_MS),
    });
    const request = facts.map(({ callerId, model, metadata, nowMs }) => {
      const hold = holding("a", 1n, metadata);
      return { hold: { ...hold, callerId, facts: { ...hold.facts, model } }, nowMs };
    });
    fc.assert(
      fc.property(fc.array(request, { minLength: 2 }), (requests) => {
        const kept = new BudgetIndex(rows);
        const fresh = requests.map(({ hold, nowMs }) => new BudgetIndex(rows).recordFor(hold, nowMs));
        expect(requests.map(({ hold, nowMs }) => kept.recordFor(hold, nowMs))).toEqual(fresh);
      }),
      { numRuns: 1_000 },
    );
  });

  test("The next day has a counter of its own, and so has a day before.", () => {
    const windowOf = (nowMs: number) => countersIn(index.recordFor(holding("a", 1n, null), nowMs))[0]?.windowAtMs;
    expect([SUNDAY, SUNDAY + DAY_MS, SUNDAY].map(windowOf)).toEqual([
      windowAt(team.window, SUNDAY),
      windowAt(team.window, SUNDAY + DAY_MS),
      windowAt(team.window, SUNDAY),
    ]);
  });
});

describe("a request that ends in another window than it began", () => {
  test("It counts in the window of its admission, and the next window is empty.", () => {
    const books = new MemoryBooks();
    books.addOrganization(ORGANIZATION);
    books.putBudget(budgetOf({}));
    const terms = { effectiveAtMs: null, expiresAtMs: null, priority: 0, reference: null };
    books.bookOne({ kind: "grant", organizationId: ORGANIZATION, grantId: "g", amount: 1_000n, ...terms });
    books.nowMs = SUNDAY;
    const first = holding("a", 80n);
    books.bookOne(first);
    expect(books.bookOne(holding("b", 30n))).toMatchObject({ outcome: "busy", budget: { held: 80n, limit: 100n } });
    books.nowMs += 1;
    expect(books.bookOne(holding("c", 90n))).toMatchObject({
      covered: { tightest: { held: 90n, spent: 0n, windowAtMs: SUNDAY + 1 } },
    });
    books.bookOne(settling(first, 70));
    const counted = [...books.budgetUses.values()].map(({ windowAtMs, held, spent }) => [windowAtMs, held, spent]);
    expect(counted).toEqual([
      [SUNDAY + 1 - DAY_MS, 0n, 70n],
      [SUNDAY + 1, 90n, 0n],
    ]);
  });

  test("Of a budget that was deleted meanwhile nothing is counted, and the charge is whole.", () => {
    const books = new MemoryBooks();
    books.addOrganization(ORGANIZATION);
    books.putBudget(budgetOf({}));
    const terms = { effectiveAtMs: null, expiresAtMs: null, priority: 0, reference: null };
    books.bookOne({ kind: "grant", organizationId: ORGANIZATION, grantId: "g", amount: 1_000n, ...terms });
    const first = holding("a", 80n);
    books.bookOne(first);
    books.removeBudget(budgetOf({}));
    expect(books.bookOne(settling(first, 70))).toMatchObject({ outcome: "charged", charged: 70n });
    expect(books.budgetUses.size).toBe(0);
  });
});

describe("requests with new values", () => {
  const terms = { effectiveAtMs: null, expiresAtMs: null, priority: 0, reference: null };
  const booksWith = (...budgets: BudgetRow[]) => {
    const books = new MemoryBooks();
    books.addOrganization(ORGANIZATION);
    for (const budget of budgets) books.putBudget(budget);
    books.bookOne({ kind: "grant", organizationId: ORGANIZATION, grantId: "g", amount: 1_000_000n, ...terms });
    books.nowMs = SUNDAY + 1;
    return books;
  };
  let requests = 0;
  const ask = (books: MemoryBooks, user: string, rest: Partial<HoldTransition> = {}) => {
    requests += 1;
    return books.bookOne({ ...holding(`r${requests}`, 1n, { user }), newValuesMost: 2, ...rest });
  };

  test("A caller begins only so many in a minute, and goes on with those that are counted.", () => {
    const books = booksWith(budgetOf({ each: "metadata.user" }), budgetOf({ id: "b_all" }));
    for (const user of ["a", "b", "a"]) expect(ask(books, user)).toMatchObject({ outcome: "held" });
    books.nowMs += 20_000;
    const refused = { outcome: "too_many_values", most: 2, waitMs: 40_000, budget: { value: "c" } };
    expect(ask(books, "c")).toMatchObject(refused);
    expect(ask(books, "b")).toMatchObject({ outcome: "held" });
    expect(ask(books, "c", { callerId: "tok_2" })).toMatchObject({ outcome: "held" });
    expect(ask(books, "c")).toMatchObject({ outcome: "held" });
    books.nowMs += 39_999;
    expect(ask(books, "d")).toMatchObject({ outcome: "too_many_values", waitMs: 1 });
    books.nowMs += 1;
    expect(ask(books, "d")).toMatchObject({ outcome: "held" });
    // A clock that was set back begins a new minute.
    books.nowMs -= 1_000;
    for (const user of ["e", "f"]) expect(ask(books, user)).toMatchObject({ outcome: "held" });
    expect(ask(books, "g")).toMatchObject({ outcome: "too_many_values", waitMs: 60_000 });
  });

  test("A request that is refused for another reason, or whose values do not come from metadata, counts none.", () => {
    const books = booksWith(budgetOf({ each: "metadata.user" }), budgetOf({ id: "b_token", each: "token" }));
    for (const user of ["a", "b", "c"])
      expect(ask(books, user, { least: 101n })).toMatchObject({ outcome: "insufficient" });
    expect(books.newValues.size).toBe(0);
    const others = booksWith(budgetOf({ each: "token" }), budgetOf({ id: "b_model", each: "model" }));
    for (const callerId of ["1", "2", "3"]) expect(ask(others, "a", { callerId })).toMatchObject({ outcome: "held" });
    expect(others.newValues.size).toBe(0);
  });

  test("In any order of requests, a minute has no more counters of a caller than the bound and its budgets allow.", () => {
    const step = fc.record({
      user: fc.constantFrom("a", "b", "c", "d", "e", "f"),
      callerId: fc.constantFrom("tok_1", "tok_2"),
      afterMs: fc.nat(40_000),
    });
    fc.assert(
      fc.property(fc.array(step, { maxLength: 40 }), fc.integer({ min: 1, max: 3 }), (steps, newValuesMost) => {
        const books = booksWith(budgetOf({ each: "metadata.user" }), budgetOf({ id: "b_2", each: "metadata.user" }));
        const begun: { callerId: string; atMs: number; refused: boolean }[] = [];
        for (const { user, callerId, afterMs } of steps) {
          books.nowMs += afterMs;
          const before = books.budgetUses.size;
          const { outcome } = ask(books, user, { callerId, newValuesMost });
          const refused = outcome === "too_many_values";
          if (refused || books.budgetUses.size > before) begun.push({ callerId, atMs: books.nowMs, refused });
        }
        for (const callerId of ["tok_1", "tok_2"]) {
          let [openedMs, count] = [Number.NEGATIVE_INFINITY, 0];
          for (const { atMs, refused } of begun.filter((one) => one.callerId === callerId)) {
            if (atMs >= openedMs + 60_000) [openedMs, count] = [atMs, 0];
            if (!refused) count += 1;
            expect(count).toBeLessThanOrEqual(newValuesMost);
            if (refused) expect(count).toBe(newValuesMost);
          }
        }
      }),
    );
  });
});
