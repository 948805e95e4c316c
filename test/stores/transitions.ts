import { expect, test } from "vitest";
import type { Transition } from "../../src/credits/books.ts";
import { FREE, priceOf } from "../../src/credits/price.ts";
import { StoreUnavailableError } from "../../src/errors.ts";
import {
  factsOf,
  grantOf,
  HOUR_MS,
  holdOf,
  PRICES,
  randomId,
  referenceOf,
  releaseOf,
  renewOf,
  type Subject,
  settleOf,
} from "./fixture.ts";

export function transitionCases(subject: Subject): void {
  holdCases(subject);
  missingCases(subject);
  settleCases(subject);
  retryCases(subject);
  expiryCases(subject);
  grantCases(subject);
  batchCases(subject);
  exactCases(subject);
}

function holdCases(subject: Subject): void {
  test("a hold takes the available credits between least and most", async () => {
    const organizationId = await subject.organization(100n);
    const hold = { ...holdOf(organizationId, 0n), least: 30n, most: 70n };
    expect(await subject.one(hold)).toEqual({ outcome: "held", amount: 70n, available: 30n });
    const next = { ...hold, facts: factsOf(organizationId) };
    expect(await subject.one(next)).toEqual({ outcome: "held", amount: 30n, available: 0n });
    const short = { available: 0n, reach: 0n };
    const last = { ...hold, facts: factsOf(organizationId) };
    expect(await subject.one(last)).toEqual({ outcome: "busy", ...short, held: 100n });
    await subject.expectSound(organizationId);
  });

  test("a hold above the credits is insufficient", async () => {
    const organizationId = await subject.organization(100n);
    const short = { available: 100n, reach: 100n };
    expect(await subject.one(holdOf(organizationId, 101n))).toEqual({ outcome: "insufficient", ...short });
    expect(await subject.books.balance(organizationId)).toMatchObject({ available: 100n, held: 0n });
  });

  test("a hold of zero needs no credits", async () => {
    const hold = await subject.held(holdOf("org_playground", 0n));
    const settled = await subject.one({ ...settleOf(hold, 5), facts: { ...hold.facts, prices: FREE } });
    expect(settled).toEqual({ outcome: "charged", charged: 0n, shortfall: 0n, available: 0n });
    await subject.expectSound("org_playground");
  });

  test("a released hold returns its credits", async () => {
    const organizationId = await subject.organization(100n);
    const hold = await subject.held(holdOf(organizationId, 60n));
    const release = releaseOf(hold);
    expect(await subject.one(release)).toEqual({ outcome: "released", available: 100n });
    expect(await subject.one(release)).toEqual({ outcome: "released", available: 100n });
    expect(await subject.one(hold)).toEqual({ outcome: "ended", state: "released" });
    expect(await subject.one(settleOf(hold, 10))).toEqual({ outcome: "released" });
    expect(await subject.events(organizationId)).toEqual([]);
    await subject.expectSound(organizationId);
  });

  test("a repeated hold is held once", async () => {
    const organizationId = await subject.organization(100n);
    const hold = holdOf(organizationId, 60n);
    expect(await subject.one(hold)).toEqual({ outcome: "held", amount: 60n, available: 40n });
    expect(await subject.one(hold)).toEqual({ outcome: "held", amount: 60n, available: 40n });
    await subject.expectSound(organizationId);
  });

  test("every transition reports an unknown organization", async () => {
    const hold = holdOf("org_absent", 1n);
    const reference = referenceOf(hold);
    const transitions: Transition[] = [
      hold,
      settleOf(holdOf("org_absent", 1n), 1),
      renewOf(holdOf("org_absent", 1n)),
      releaseOf(holdOf("org_absent", 1n)),
      { kind: "expire", ...reference, holdId: "c" },
      grantOf("org_absent", 1n),
      { kind: "refresh", organizationId: "org_absent" },
    ];
    const outcomes = await subject.books.apply("durable", transitions);
    expect(outcomes).toEqual(transitions.map(() => ({ outcome: "unknown_organization" })));
  });
}

function missingCases(subject: Subject): void {
  test("a transition on an unknown hold reports that", async () => {
    const hold = holdOf(await subject.organization(1n), 1n);
    expect(await subject.one({ kind: "expire", ...referenceOf(hold) })).toEqual({ outcome: "missing" });
  });

  test("a release that arrives before its hold refuses the hold", async () => {
    const organizationId = await subject.organization(10n);
    const hold = holdOf(organizationId, 5n);
    expect(await subject.one(releaseOf(hold))).toEqual({ outcome: "released", available: 10n });
    expect(await subject.one(hold)).toEqual({ outcome: "ended", state: "released" });
    expect(await subject.one(renewOf(hold))).toEqual({ outcome: "ended", state: "released" });
    expect(await subject.one(settleOf(hold, 3))).toEqual({ outcome: "released" });
    await subject.expectSound(organizationId);
  });
}

function retryCases(subject: Subject): void {
  test("a broken attempt is credited to a retry within 120 seconds", async () => {
    for (const agoMs of [110_000, 121_000]) {
      const organizationId = await subject.organization(100n);
      const intent = { callerId: "tok_1", fingerprint: "f" };
      const broken = await subject.held(holdOf(organizationId, 9n));
      const breaks = { ...settleOf(broken, 3), end: "upstream_failed" as const };
      await subject.one({ ...breaks, facts: { ...broken.facts, intent } });
      await subject.write(
        `update broken_attempt set expires_at = expires_at - ${agoMs} where organization_id = '${organizationId}'`,
      );
      const hold = holdOf(organizationId, 9n);
      const retry = await subject.held({ ...hold, facts: { ...hold.facts, intent } });
      const charged = agoMs < 120_000 ? 5n : 8n;
      expect(await subject.one(settleOf(retry, 8))).toMatchObject({ outcome: "charged", charged });
      await subject.write(`delete from broken_attempt where organization_id = '${organizationId}'`);
      await subject.expectSound(organizationId);
    }
  });
}

function settleCases(subject: Subject): void {
  test("a settlement charges its cost and returns the rest, once", async () => {
    const organizationId = await subject.organization(100n);
    const hold = await subject.held(holdOf(organizationId, 60n));
    const charged = { outcome: "charged", charged: 45n, shortfall: 0n, available: 55n };
    expect(await subject.one(settleOf(hold, 45))).toEqual(charged);
    expect(await subject.one(settleOf(hold, 45))).toEqual(charged);
    expect(await subject.one(releaseOf(hold))).toEqual({ outcome: "charged" });
    expect(await subject.one({ kind: "expire", ...referenceOf(hold) })).toEqual({ outcome: "kept", state: "charged" });
    const renewed = await subject.one(renewOf(hold));
    expect(renewed).toEqual({ outcome: "ended", state: "charged" });
    expect(await subject.events(organizationId)).toMatchObject([{ sequence: 0, cost: 45n, shortfall: 0n }]);
    await subject.expectSound(organizationId);
  });

  test("a cost above the hold draws on available credits and is never refused", async () => {
    const organizationId = await subject.organization(100n);
    const hold = await subject.held(holdOf(organizationId, 10n));
    const settled = await subject.one(settleOf(hold, 130));
    expect(settled).toEqual({ outcome: "charged", charged: 100n, shortfall: 30n, available: 0n });
    expect(await subject.events(organizationId)).toMatchObject([{ cost: 100n, shortfall: 30n }]);
    await subject.expectSound(organizationId);
  });

  test("a lost hold is still charged", async () => {
    const organizationId = await subject.organization(100n);
    const settled = await subject.one(settleOf(holdOf(organizationId, 10n), 10));
    expect(settled).toEqual({ outcome: "charged", charged: 10n, shortfall: 0n, available: 90n });
    await subject.expectSound(organizationId);
  });

  test("an event contains all facts of its request", async () => {
    const organizationId = await subject.organization(1_000n);
    const metadata = { plain: "text", "NUL \0": "lone \ud800 surrogate", emoji: "👩‍👧", quote: "'\"" };
    const admitted = holdOf(organizationId, 100n);
    const hold = await subject.held({ ...admitted, facts: { ...admitted.facts, metadata } });
    const facts = {
      ...hold.facts,
      upstream: "other/route",
      prices: {
        ...{ input: 1n, cachedInput: 2n, cacheWrite: 3n, output: 4_000_000n, reasoning: 5_000_000n },
        ...{ outputAudio: 9_000_000n, searches: 2n ** 53n + 1n },
        tier: { from: "2027-01-01", serviceTier: "flex \0", abovePromptTokens: 10, promptTokensMax: 2 ** 53 },
      },
    };
    const classes = { input: 11, cachedInput: 12, cacheWrite: 13, output: 14, reasoning: 15 };
    const tokens = { ...classes, cacheWrite1h: 13, outputAudio: 2, searches: 3 };
    await subject.one({ kind: "settle", facts, tokens, basis: "counted", end: "client_disconnected" });
    const [event] = await subject.events(organizationId);
    expect(event).toMatchObject({
      ...facts,
      tokens,
      cost: 1_000n,
      basis: "counted",
      end: "client_disconnected",
      sequence: 0,
    });
    const price = priceOf(tokens, facts.prices);
    expect(event?.shortfall).toBe(price - 1_000n);
    expect(Math.abs((event?.chargedAtMs ?? 0) - Date.now())).toBeLessThan(60_000);
  });
}

function expiryCases(subject: Subject): void {
  test("an expiry ends only a hold past its expiry, and charges the delivered part", async () => {
    const organizationId = await subject.organization(100n);
    const alive = await subject.held(holdOf(organizationId, 10n));
    const overdue = await subject.held(holdOf(organizationId, 10n, -1_000));
    expect(await subject.one({ kind: "expire", ...referenceOf(alive) })).toEqual({ outcome: "kept", state: "open" });
    const expired = { outcome: "expired", charged: 0n };
    expect(await subject.one({ kind: "expire", ...referenceOf(overdue) })).toMatchObject(expired);
    expect(await subject.one({ kind: "expire", ...referenceOf(overdue) })).toMatchObject(expired);
    expect(await subject.one(releaseOf(overdue))).toEqual({ outcome: "recovered" });
    expect(await subject.one(overdue)).toEqual({ outcome: "ended", state: "recovered" });
    expect(await subject.books.balance(organizationId)).toMatchObject({ available: 90n, held: 10n });
    expect(await subject.events(organizationId)).toMatchObject([{ sequence: 0, cost: 0n, end: "recovered" }]);
    await subject.expectSound(organizationId);
  });

  test("a renewal keeps a hold from expiring", async () => {
    const organizationId = await subject.organization(100n);
    const hold = await subject.held(holdOf(organizationId, 10n, -1_000));
    expect(await subject.one(renewOf(hold))).toEqual({ outcome: "renewed", remade: false });
    expect(await subject.one({ kind: "expire", ...referenceOf(hold) })).toEqual({ outcome: "kept", state: "open" });
  });

  test("a settlement after the expiry adds the difference as event 1", async () => {
    const organizationId = await subject.organization(100n);
    const hold = await subject.held(holdOf(organizationId, 10n, -1_000));
    await subject.one({ kind: "expire", ...referenceOf(hold) });
    const charged = { outcome: "charged", charged: 30n, shortfall: 0n, available: 70n };
    expect(await subject.one(settleOf(hold, 30))).toEqual(charged);
    expect(await subject.one(settleOf(hold, 30))).toEqual(charged);
    const events = await subject.events(organizationId);
    expect(events.map(({ sequence, cost, end }) => [sequence, cost, end]).sort()).toEqual([
      [0, 0n, "recovered"],
      [1, 30n, "complete"],
    ]);
    await subject.expectSound(organizationId);
  });
}

function grantCases(subject: Subject): void {
  test("the same reference or id grants once per organization", async () => {
    const organizationId = await subject.organization();
    const grant = grantOf(organizationId, 50n, { reference: "invoice 7 'x'" });
    expect(await subject.one(grant)).toMatchObject({ outcome: "granted", grantId: grant.grantId, repeated: false });
    const again = { ...grant, grantId: randomId("grant") };
    expect(await subject.one(again)).toMatchObject({ grantId: grant.grantId, repeated: true });
    const first = { id: grant.grantId, amount: 50n, expiresAtMs: null, priority: grant.priority };
    for (const other of [{ amount: 70n }, { expiresAtMs: Date.now() + HOUR_MS }, { priority: 1 }]) {
      const refused = await subject.one({ ...again, ...other });
      expect(refused).toMatchObject({ outcome: "reference_mismatch", first });
    }
    expect(await subject.one({ ...grant, reference: null })).toMatchObject({ repeated: true });
    expect((await subject.books.balance(organizationId))?.granted).toBe(50n);
    const other = grantOf(await subject.organization(), 50n, { reference: grant.reference });
    expect(await subject.one(other)).toMatchObject({ repeated: false });
  });

  test("a used-up grant is still found by its reference and its id", async () => {
    const organizationId = await subject.organization();
    const grant = grantOf(organizationId, 50n, { reference: "once" });
    await subject.one(grant);
    await subject.one(settleOf(holdOf(organizationId, 50n), 50));
    expect(await subject.one(grant)).toMatchObject({ repeated: true });
    expect(await subject.one({ ...grant, grantId: randomId("grant") })).toMatchObject({ repeated: true });
    expect(await subject.books.balance(organizationId)).toMatchObject({ granted: 50n, available: 0n, spent: 50n });
    await subject.expectSound(organizationId);
  });

  test("a grant takes effect and expires at its dates; credits returned later have expired", async () => {
    const organizationId = await subject.organization();
    const nowMs = Date.now();
    const [effectiveAtMs, expiresAtMs] = [nowMs + HOUR_MS / 2, nowMs + (3 * HOUR_MS) / 2];
    await subject.one(grantOf(organizationId, 40n, { effectiveAtMs, expiresAtMs }));
    expect(await subject.books.balance(organizationId)).toMatchObject({ granted: 0n, nextChangeAtMs: effectiveAtMs });
    expect(await subject.one(holdOf(organizationId, 10n))).toMatchObject({ outcome: "insufficient", available: 0n });
    await subject.passHour(organizationId);
    const hold = await subject.held(holdOf(organizationId, 10n));
    await subject.passHour(organizationId);
    const refreshed = await subject.one({ kind: "refresh", organizationId });
    expect(refreshed).toMatchObject({ balance: { granted: 40n, available: 0n, held: 10n, expired: 30n } });
    await subject.one(settleOf(hold, 4));
    expect(await subject.books.balance(organizationId)).toMatchObject({ held: 0n, spent: 4n, expired: 36n });
    await subject.expectSound(organizationId);
  });

  test("holds draw on several grants, in their order, and return to the same", async () => {
    const organizationId = await subject.organization();
    const later = grantOf(organizationId, 50n, { priority: 2 });
    const first = grantOf(organizationId, 30n, { priority: 1 });
    await subject.books.apply("durable", [later, first]);
    const hold = await subject.held(holdOf(organizationId, 60n));
    await subject.one(settleOf(hold, 20));
    const grants = (await subject.statement(organizationId)).flatMap((row) =>
      row.kind === "grant" ? [row.grant] : [],
    );
    expect(Object.fromEntries(grants.map(({ id, remaining }) => [id, remaining]))).toEqual({
      [later.grantId]: 50n,
      [first.grantId]: 10n,
    });
    await subject.expectSound(organizationId);
  });
}

function batchCases(subject: Subject): void {
  test("a batch over several organizations is booked in order, with an outcome for each", async () => {
    const [poor, rich] = [await subject.organization(10n), await subject.organization(100n)];
    const batch = [holdOf(rich, 60n), holdOf(poor, 20n), holdOf(poor, 10n), holdOf(rich, 60n), holdOf(rich, 40n)];
    const outcomes = await subject.books.apply("holds", batch);
    expect(outcomes.map(({ outcome }) => outcome)).toEqual(["held", "insufficient", "held", "busy", "held"]);
    await subject.expectSound(poor);
    await subject.expectSound(rich);
  });

  test("a batch is booked as a whole or not at all", async () => {
    const organizationId = await subject.organization(100n);
    const good = holdOf(organizationId, 10n);
    const batch = [good, grantOf(organizationId, -1n)];
    await expect(subject.books.apply("durable", batch)).rejects.not.toBeInstanceOf(StoreUnavailableError);
    expect(await subject.one({ kind: "expire", ...referenceOf(good) })).toEqual({ outcome: "missing" });
    expect(await subject.books.balance(organizationId)).toMatchObject({ available: 100n, held: 0n });
    await subject.expectSound(organizationId);
  });

  test("an empty batch is booked", async () => {
    expect(await subject.books.apply("holds", [])).toEqual([]);
  });

  test("a batch of a thousand is booked", async () => {
    const organizationId = await subject.organization(1_000n);
    const holds = Array.from({ length: 1_000 }, () => holdOf(organizationId, 1n));
    const held = await subject.books.apply("holds", holds);
    expect(held.every(({ outcome }) => outcome === "held")).toBe(true);
    const settled = await subject.books.apply(
      "durable",
      holds.map((hold) => settleOf(hold, 1)),
    );
    expect(settled.every(({ outcome }) => outcome === "charged")).toBe(true);
    expect(await subject.books.balance(organizationId)).toMatchObject({ available: 0n, held: 0n, spent: 1_000n });
    expect(await subject.books.verify(organizationId)).toMatchObject({ holds: 1_000, events: 1_000, violations: [] });
  });
}

function exactCases(subject: Subject): void {
  test.each([2n ** 53n - 1n, 2n ** 53n + 1n, 9_000_000_000_000_001n, 2n ** 62n + 1n])(
    "%i micro-credits are stored exactly",
    async (amount) => {
      const organizationId = await subject.organization(amount);
      const hold = await subject.held(holdOf(organizationId, amount - 1n));
      expect(await subject.books.balance(organizationId)).toMatchObject({ available: 1n, held: amount - 1n });
      // A million tokens at a price of N pico-credits cost N micro-credits.
      const facts = { ...hold.facts, prices: { ...PRICES, output: amount - 1n } };
      const settled = await subject.one({ ...settleOf(hold, 1_000_000), facts });
      expect(settled).toEqual({ outcome: "charged", charged: amount - 1n, shortfall: 0n, available: 1n });
      expect((await subject.events(organizationId)).map(({ cost }) => cost)).toEqual([amount - 1n]);
      expect(await subject.books.balance(organizationId)).toMatchObject({ available: 1n, spent: amount - 1n });
      await subject.expectSound(organizationId);
    },
  );

  test("unit prices up to the largest signed 64-bit integer are stored exactly", async () => {
    const organizationId = await subject.organization(1n);
    const hold = holdOf(organizationId, 1n);
    const prices = { ...PRICES, cachedInput: 2n ** 63n - 1n, cacheWrite: 2n ** 53n + 1n };
    await subject.one({ ...settleOf(hold, 1), facts: { ...hold.facts, prices } });
    expect((await subject.events(organizationId))[0]?.prices).toEqual(prices);
  });
}
