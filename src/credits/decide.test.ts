import { beforeEach, describe, expect, test } from "vitest";
import { keyOf, MemoryBooks } from "../../test/support/memory-books.ts";
import type { GrantTransition, HoldClaim, HoldTransition, RenewTransition, SettleTransition } from "./books.ts";
import type { EventEnd, HoldFacts } from "./facts.ts";
import { keyIdOf } from "./names.ts";
import { FREE, NO_TOKENS, type TokenCounts } from "./price.ts";

const ORGANIZATION = "org_1";
/** A micro-credit an input token, two an output token. */
const PRICES = { ...FREE, input: 1_000_000n, output: 2_000_000n };

let books: MemoryBooks;
beforeEach(() => {
  books = new MemoryBooks();
  books.addOrganization(ORGANIZATION);
});

function factsOf(holdId: string): HoldFacts {
  const request = { tokenId: "tok_1", requestId: "req_1", model: "gpt", upstream: "openai/gpt", metadata: null };
  const idempotencyKey = null;
  return { holdId, organizationId: ORGANIZATION, prices: PRICES, idempotencyKey, ...request };
}
function grant(grantId: string, amount: bigint, rest: Partial<GrantTransition> = {}) {
  const defaults = { effectiveAtMs: null, expiresAtMs: null, priority: 0, reference: null };
  return books.bookOne({ kind: "grant", organizationId: ORGANIZATION, grantId, amount, ...defaults, ...rest });
}
function holding(holdId: string, least: bigint, most = least): HoldTransition {
  return { kind: "hold", facts: factsOf(holdId), callerId: "tok_1", least, most, lifeMs: 100, owner: "owner_1" };
}
function settling(holdId: string, tokens: Partial<TokenCounts>, end: EventEnd = "complete"): SettleTransition {
  return { kind: "settle", facts: factsOf(holdId), tokens: { ...NO_TOKENS, ...tokens }, basis: "reported", end };
}
function renewing(holdId: string, amount: bigint, tokens: Partial<TokenCounts> = {}): RenewTransition {
  const renewal = { amount, tokens: { ...NO_TOKENS, ...tokens }, lifeMs: 100, owner: "owner_1" };
  return { kind: "renew", facts: factsOf(holdId), ...renewal };
}
const named = (holdId: string) => ({ organizationId: ORGANIZATION, holdId });
const releasing = (holdId: string) => ({ kind: "release" as const, facts: factsOf(holdId) });
const expiring = (holdId: string) => ({ kind: "expire" as const, ...named(holdId) });
const balance = () => books.balances.get(ORGANIZATION);
const remaining = (grantId: string) => books.grants.get(keyOf(ORGANIZATION, grantId))?.remaining;
const row = (holdId: string) => books.seen.get(keyOf(ORGANIZATION, holdId));
const event = (holdId: string, sequence: 0 | 1) => books.events.get(keyOf(ORGANIZATION, holdId, sequence));

function expireWithCheckpoint(holdId: string, tokens: Partial<TokenCounts>) {
  books.bookOne(renewing(holdId, 0n, tokens));
  books.nowMs += 100;
  return books.bookOne(expiring(holdId));
}

describe("hold", () => {
  test("A hold reserves the available amount between least and most.", () => {
    grant("g", 50n);
    expect(books.bookOne(holding("a", 10n, 30n))).toEqual({ outcome: "held", amount: 30n, available: 20n });
    expect(books.bookOne(holding("b", 10n, 30n))).toEqual({ outcome: "held", amount: 20n, available: 0n });
    expect(books.bookOne(holding("c", 0n, 30n))).toEqual({ outcome: "held", amount: 0n, available: 0n });
    expect(balance()).toMatchObject({ granted: 50n, available: 0n, held: 50n });
  });

  test("A refused hold distinguishes held from missing credits, and takes nothing from later ones.", () => {
    grant("g", 50n);
    const outcomes = books.book([holding("a", 40n), holding("b", 50n), holding("c", 51n), holding("d", 10n)]);
    expect(outcomes).toEqual([
      { outcome: "held", amount: 40n, available: 10n },
      { outcome: "busy", available: 10n, reach: 10n, held: 40n },
      { outcome: "insufficient", available: 10n, reach: 10n },
      { outcome: "held", amount: 10n, available: 0n },
    ]);
    expect([...books.holds.values()].map(({ holdId }) => holdId)).toEqual(["a", "d"]);
  });

  test("A hold is not made twice, nor after its end.", () => {
    grant("g", 50n);
    books.bookOne(holding("a", 10n));
    expect(books.bookOne(holding("a", 30n))).toEqual({ outcome: "held", amount: 10n, available: 40n });
    books.bookOne(releasing("a"));
    expect(books.bookOne(holding("a", 10n))).toEqual({ outcome: "ended", state: "released" });
    expect(balance()).toMatchObject({ available: 50n, held: 0n });
  });

  test("A hold draws on grants by priority, expiry and id.", () => {
    grant("g1", 10n, { priority: 1 });
    grant("g5", 10n);
    grant("g4", 10n);
    grant("g3", 10n, { expiresAtMs: 9_000 });
    grant("g2", 10n, { expiresAtMs: 8_000 });
    books.bookOne(holding("a", 45n));
    const order = row("a")?.draws.map(({ grantId }) => grantId);
    expect(order).toEqual(["g2", "g3", "g4", "g5", "g1"]);
    expect(row("a")?.draws.at(-1)).toEqual({ grantId: "g1", amount: 5n });
  });

  test("A hold of an amount below 0 is refused.", () => {
    expect(() => books.bookOne(holding("a", -1n))).toThrow(RangeError);
    expect(() => grant("g", -1n)).toThrow(RangeError);
  });

  test("A hold of an unknown organization is refused.", () => {
    const facts = { ...factsOf("a"), organizationId: "org_2" };
    expect(books.bookOne({ ...holding("a", 0n), facts })).toEqual({ outcome: "unknown_organization" });
    expect(books.holds.size).toBe(0);
  });
});

describe("settle", () => {
  test("A settlement charges the usage and returns the rest to the grants drawn last.", () => {
    grant("g1", 10n);
    grant("g2", 40n);
    books.bookOne(holding("a", 30n));
    const outcome = books.bookOne(settling("a", { input: 5, output: 4 }));
    expect(outcome).toEqual({ outcome: "charged", charged: 13n, shortfall: 0n, available: 37n });
    expect([remaining("g1"), remaining("g2")]).toEqual([0n, 37n]);
    expect(row("a")).toMatchObject({ state: "charged", amount: 30n, charged: 13n, shortfall: 0n });
    expect(row("a")?.draws).toEqual([
      { grantId: "g1", amount: 10n },
      { grantId: "g2", amount: 3n },
    ]);
    expect(event("a", 0)).toMatchObject({ cost: 13n, shortfall: 0n, basis: "reported", end: "complete" });
    expect(balance()).toMatchObject({ available: 37n, held: 0n, spent: 13n });
  });

  test("A settlement draws a cost above the hold from the available credits, and records the shortfall.", () => {
    grant("g", 50n);
    books.book([holding("a", 10n), holding("b", 20n)]);
    const outcome = books.bookOne(settling("a", { input: 35 }));
    expect(outcome).toEqual({ outcome: "charged", charged: 30n, shortfall: 5n, available: 0n });
    expect(event("a", 0)).toMatchObject({ cost: 30n, shortfall: 5n });
    expect(balance()).toMatchObject({ available: 0n, held: 20n, spent: 30n });
  });

  test("A settlement charges and records the prices of the route that was taken.", () => {
    grant("g", 50n);
    books.bookOne(holding("a", 30n));
    const prices = { ...FREE, input: 3_000_000n };
    const facts = { ...factsOf("a"), prices, upstream: "azure/gpt" };
    books.bookOne({ ...settling("a", { input: 5 }), facts });
    expect(row("a")).toMatchObject({ charged: 15n, upstream: "azure/gpt", prices });
    expect(event("a", 0)).toMatchObject({ cost: 15n, upstream: "azure/gpt", prices });
  });

  test("A repeated settlement returns its first outcome.", () => {
    grant("g", 50n);
    books.bookOne(holding("a", 30n));
    const first = books.bookOne(settling("a", { input: 5 }));
    expect(books.bookOne(settling("a", { input: 29 }))).toEqual(first);
    expect(books.events.size).toBe(1);
  });

  test("A settlement of a released hold books nothing.", () => {
    grant("g", 50n);
    books.book([holding("a", 30n)]);
    books.bookOne(releasing("a"));
    expect(books.bookOne(settling("a", { input: 5 }))).toEqual({ outcome: "released" });
    expect(books.events.size).toBe(0);
  });

  test("A settlement of a hold that the store lost charges it.", () => {
    grant("g", 10n);
    const outcome = books.bookOne(settling("a", { input: 12 }));
    expect(outcome).toEqual({ outcome: "charged", charged: 10n, shortfall: 2n, available: 0n });
    expect(row("a")).toMatchObject({ state: "charged", amount: 0n, charged: 10n, shortfall: 2n });
  });

  test.each([-1, 1.5, Number.NaN, 2 ** 53])("A settlement of %d tokens is refused.", (input) => {
    grant("g", 10n);
    expect(() => books.bookOne(settling("a", { input }))).toThrow(RangeError);
  });

  test("A hold that is made and ended in one batch writes one row.", () => {
    grant("g", 10n);
    const outcomes = books.book([holding("a", 8n), settling("a", { input: 3 }), releasing("a")]);
    expect(outcomes.map(({ outcome }) => outcome)).toEqual(["held", "charged", "charged"]);
    expect(row("a")).toMatchObject({ state: "charged", charged: 3n });
    expect(balance()).toMatchObject({ available: 7n, held: 0n, spent: 3n });
  });
});

describe("expire", () => {
  test("An expiry with a claim ends only a hold that has not changed since the claim.", () => {
    grant("g", 50n);
    const kept = { outcome: "kept", state: "open" };
    for (const holdId of ["a", "b"]) books.bookOne(holding(holdId, 10n));
    const claim = { owner: "owner_1", expiresAtMs: books.nowMs + 100, afterExpiryMs: null };
    const claiming = (holdId: string, changes: Partial<HoldClaim> = {}) => ({
      ...expiring(holdId),
      claim: { ...claim, ...changes },
    });
    expect(books.bookOne(claiming("a", { owner: "owner_2" }))).toEqual(kept);
    expect(books.bookOne(claiming("a", { expiresAtMs: claim.expiresAtMs - 1 }))).toEqual(kept);
    expect(books.bookOne(claiming("a", { afterExpiryMs: 0 }))).toEqual(kept);
    expect(books.bookOne(claiming("a"))).toMatchObject({ outcome: "expired" });
    books.nowMs += 149;
    expect(books.bookOne(claiming("b", { afterExpiryMs: 50 }))).toEqual(kept);
    books.nowMs += 1;
    expect(books.bookOne(claiming("b", { afterExpiryMs: 50 }))).toMatchObject({ outcome: "expired" });
  });

  test("An expiry keeps a hold that was renewed or ended.", () => {
    grant("g", 50n);
    books.book([holding("a", 10n), holding("b", 10n)]);
    books.nowMs += 100;
    books.book([renewing("a", 10n), releasing("b")]);
    expect(books.book([expiring("a"), expiring("b"), expiring("c")])).toEqual([
      { outcome: "kept", state: "open" },
      { outcome: "kept", state: "released" },
      { outcome: "missing" },
    ]);
  });

  test("An expiry charges the checkpoint.", () => {
    grant("g", 50n);
    books.bookOne(holding("a", 30n));
    const outcome = expireWithCheckpoint("a", { input: 3, output: 2 });
    expect(outcome).toEqual({ outcome: "expired", charged: 7n, shortfall: 0n });
    expect(event("a", 0)).toMatchObject({ cost: 7n, basis: "counted", end: "recovered" });
    expect(balance()).toMatchObject({ available: 43n, held: 0n, spent: 7n });
  });

  test.each([
    ["more", { input: 3, output: 6 }, 8n, { available: 35n, spent: 15n }, { input: 0, output: 4 }],
    ["less", { input: 2, output: 1 }, -3n, { available: 46n, spent: 4n }, { input: -1, output: -1 }],
    ["the same", { input: 3, output: 2 }, 0n, { available: 43n, spent: 7n }, { input: 0, output: 0 }],
  ])("A late settlement for %s books the difference once.", (_, used, difference, left, tokens) => {
    grant("g", 50n);
    books.bookOne(holding("a", 30n));
    expireWithCheckpoint("a", { input: 3, output: 2 });
    const outcome = books.bookOne(settling("a", used));
    expect(outcome).toMatchObject({ outcome: "charged", charged: 7n + difference, shortfall: 0n });
    expect(event("a", 1)).toMatchObject({
      cost: difference,
      tokens,
      end: "complete",
      chargedAtMs: 1_100,
    });
    expect(balance()).toMatchObject(left);
    expect(books.bookOne(settling("a", { input: 40 }))).toEqual(outcome);
    expect(books.bookOne(expiring("a"))).toEqual({ outcome: "expired", charged: 7n, shortfall: 0n });
    expect(books.events.size).toBe(2);
  });

  test("A late settlement reduces the shortfall of an expiry as far as credits are available.", () => {
    grant("g", 10n);
    books.bookOne(holding("a", 10n));
    expect(expireWithCheckpoint("a", { input: 14 })).toEqual({ outcome: "expired", charged: 10n, shortfall: 4n });
    books.bookOne(settling("a", { input: 11 }));
    expect(row("a")).toMatchObject({ charged: 10n, shortfall: 1n });
    expect(event("a", 1)).toMatchObject({ cost: 0n, shortfall: -3n });
  });
});

describe("credits", () => {
  const credit = (adjustmentId: string, amount: bigint, holdId: string | null = null) => {
    const terms = { expiresAtMs: null, priority: 0, reference: null, note: null };
    return books.bookOne({ kind: "credit", organizationId: ORGANIZATION, adjustmentId, amount, holdId, ...terms });
  };

  test("A late settlement does not refund credits of its request again.", () => {
    grant("g", 100n);
    books.book([holding("a", 40n), holding("b", 50n)]);
    books.bookOne(settling("b", { input: 50 }));
    expireWithCheckpoint("a", { input: 40 });
    expect(credit("c", 30n, "a")).toMatchObject({ outcome: "credited", balance: { spent: 60n } });
    expect(books.bookOne(settling("a", { input: 10 }))).toMatchObject({ charged: 30n, shortfall: 0n });
    expect(event("a", 1)).toMatchObject({ cost: -10n, tokens: { input: -30 } });
    expect(balance()).toMatchObject({ granted: 100n, available: 50n, held: 0n, spent: 50n });
  });

  test("Goodwill credits bound the refund of a late settlement as well.", () => {
    grant("g", 100n);
    books.bookOne(holding("a", 40n));
    expireWithCheckpoint("a", { input: 40 });
    credit("c", 25n);
    expect(books.bookOne(settling("a", { input: 0 }))).toMatchObject({ charged: 25n });
    expect(balance()).toMatchObject({ granted: 100n, available: 100n, spent: 0n });
    expect(credit("d", 1n)).toEqual({ outcome: "excessive", most: 0n });
  });

  test("Credits are drawn down in the order of their own expiry and priority.", () => {
    grant("g", 20n, { priority: 1 });
    books.bookOne(settling("a", { input: 8 }));
    credit("c", 5n);
    books.bookOne(holding("b", 7n));
    expect(row("b")?.draws).toEqual([
      { grantId: "c", amount: 5n },
      { grantId: "g", amount: 2n },
    ]);
  });
});

describe("a key that was claimed again", () => {
  test.each(["settle", "release"])("The key does not change when its first hold ends by %s.", (kind) => {
    grant("g", 50n);
    const claim = { callerId: "tok_first", key: "k", fingerprint: "f", keepMs: 10 };
    books.bookOne({ ...holding("a", 5n), idempotency: claim });
    books.nowMs += 10;
    books.bookOne({ ...holding("b", 5n), idempotency: claim });
    books.bookOne(kind === "settle" ? { ...settling("a", { input: 1 }), answer: "1" } : releasing("a"));
    expect(books.keys.get(keyOf(ORGANIZATION, keyIdOf(claim)))).toMatchObject({ holdId: "b", answer: null });
  });
});

describe("grants", () => {
  test("A grant is made once per reference and once per id.", () => {
    expect(grant("g1", 5n, { reference: "invoice" })).toMatchObject({ grantId: "g1", repeated: false });
    expect(grant("g2", 5n, { reference: "invoice" })).toMatchObject({ grantId: "g1", repeated: true });
    expect(grant("g3", 7n)).toMatchObject({ grantId: "g3", repeated: false });
    books.bookOne(holding("a", 12n));
    expect(grant("g3", 7n)).toMatchObject({ grantId: "g3", repeated: true, balance: { granted: 12n, held: 12n } });
  });

  test("A grant with a used reference and other terms is refused and changes nothing.", () => {
    const terms = { effectiveAtMs: 5_000, expiresAtMs: 9_000, priority: 2, reference: "invoice" };
    grant("g1", 5n, terms);
    const before = structuredClone(books.tables);
    const first = { id: "g1", amount: 5n, effectiveAtMs: 5_000, expiresAtMs: 9_000, priority: 2, createdAtMs: 1_000 };
    for (const [amount, other] of [
      [6n, {}],
      [5n, { effectiveAtMs: null }],
      [5n, { effectiveAtMs: 5_001 }],
      [5n, { expiresAtMs: null }],
      [5n, { expiresAtMs: 9_001 }],
      [5n, { priority: 1 }],
    ] as const) {
      expect(grant("g2", amount, { ...terms, ...other })).toEqual({ outcome: "reference_mismatch", first });
    }
    expect(books.tables).toEqual(before);
    books.nowMs += 60_000;
    expect(grant("g2", 5n, terms)).toMatchObject({ grantId: "g1", repeated: true });
    grant("g3", 5n, { reference: "at once" });
    books.nowMs += 60_000;
    expect(grant("g4", 5n, { reference: "at once" })).toMatchObject({ grantId: "g3", repeated: true });
  });

  test("A grant takes effect on its day, and does not count before.", () => {
    expect(grant("g", 5n, { effectiveAtMs: 2_000 })).toMatchObject({ balance: { granted: 0n, nextChangeAtMs: 2_000 } });
    expect(books.bookOne(holding("a", 5n))).toMatchObject({ outcome: "insufficient" });
    books.nowMs = 2_000;
    expect(books.bookOne(holding("a", 5n))).toMatchObject({ outcome: "held" });
    expect(balance()).toMatchObject({ granted: 5n, held: 5n, nextChangeAtMs: null });
  });

  test("A grant expires with the credits that are not held; those that a hold returns later expire.", () => {
    grant("g", 50n, { expiresAtMs: 1_050 });
    books.bookOne(holding("a", 30n));
    books.nowMs = 1_050;
    expect(books.bookOne(holding("b", 1n))).toEqual({
      outcome: "busy",

      available: 0n,
      reach: 0n,
      held: 30n,
    });
    expect(balance()).toMatchObject({ held: 30n, expired: 20n });
    books.bookOne(settling("a", { input: 10 }));
    expect(balance()).toMatchObject({ granted: 50n, available: 0n, held: 0n, spent: 10n, expired: 40n });
  });

  test("A grant expires in time although a hold held all of it at the last change.", () => {
    grant("g1", 10n, { expiresAtMs: 1_050 });
    grant("g2", 10n, { expiresAtMs: 1_020 });
    books.bookOne(holding("a", 20n));
    books.nowMs = 1_020;
    books.bookOne({ kind: "refresh", organizationId: ORGANIZATION });
    expect(balance()?.nextChangeAtMs).toBeNull();
    books.bookOne(releasing("a"));
    expect(balance()).toMatchObject({ available: 10n, expired: 10n, nextChangeAtMs: 1_050 });
    books.nowMs = 1_050;
    expect(books.bookOne(holding("b", 1n))).toMatchObject({ outcome: "insufficient" });
    expect(balance()).toMatchObject({ available: 0n, expired: 20n, nextChangeAtMs: null });
  });

  test("A grant whose expiry has passed expires at once.", () => {
    expect(grant("g", 5n, { expiresAtMs: 1_000 })).toMatchObject({
      balance: { granted: 5n, available: 0n, expired: 5n, nextChangeAtMs: null },
    });
    expect(books.grants.get(keyOf(ORGANIZATION, "g"))).toMatchObject({ state: "expired", remaining: 0n });
  });
});

test("Inconsistent rows are refused.", () => {
  grant("g", 10n);
  const whole = books.balances.get(ORGANIZATION);
  if (whole === undefined) throw new Error("no balance");
  books.balances.set(ORGANIZATION, { ...whole, spent: 1n });
  expect(() => books.bookOne(holding("a", 1n))).toThrow("inconsistent");
  books.balances.set(ORGANIZATION, { ...whole, available: 20n, granted: 20n });
  expect(() => books.bookOne(holding("a", 20n))).toThrow("less than the balance has");
});
