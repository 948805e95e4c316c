import { rmSync } from "node:fs";
import { mkdtemp } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import fc from "fast-check";
import { expect, test } from "vitest";
import type { HoldTransition } from "../../src/credits/books.ts";
import { openSqliteStore } from "../../src/stores/sqlite/sqlite.ts";
import { auditOf, budgetOf, grantOf, holdOf, one, randomId, releaseOf, settleOf } from "../stores/fixture.ts";
import { AHEAD_MS } from "./history-nodes.ts";

const DAY_MS = 86_400_000;
/** Tomorrow or later: the ids of holds have the machine's time, and no hold is made before the time in its id. */
const MIDNIGHT = (Math.floor(Date.now() / DAY_MS) + 2) * DAY_MS;
const AMOUNT = 30n;

const step = fc.record({
  node: fc.constantFrom(0, 1),
  passedMs: fc.integer({ min: 0, max: 2_000 }),
  amount: fc.bigInt({ min: 1n, max: 12n }),
  ending: fc.constantFrom("settle" as const, "release" as const, null),
});

test("A budget of a day is passed on neither of two nodes whose clocks differ by 5 s, and begins again within these 5 s of midnight.", async () => {
  const dataDir = await mkdtemp(join(tmpdir(), "tollgate-clocks-"));
  let nowMs = 0;
  const first = await openSqliteStore({ dataDir, role: "service", clock: () => nowMs });
  const second = await openSqliteStore({ dataDir, role: "command", clock: () => nowMs + AHEAD_MS });
  const nodes = [first, second];
  const play = async (steps: (typeof step extends fc.Arbitrary<infer Value> ? Value : never)[]) => {
    nowMs = MIDNIGHT - 15_000;
    const id = randomId("org");
    await first.accounts.insertOrganization({ id, name: "Clocks", kind: "standard", createdAtMs: nowMs });
    await one(first.books, grantOf(id, 1_000_000n), "durable");
    const budget = budgetOf(id, { amount: AMOUNT, createdAtMs: nowMs });
    await first.budgets.insertBudget(budget, auditOf(id, budget.id));
    /** Held and spent credits of each day, and the open holds with the day in which they count. */
    const used = new Map<number, bigint>();
    const open: { hold: HoldTransition; day: number }[] = [];
    for (const { node, passedMs, amount, ending } of steps) {
      nowMs += passedMs;
      const { books } = nodes[node] ?? first;
      const ended = ending === null ? undefined : open.shift();
      if (ended !== undefined) {
        await one(books, ending === "settle" ? settleOf(ended.hold, 1) : releaseOf(ended.hold), "durable");
        const returned = ended.hold.most - (ending === "settle" ? 1n : 0n);
        used.set(ended.day, (used.get(ended.day) ?? 0n) - returned);
      }
      const atMs = nowMs + (node === 0 ? 0 : AHEAD_MS);
      const day = atMs - (atMs % DAY_MS);
      // The day of the true time, but for the 5 s before midnight.
      if (day !== nowMs - (nowMs % DAY_MS)) expect(MIDNIGHT - nowMs).toBeLessThanOrEqual(AHEAD_MS);
      const hold = holdOf(id, amount);
      const { outcome } = await one(books, hold, "holds");
      const before = used.get(day) ?? 0n;
      expect(outcome === "held").toBe(before + amount <= AMOUNT);
      if (outcome !== "held") continue;
      used.set(day, before + amount);
      open.push({ hold, day });
    }
    for (const day of [MIDNIGHT - DAY_MS, MIDNIGHT]) {
      const [row] = await second.budgets.namedUses(id, [{ budgetId: budget.id, windowAtMs: day, value: "" }]);
      expect((row?.held ?? 0n) + (row?.spent ?? 0n)).toBe(used.get(day) ?? 0n);
    }
    // The organization and its grant were made without audit records.
    const { violations } = await first.books.verify(id);
    expect(violations.filter(({ invariant }) => invariant !== 12)).toEqual([]);
  };
  try {
    await fc.assert(fc.asyncProperty(fc.array(step, { minLength: 10, maxLength: 40, size: "max" }), play), {
      numRuns: 100,
    });
  } finally {
    await Promise.all(nodes.map((node) => node.close()));
    rmSync(dataDir, { recursive: true });
  }
}, 600_000);
