import fc from "fast-check";
import { v7 } from "uuid";
import { expect, test } from "vitest";
import { type ClosingRow, ClosingTally } from "../../src/credits/closing.ts";
import { isBookedLate } from "../../src/credits/request-id.ts";
import { countOf, seedOfRun, timeoutOf } from "../support/counts.ts";
import { factsOf, grantOf, holdOf, releaseOf, type Subject, settleOf } from "./fixture.ts";

const DAY_MS = 86_400_000;
export const startOf = (month: number) => Date.UTC(2024, month, 1);
const RUNS = countOf("closings");
const CREDITS = 1_000_000n;

/** A request of a month, by the times in it at which it began and ended. */
interface Past {
  day: number;
  /** Days until it was booked, and until its adjustment. */
  days: [number, number];
  kind: "charged" | "released" | "recovered" | "late" | "credited";
  output: number;
  isCapped: boolean;
}

const past: fc.Arbitrary<Past> = fc.record({
  day: fc.integer({ min: 0, max: 27 }),
  days: fc.tuple(fc.constantFrom(0, 0, 0.5, 3, 40), fc.constantFrom(0, 3, 40)),
  kind: fc.constantFrom("charged", "charged", "released", "recovered", "late", "credited"),
  output: fc.integer({ min: 0, max: 9 }),
  isCapped: fc.boolean(),
});
/** Requests of consecutive months; after each, how a closing goes: up to this month or the one before, and how far it gets. */
const months = fc.array(
  fc.record({
    requests: fc.array(past, { maxLength: 7 }),
    closes: fc.constantFrom(0, 1, null),
    /** Chunks after which the closing process dies; at each chunk. */
    dies: fc.option(fc.integer({ min: 0, max: 6 })),
  }),
  { minLength: 3, maxLength: 5 },
);

/** Books a request and moves its rows to its times. */
export async function book(
  subject: Subject,
  { organizationId, tokenId }: Owner,
  month: number,
  request: Past,
): Promise<void> {
  const { day, days, kind, output, isCapped } = request;
  const beganMs = startOf(month) + day * DAY_MS;
  const endedMs = beganMs + days[0] * DAY_MS;
  const adjustedMs = endedMs + days[1] * DAY_MS;
  const holdId = v7({ msecs: beganMs });
  const isLost = kind === "recovered" || kind === "late";
  const asked = holdOf(organizationId, 20n, isLost ? -1_000 : 60_000);
  const own = isCapped && { tokenId };
  const hold = { ...asked, ...(isCapped && { callerId: tokenId }), facts: factsOf(organizationId, { holdId, ...own }) };
  await subject.held(hold);
  if (isLost) await subject.one({ kind: "expire", organizationId, holdId });
  if (kind === "released") await subject.one(releaseOf(hold));
  else if (kind !== "recovered") await subject.one(settleOf(hold, output));
  if (kind === "credited" && output > 0) {
    const terms = { expiresAtMs: null, reference: null, note: null, priority: 0 };
    const credit = { organizationId, adjustmentId: `credit_${holdId}`, amount: 1n, holdId, ...terms } as const;
    expect(await subject.one({ kind: "credit", ...credit })).toMatchObject({ outcome: "credited" });
  }
  const of = `where organization_id = '${organizationId}'`;
  const late = isBookedLate(holdId, endedMs) ? 1 : 0;
  await subject.write(
    `update request set made_at = ${beganMs}, ended_at = ${endedMs}, is_late = ${late} ${of} and id = '${holdId}'`,
  );
  await subject.write(`update adjustment set made_at = ${adjustedMs} ${of} and hold_id = '${holdId}'`);
  await subject.write(
    `update credit_grant set created_at = ${adjustedMs}, effective_at = ${adjustedMs} ${of} and id = 'credit_${holdId}'`,
  );
}

export interface Owner {
  organizationId: string;
  tokenId: string;
}

export async function owner(subject: Subject): Promise<Owner> {
  const organizationId = await subject.organization();
  const tokenId = await subject.cappedToken(organizationId, 100_000n);
  await subject.one(grantOf(organizationId, CREDITS));
  await subject.write(`update credit_grant set created_at = 1 where organization_id = '${organizationId}'`);
  return { organizationId, tokenId };
}

const SUM_ROWS = 3;

/** Closes and removes requests in as many steps as `chunks`, a few rows in each. Returns true at the end. */
export async function close({ store }: Subject, { organizationId }: Owner, beforeMs: number, chunks: number) {
  const { closings } = store;
  let left = chunks;
  const isDead = () => {
    left -= 1;
    return left < 0;
  };
  const remove = async (closing: ClosingRow) => {
    for (let after: string | undefined = ""; after !== undefined; ) {
      if (isDead()) return false;
      after = await closings.remove(closing, after, 2);
    }
    return true;
  };
  const earlier = await closings.find(organizationId);
  // Rows of an earlier closing are sometimes there, and sometimes removed.
  if (earlier !== undefined && chunks % 2 === 0 && !(await remove(earlier))) return false;
  if (earlier !== undefined && earlier.beforeAtMs >= beforeMs) return remove(earlier);
  if (isDead() || !(await closings.freeze(organizationId, beforeMs))) return false;
  const tally = new ClosingTally(organizationId, beforeMs, earlier, await closings.budgets(organizationId));
  do {
    if (isDead()) return false;
  } while (!(await closings.sum(tally, SUM_ROWS)));
  if (!(await closings.close(tally))) return false;
  return remove(tally.total());
}

/** Reads the credits of an organization and its token, without the time before which requests are closed. */
export async function creditsOf({ books, ...subject }: Pick<Subject, "books" | "read">, { organizationId }: Owner) {
  const { closedBeforeMs: _, organizationId: __, ...balance } = (await books.balance(organizationId)) ?? {};
  const capped = await subject.read(`select held, spent from budget_use where organization_id = '${organizationId}'`);
  return { balance, capped };
}

/** The statement from a time on: the opening balance, and the times and amounts of its entries. */
export async function statementFrom({ books }: Subject, { organizationId }: Owner, fromMs: number) {
  const start = await books.statementStart(organizationId, fromMs);
  const entries = await books.statement(organizationId, { after: null, fromMs: start.fromMs ?? 0, limit: 1_000 });
  const places = entries.map(({ atMs, kind, amount }) => `${atMs} ${kind} ${amount}`).sort();
  return { opening: start.opening, places };
}

async function closedBefore({ store }: Subject, { organizationId }: Owner): Promise<number> {
  return (await store.closings.find(organizationId))?.beforeAtMs ?? 0;
}

async function expectSame(subject: Subject, closing: Owner, open: Owner, probes: readonly number[]): Promise<void> {
  const parts = { books: subject.books, read: (text: string) => subject.read(text) };
  expect(await creditsOf(parts, closing)).toEqual(await creditsOf(parts, open));
  const closedMs = await closedBefore(subject, closing);
  for (const probe of probes) {
    const fromMs = Math.max(probe, closedMs);
    expect(await statementFrom(subject, closing, fromMs)).toEqual(await statementFrom(subject, open, fromMs));
  }
  await subject.expectSound(closing.organizationId);
}

export function closingCases(subject: Subject): void {
  historyCase(subject);
  raceCase(subject);
  refusalCase(subject);
  stepCases(subject);
  violationCases(subject);
}

function historyCase(subject: Subject): void {
  test(
    "credits, statements and verification are the same with and without closings that die anywhere",
    async () => {
      const property = fc.asyncProperty(months, async (history) => {
        const [closing, open] = [await owner(subject), await owner(subject)];
        const probes = history.flatMap((_, month) => [
          startOf(month),
          startOf(month) + 9.5 * DAY_MS,
          startOf(month + 2),
        ]);
        let asked = 0;
        for (const [month, { requests, closes, dies }] of history.entries()) {
          for (const request of requests) {
            await book(subject, closing, month, request);
            await book(subject, open, month, request);
          }
          if (closes === null) continue;
          asked = startOf(month + closes);
          await close(subject, closing, asked, dies ?? Number.POSITIVE_INFINITY);
          await expectSame(subject, closing, open, probes);
          if (dies === null) await subject.books.recordBalance(closing.organizationId, startOf(month + 1));
        }
        if (asked === 0) return;
        expect(await close(subject, closing, asked, Number.POSITIVE_INFINITY)).toBe(true);
        await expectSame(subject, closing, open, probes);
        const of = `where organization_id = '${closing.organizationId}'`;
        const left = await subject.read(`select id, ended_at from request ${of}`);
        const closedMs = await closedBefore(subject, closing);
        // Rows that are left began later, or were booked or corrected later.
        const adjusted = await subject.read(`select hold_id from adjustment ${of} and made_at >= ${closedMs}`);
        const later = new Set(adjusted.map(({ hold_id }) => hold_id));
        const isDue = ({ id, ended_at }: Record<string, unknown>) =>
          String(id) < v7({ msecs: closedMs }).slice(0, 13) && Number(ended_at) < closedMs && !later.has(id);
        expect(left.filter(isDue)).toEqual([]);
      });
      await fc.assert(property, { numRuns: RUNS, seed: seedOfRun(), endOnFailure: true });
    },
    timeoutOf("closings"),
  );
}

function raceCase(subject: Subject): void {
  test("a late settlement that races a closing is booked before it, or refused", async () => {
    const another = await subject.openAnother();
    const outcomes = new Set<string>();
    for (let round = 0; round < 12; round += 1) {
      const { organizationId } = await owner(subject);
      const holdId = v7({ msecs: startOf(0) + DAY_MS });
      const hold = { ...holdOf(organizationId, 20n, -1_000), facts: factsOf(organizationId, { holdId }) };
      await subject.held(hold);
      await subject.one({ kind: "expire", organizationId, holdId });
      const of = `where organization_id = '${organizationId}'`;
      const endedMs = startOf(0) + DAY_MS;
      await subject.write(`update request set made_at = ${endedMs}, ended_at = ${endedMs}, is_late = 0 ${of}`);
      // Sometimes one begins first, sometimes the other.
      const settles = async () => subject.one(settleOf(hold, 7));
      const closes = async () =>
        close({ ...subject, store: another } as Subject, { organizationId, tokenId: "" }, startOf(1), 99);
      const [settled] =
        round % 2 === 0
          ? await Promise.all([settles(), closes()])
          : (await Promise.all([closes(), settles()])).reverse();
      const { outcome } = settled as { outcome: string };
      outcomes.add(outcome);
      await subject.expectSound(organizationId);
      const spent = (await subject.books.balance(organizationId))?.spent;
      expect([outcome, spent]).toEqual(outcome === "closed" ? ["closed", 0n] : [outcome, 7n]);
      const [rows] = await subject.read(`select count(*) as count from request ${of}`);
      const closing = await subject.store.closings.find(organizationId);
      // A booking after the time is open until a later closing.
      expect([Number(rows?.count), closing?.requests]).toEqual(outcome === "closed" ? [0, 1] : [1, 0]);
    }
  });
}

function refusalCase(subject: Subject): void {
  test("nothing is booked for a closed request", async () => {
    const closing = await owner(subject);
    const { organizationId } = closing;
    for (const kind of ["charged", "recovered", "released"] as const) {
      await book(subject, closing, 0, { day: 3, days: [0, 0], kind, output: 5, isCapped: true });
    }
    const rows = await subject.read(`select id from request where organization_id = '${organizationId}'`);
    expect(await close(subject, closing, startOf(1), 2)).toBe(false);
    const before = await subject.books.balance(organizationId);
    const unknown = v7({ msecs: startOf(0) });
    for (const isRemoved of [false, true]) {
      if (isRemoved) expect(await close(subject, closing, startOf(1), Number.POSITIVE_INFINITY)).toBe(true);
      for (const holdId of [...rows.map(({ id }) => String(id)), unknown]) {
        const hold = { ...holdOf(organizationId, 5n), facts: factsOf(organizationId, { holdId }) };
        const closed = { outcome: "closed", beforeMs: startOf(1) };
        expect(await subject.one(settleOf(hold, 7))).toEqual(closed);
        expect(await subject.one(releaseOf(hold))).toEqual(closed);
        const terms = { expiresAtMs: null, reference: null, note: null, priority: 0 };
        const credit = { organizationId, adjustmentId: "credit_late", amount: 1n, holdId, ...terms } as const;
        expect(await subject.one({ kind: "credit", ...credit })).toEqual(closed);
        await expect(subject.one(hold)).rejects.toThrow("closed period");
      }
      expect(await subject.books.balance(organizationId)).toEqual(before);
      await subject.expectSound(organizationId);
    }
    const kept = await subject.read(`select id from request where organization_id = '${organizationId}'`);
    expect(kept).toEqual([]);
  });
}

function stepCases(subject: Subject): void {
  test("a month with a running request is not closed", async () => {
    const closing = await owner(subject);
    const { organizationId } = closing;
    const facts = factsOf(organizationId, { holdId: v7({ msecs: startOf(0) }) });
    const hold = await subject.held({ ...holdOf(organizationId, 5n), facts });
    expect(await subject.store.closings.freeze(organizationId, startOf(1))).toBe(false);
    expect(await subject.one(settleOf(hold, 5))).toMatchObject({ outcome: "charged", charged: 5n });
    expect(await subject.store.closings.freeze(organizationId, startOf(1))).toBe(true);
    expect((await subject.books.balance(organizationId))?.closedBeforeMs).toBe(startOf(1));
  });

  test("no time in the future is closed, because new requests would be refused until then", async () => {
    const { organizationId } = await owner(subject);
    expect(await subject.store.closings.freeze(organizationId, Date.now() + DAY_MS)).toBe(false);
    expect((await subject.books.balance(organizationId))?.closedBeforeMs).toBeNull();
  });

  test("of processes that close at once, one stores its sum", async () => {
    const closing = await owner(subject);
    const { organizationId } = closing;
    await book(subject, closing, 0, { day: 3, days: [0, 0], kind: "charged", output: 5, isCapped: true });
    const another = await subject.openAnother();
    const sums = [subject.store, another].map(async ({ closings }) => {
      expect(await closings.freeze(organizationId, startOf(1))).toBe(true);
      const tally = new ClosingTally(organizationId, startOf(1), undefined, await closings.budgets(organizationId));
      expect(await closings.sum(tally)).toBe(true);
      return () => closings.close(tally);
    });
    const stored = await Promise.all((await Promise.all(sums)).map((store) => store()));
    expect(stored.sort()).toEqual([false, true]);
    expect(await subject.store.closings.find(organizationId)).toMatchObject({ requests: 1, cost: 5n, price: 5n });
    await subject.expectSound(organizationId);
  });

  test("a removal passes over requests that stay, and ends at the end of its chunk", async () => {
    const closing = await owner(subject);
    const { organizationId } = closing;
    const plain: Past = { day: 1, days: [0, 0], kind: "charged", output: 5, isCapped: false };
    // The first two are credited and booked after the month.
    await book(subject, closing, 0, { ...plain, days: [0, 40], kind: "credited" });
    await book(subject, closing, 0, { ...plain, day: 2, days: [40, 0] });
    for (const day of [3, 4, 5]) await book(subject, closing, 0, { ...plain, day });
    const ids = async () => {
      const rows = await subject.read(`select id from request where organization_id = '${organizationId}' order by id`);
      return rows.map(({ id }) => id);
    };
    const all = await ids();
    const { closings } = subject.store;
    expect(await closings.freeze(organizationId, startOf(1))).toBe(true);
    const tally = new ClosingTally(organizationId, startOf(1), undefined, await closings.budgets(organizationId));
    expect(await closings.sum(tally)).toBe(true);
    expect(await closings.close(tally)).toBe(true);
    const remove = (after: unknown, limit: number) => closings.remove(tally.total(), String(after), limit);
    expect([await remove("", 1), await ids()]).toEqual([all[0], all]);
    expect([await remove(all[0], 2), await ids()]).toEqual([all[2], [...all.slice(0, 2), ...all.slice(3)]]);
    expect([await remove(all[2], 3), await ids()]).toEqual([undefined, all.slice(0, 2)]);
    await subject.expectSound(organizationId);
  });

  test("a request that violates an invariant is not closed", async () => {
    const closing = await owner(subject);
    const { organizationId } = closing;
    await book(subject, closing, 0, { day: 3, days: [0, 0], kind: "charged", output: 5, isCapped: false });
    await subject.tamper(`update request set output_tokens = 6 where organization_id = '${organizationId}'`);
    await expect(close(subject, closing, startOf(1), 9)).rejects.toThrow("violates an invariant");
    expect(await subject.store.closings.find(organizationId)).toBeUndefined();
  });
}

function violationCases(subject: Subject): void {
  test.each([
    [3, "update closing set cost = cost + 1, price = price + 1"],
    [4, "update closing set price = price + 1"],
    [3, "update closing_part set amount = amount + 1 where dimension = 'token' and"],
    [1, "update closing_part set amount = amount + 1 where dimension = 'grant' and"],
    [3, "delete from closing_part where dimension = 'token' and"],
    [3, "update statement_balance set balance = balance + 1"],
    [3, "delete from statement_balance"],
    [9, "update balance set closed_before = null"],
    [3, "delete from closing"],
  ])("invariant %i is violated after: %s", async (invariant, statement) => {
    const closing = await owner(subject);
    const { organizationId } = closing;
    await book(subject, closing, 0, { day: 3, days: [0, 0], kind: "charged", output: 5, isCapped: true });
    expect(await close(subject, closing, startOf(1), Number.POSITIVE_INFINITY)).toBe(true);
    await subject.expectSound(organizationId);
    const where = statement.endsWith("and") ? "" : "where";
    await subject.tamper(`${statement} ${where} organization_id = '${organizationId}'`);
    const { violations } = await subject.books.verify(organizationId);
    expect(violations).toContainEqual(expect.objectContaining({ invariant, organizationId }));
  });
}
