import { expect, test, vi } from "vitest";
import type { Transition } from "../../src/credits/books.ts";
import type { Owners, SeenHold } from "../../src/stores/queries/books.ts";
import { grantOf, holdOf, referenceOf, releaseOf, type Subject, settleOf } from "./fixture.ts";

export function readCases(subject: Subject): void {
  test("ping resolves", async () => {
    await expect(subject.store.ping()).resolves.toBeUndefined();
  });

  recoverableHoldCases(subject);

  observationCases(subject);

  test("a statement contains each grant and event once, oldest first, for any page size", async () => {
    const organizationId = await subject.organization(1_000n);
    for (let i = 0; i < 6; i += 1) {
      const [first, second] = [holdOf(organizationId, 5n), holdOf(organizationId, 5n, -1_000)];
      await subject.books.apply("holds", [first, second]);
      const batch: Transition[] = [settleOf(first, i), { kind: "expire", ...referenceOf(second) }];
      await subject.books.apply("durable", [...batch, grantOf(organizationId, 10n)]);
      await subject.one(settleOf(second, 2));
    }
    const whole = await subject.statement(organizationId);
    expect(whole).toHaveLength(1 + 6 * 4);
    expect(new Set(whole.map(({ position }) => position)).size).toBe(whole.length);
    expect(whole.map(({ atMs }) => atMs)).toEqual(whole.map(({ atMs }) => atMs).sort((a, b) => a - b));
    const spent = whole.reduce((sum, entry) => sum + (entry.kind === "charge" ? entry.event.cost : 0n), 0n);
    expect((await subject.books.balance(organizationId))?.spent).toBe(spent);
    for (const limit of [1, 2, 3, 7, whole.length]) {
      expect(await subject.statement(organizationId, limit)).toEqual(whole);
    }
  });

  test("a statement contains one organization only, and is empty for an unknown one", async () => {
    const organizationId = await subject.organization(1n);
    expect(await subject.statement(organizationId)).toMatchObject([{ kind: "grant", grant: { organizationId } }]);
    expect(await subject.statement("org_absent")).toEqual([]);
  });

  test("an invalid position in a statement is refused", async () => {
    const page = { after: "1 or 1=1", limit: 1 };
    await expect(subject.books.statement("org_absent", page)).rejects.toMatchObject({
      code: "invalid_value",
      param: "cursor",
    });
  });
}

/** The reads of the metrics. */
function observationCases(subject: Subject): void {
  test("open holds are counted, with the earliest expiry", async () => {
    const before = await subject.books.openHolds();
    const organizationId = await subject.organization(100n);
    const [early, late] = [holdOf(organizationId, 1n, -86_400_000), holdOf(organizationId, 1n, 60_000)];
    await subject.books.apply("holds", [early, late]);
    const during = await subject.books.openHolds();
    expect(during.count).toBe(before.count + 2);
    expect(during.earliestExpiryMs).toBeLessThanOrEqual(-86_400_000);
    await subject.books.apply("durable", [releaseOf(early), releaseOf(late)]);
    expect((await subject.books.openHolds()).count).toBe(before.count);
  });

  test("every pool is listed with its size and its use", async () => {
    const pools = subject.store.pools();
    expect(pools.length).toBeGreaterThanOrEqual(1);
    expect(new Set(pools.map(({ name }) => name)).size).toBe(pools.length);
    for (const { max, used, idle, waiting } of pools) {
      expect(used + idle).toBeLessThanOrEqual(max);
      expect(Math.min(used, idle, waiting)).toBeGreaterThanOrEqual(0);
    }
    const reads = Array.from({ length: 30 }, () => subject.books.openHolds());
    await vi.waitFor(
      () => {
        const busy = subject.store.pools().reduce((sum, { used, waiting }) => sum + used + waiting, 0);
        expect(busy).toBeGreaterThanOrEqual(1);
      },
      { interval: 0 },
    );
    await Promise.all(reads);
  });
}

function recoverableHoldCases(subject: Subject): void {
  const LIFE_MS = 120_000;
  const EVERYBODY = { lifeMs: LIFE_MS, owners: { only: [] } };

  test("recoverable holds are the open ones whose expiry has passed or is too far ahead, in order and in pages", async () => {
    const organizationIds = [await subject.organization(100n), await subject.organization(100n)] as const;
    const lives = [60_000, -1_000, LIFE_MS + 60_000];
    const holds = Array.from({ length: 12 }, (_, i) =>
      holdOf(organizationIds[i % 2 === 0 ? 0 : 1], 1n, lives[i % lives.length]),
    );
    await subject.books.apply("holds", holds);
    const suspect = holds.filter(({ lifeMs }) => lifeMs !== 60_000);
    const [settled, released, ...waiting] = suspect;
    if (settled === undefined || released === undefined) throw new Error("too few holds");
    await subject.books.apply("durable", [settleOf(settled, 1), releaseOf(released)]);
    const seen: SeenHold[] = [];
    for (;;) {
      const afterHoldId: string | null = seen.at(-1)?.holdId ?? null;
      const page = await subject.books.recoverableHolds({ ...EVERYBODY, afterHoldId, limit: 3 });
      seen.push(...page.holds);
      if (page.holds.length < 3) break;
      expect(Math.abs(page.nowMs - Date.now())).toBeLessThan(LIFE_MS);
    }
    const own = seen.filter(({ organizationId }) => organizationIds.includes(organizationId));
    expect(own).toMatchObject(waiting.map((hold) => ({ ...referenceOf(hold), owner: hold.owner })));
    expect(seen.map(({ holdId }) => holdId)).toEqual(seen.map(({ holdId }) => holdId).sort());
  });

  test("all holds of a named owner, or of all but one, are recoverable", async () => {
    const organizationId = await subject.organization(100n);
    const [ended, running] = ["a", "b"].map((owner) => ({ ...holdOf(organizationId, 1n), owner: `owner_${owner}` }));
    if (ended === undefined || running === undefined) throw new Error("no holds");
    await subject.books.apply("holds", [ended, running]);
    const ownersOf = async (owners: Owners) => {
      const { holds } = await subject.books.recoverableHolds({
        lifeMs: LIFE_MS,
        owners,
        afterHoldId: null,
        limit: 500,
      });
      return holds.filter((hold) => hold.organizationId === organizationId).map(({ owner }) => owner);
    };
    expect(await ownersOf({ only: [] })).toEqual([]);
    expect(await ownersOf({ only: ["owner_a", "owner_c"] })).toEqual(["owner_a"]);
    expect(await ownersOf({ allBut: "owner_a" })).toEqual(["owner_b"]);
  });
}
