import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { CoinModel, comparable } from "../../test/support/coin-model.ts";
import { textOfUse, UNWARNED, usesIn } from "../../test/support/coins.ts";
import { countOf, timeoutOf } from "../../test/support/counts.ts";
import {
  type BudgetTarget,
  batchAt,
  budgetRows,
  callerOf,
  HistoryBudgets,
  histories,
  ORGANIZATION_IDS,
  type Step,
} from "../../test/support/histories.ts";
import { keyOf, MemoryBooks, type SeenRequest } from "../../test/support/memory-books.ts";
import { TOKEN_CLASSES } from "../api/price-classes.ts";
import type { BudgetUseRow, HoldState, IdempotencyKeyRow, Transition } from "./books.ts";
import type { Outcome } from "./outcomes.ts";

const RUNS = countOf("decisions");
const LONGEST_MS = timeoutOf("decisions");

const ARROWS: Record<HoldState | "none", HoldState[]> = {
  // A request whose hold was lost is charged; one that is released first refuses its hold.
  none: ["open", "charged", "released"],
  open: ["open", "charged", "released", "recovered"],
  recovered: ["recovered"],
  charged: ["charged"],
  released: ["released"],
};

function newBooks(): MemoryBooks {
  const books = new MemoryBooks();
  for (const organizationId of ORGANIZATION_IDS) {
    books.addOrganization(organizationId);
    for (const row of budgetRows(organizationId)) books.putBudget(row);
  }
  return books;
}

/**
 * Runs a history, and calls back with the transitions of each step when the clock is set and the budgets are changed, in the
 * books and in `others`.
 */
function replay(
  books: MemoryBooks,
  steps: Step[],
  play: (transitions: Transition[]) => void,
  others: BudgetTarget[] = [],
): void {
  const budgets = new HistoryBudgets(ORGANIZATION_IDS.flatMap(budgetRows));
  for (const step of steps) {
    books.nowMs += step.passedMs;
    const changes = step.changes.flatMap((change) => budgets.change(change, books.nowMs));
    for (const change of changes) for (const target of [books, ...others]) change(target);
    play(budgets.recorded(batchAt(step, books.nowMs), books.nowMs));
  }
}

const PASSING = new Set(["available", "balance", "repeated", "remade"]);
/** An outcome without what passes: what is available, and whether it was a repetition. */
function lastingPart(outcome: Outcome): unknown {
  return Object.fromEntries(Object.entries(outcome).filter(([name]) => !PASSING.has(name)));
}

function withoutNextChange(full: Outcome): unknown {
  const outcome = comparable(full);
  if (!("balance" in outcome)) return outcome;
  return { ...outcome, balance: { ...outcome.balance, nextChangeAtMs: null } };
}

/** Thousands of these in every history: an `expect` each would take most of the time. */
function must(isKept: boolean, invariant: string): void {
  if (!isKept) throw new Error(`broken: ${invariant}`);
}

function sumOf(amounts: bigint[]): bigint {
  return amounts.reduce((total, amount) => total + amount, 0n);
}

function checkInvariants(books: MemoryBooks): void {
  const { seen } = books;
  for (const { organizationId, granted, available, held, spent, expired, nextChangeAtMs } of books.balances.values()) {
    const own = <Row extends { organizationId: string }>(rows: Map<string, Row>) =>
      [...rows.values()].filter((row) => row.organizationId === organizationId);
    const grants = own(books.grants);
    const credits = own(books.adjustments).filter(({ kind }) => kind === "credit");
    const holds = own(seen);
    const open = holds.filter(({ state }) => state === "open");
    const inForce = grants.filter(({ state }) => state !== "pending");
    const active = grants.filter(({ state }) => state === "active");

    must(
      [available, held, spent, expired].every((amount) => amount >= 0n),
      "no amount is below 0",
    );
    must(granted === available + held + spent + expired, "granted = available + held + spent + expired");
    const given = inForce.map(({ source, amount, revoked }) => (source === "grant" ? amount - revoked : -revoked));
    must(granted === sumOf(given), "granted = the grants in force or expired, less what was revoked");
    must(available === sumOf(active.map(({ remaining }) => remaining)), "available = what remains of active grants");
    must(available === sumOf(grants.map(({ remaining }) => remaining)), "nothing remains of other grants");
    must(held === sumOf(open.map(({ amount }) => amount)), "held = the open holds");
    const costs = sumOf(holds.flatMap(({ events }) => events).map(({ cost }) => cost));
    must(spent === costs - sumOf(credits.map(({ amount }) => amount)), "spent = the events' costs less the credits");
    for (const { effectiveAtMs, expiresAtMs, state, remaining, amount, revoked } of grants) {
      must(remaining >= 0n && remaining <= amount - revoked, "what remains is between 0 and the grant");
      const changeAtMs = state === "pending" ? effectiveAtMs : remaining > 0n ? expiresAtMs : null;
      const isCovered = changeAtMs === null || (nextChangeAtMs !== null && nextChangeAtMs <= changeAtMs);
      must(isCovered, "the next change is not after any grant's");
    }
    checkRetries(holds);
    for (const hold of holds) {
      checkHold(hold);
      const own = credits.filter(({ holdId }) => holdId === hold.holdId);
      must(hold.credited === sumOf(own.map(({ amount }) => amount)), "credited = the credits that name the hold");
    }
  }
  for (const use of books.budgetUses.values()) checkBudgetUse(books, use);
  for (const key of books.keys.values()) checkKey(books, key);
}

function checkRetries(holds: SeenRequest[]): void {
  const byId = new Map(holds.map((hold) => [hold.holdId, hold]));
  const retries = holds.flatMap(({ tokenId, retry }) => (retry === null ? [] : [{ tokenId, ...retry }]));
  must(new Set(retries.map(({ of }) => of)).size === retries.length, "an attempt serves at most one retry");
  for (const { tokenId, of, paid } of retries) {
    const attempt = byId.get(of);
    if (attempt === undefined) throw new Error("broken: a retry names an attempt");
    const [first] = attempt.events;
    must(callerOf(attempt.tokenId) === callerOf(tokenId), "a retry repeats an attempt of its own caller");
    must(first?.end !== "complete" && first?.end !== "client_disconnected", "a retry repeats what broke");
    const late = attempt.events[1]?.cost ?? 0n;
    const most = (first?.cost ?? 0n) + (late > 0n ? late : 0n) + (attempt.retry?.paid ?? 0n);
    must(paid > 0n && paid <= most, "a retry is credited at most what the attempts before it were charged");
  }
}

function checkBudgetUse(books: MemoryBooks, use: BudgetUseRow): void {
  const { organizationId, held, spent, opening } = use;
  const isOf = ({ budgets }: SeenRequest) => usesIn(budgets).some((other) => textOfUse(other) === textOfUse(use));
  const holds = [...books.seen.values()].filter((hold) => hold.organizationId === organizationId && isOf(hold));
  const open = holds.filter(({ state }) => state === "open");
  must(held >= 0n && spent >= 0n && opening === 0n, "no amount of a budget is below 0");
  must(held === sumOf(open.map(({ amount }) => amount)), "held of a budget = its open holds");
  must(spent === sumOf(holds.map(({ charged, credited }) => charged - credited)), "spent of a budget = its charges");
}

function checkKey(books: MemoryBooks, { organizationId, callerId, key, holdId, answer }: IdempotencyKeyRow): void {
  const hold = books.seen.get(keyOf(organizationId, holdId));
  const own = hold?.idempotencyKey;
  must(own?.key === key && own.callerId === callerId, "a key's hold was made with it");
  must(hold?.state !== "released", "a released hold has freed its key");
  const isCharged = hold?.state === "charged" || hold?.isSettledLate === true;
  must(answer === null || isCharged, "an answer is kept of a charged request only");
}

function checkHold(hold: SeenRequest): void {
  const { events } = hold;
  const [first, second] = events;
  const isEnded = hold.state === "charged" || hold.state === "recovered";
  const expected = isEnded ? hold.charged : hold.state === "open" ? hold.amount : 0n;
  must(sumOf(hold.draws.map(({ amount }) => amount)) === expected, "the draws add up to what is held or charged");
  must(
    hold.draws.every(({ amount }) => amount > 0n),
    "no draw is empty",
  );
  must(new Set(hold.draws.map(({ grantId }) => grantId)).size === hold.draws.length, "a grant is drawn on once");
  must((first !== undefined) === isEnded, "event 0 is there once the hold was charged or expired");
  must(second === undefined || (hold.state === "recovered" && hold.isSettledLate), "event 1 is a late charge's");
  must(hold.charged === sumOf(events.map(({ cost }) => cost)), "charged = the events' costs");
  must(hold.shortfall === sumOf(events.map(({ shortfall }) => shortfall)), "shortfall = the events' shortfalls");
  must(hold.shortfall >= 0n && hold.charged >= 0n, "nothing of a hold is below 0");
  must(hold.credited >= 0n && hold.credited <= hold.charged, "no more is credited than was charged");
  for (const tokenClass of isEnded ? TOKEN_CLASSES : []) {
    const counted = events.reduce((total, { tokens }) => total + tokens[tokenClass], 0);
    must(counted === hold.tokens[tokenClass], "the events' tokens add up to the hold's");
  }
}

function picture(books: MemoryBooks, organizationId: string) {
  const own = <Row extends { organizationId: string }>(rows: Map<string, Row>) =>
    [...rows.values()].filter((row) => row.organizationId === organizationId);
  const balance = { ...books.balances.get(organizationId), nextChangeAtMs: null };
  const grants = own(books.grants).map(({ id, state, remaining }) => ({ id, pending: state === "pending", remaining }));
  const holds = own(books.seen).map(({ holdId: id, draws: drawn, events, ...hold }) => {
    const costs = events.map(({ cost }) => cost);
    const { state, amount, shortfall, credited, expiresAtMs, trace } = hold;
    const retry = hold.retry && { of: hold.retry.of, paid: Number(hold.retry.paid) };
    return { id, state, amount, shortfall, credited, drawn, costs, retry, expiresAtMs, trace };
  });
  const used = own(books.budgetUses).filter(({ held, spent }) => held !== 0n || spent !== 0n);
  const budgets = used.map(({ held, spent, ...use }) => ({ id: textOfUse(use), held, spent }));
  const keys = own(books.keys).map(({ callerId, key, holdId, answer }) => ({
    id: `${callerId} ${key}`,
    holdId,
    answer,
  }));
  return { balance, grants: byId(grants), holds: byId(holds), budgets: byId(budgets), keys: byId(keys) };
}

function byId<Row extends { id: string }>(rows: Row[]): Row[] {
  return rows.toSorted((a, b) => (a.id < b.id ? -1 : 1));
}

/** The model lets time pass only for organizations that are named; a look at both brings them level. */
function refreshAll(): Transition[] {
  return ORGANIZATION_IDS.map((organizationId) => ({ kind: "refresh", organizationId }));
}

describe("a random history of the books", () => {
  test.each([
    ["at every step", { minMs: 0, maxMs: 50 }],
    ["while windows of budgets end", { minMs: 0, maxMs: 20 * 3_600_000 }],
  ])(
    "The books equal a model of coins %s.",
    (_, passed) => {
      fc.assert(
        fc.property(histories(passed), (steps) => {
          const books = newBooks();
          const model = new CoinModel();
          for (const organizationId of ORGANIZATION_IDS) {
            model.addOrganization(organizationId);
            for (const row of budgetRows(organizationId)) model.putBudget(row);
          }
          const play = (transitions: Transition[]) => {
            const batch = [...transitions, ...refreshAll()];
            const outcomes = books.book(batch).map(withoutNextChange);
            expect(outcomes).toEqual(batch.map((transition) => model.play(transition, books.nowMs)));
            for (const organizationId of ORGANIZATION_IDS) {
              const expected = model.picture(organizationId);
              const found = picture(books, organizationId);
              expect({ ...found, balance: { ...found.balance, ...UNWARNED } }).toEqual({
                ...expected,
                grants: byId(expected.grants),
                holds: byId(expected.holds),
                budgets: byId(expected.budgets),
                keys: byId(expected.keys),
              });
            }
          };
          replay(books, steps, play, [model]);
        }),
        { numRuns: RUNS },
      );
    },
    LONGEST_MS,
  );

  test(
    "The invariants and the state transitions of holds are preserved, even if the clock goes back.",
    () => {
      fc.assert(
        fc.property(histories({ minMs: -40, maxMs: 60 }), (steps) => {
          const books = newBooks();
          replay(books, steps, (transitions) => {
            for (const transition of transitions) {
              const before = new Map([...books.seen].map(([key, { state }]) => [key, state]));
              books.bookOne(transition);
              const after = books.seen;
              for (const [key, { state }] of after) {
                must(
                  ARROWS[before.get(key) ?? "none"].includes(state),
                  `no hold goes from ${before.get(key)} to ${state}`,
                );
              }
              for (const key of before.keys()) must(after.has(key), "no request is removed");
            }
            checkInvariants(books);
          });
        }),
        { numRuns: RUNS },
      );
    },
    LONGEST_MS,
  );

  test(
    "Batches of N have the same result as N batches of one.",
    () => {
      fc.assert(
        fc.property(histories({ minMs: -40, maxMs: 60 }), (steps) => {
          const together = newBooks();
          const singly = newBooks();
          const play = (transitions: Transition[]) => {
            singly.nowMs = together.nowMs;
            const outcomes = together.book(transitions);
            expect(outcomes).toEqual(transitions.map((transition) => singly.bookOne(transition)));
            checkInvariants(together);
            expect(together.tables).toEqual(singly.tables);
          };
          replay(together, steps, play, [singly]);
        }),
        { numRuns: RUNS / 2 },
      );
    },
    LONGEST_MS,
  );

  test(
    "A repeated transition returns the first outcome and books nothing, in the same batch or a later one.",
    () => {
      fc.assert(
        fc.property(histories({ minMs: 0, maxMs: 50 }), (steps) => {
          const books = newBooks();
          const once = newBooks();
          const play = (transitions: Transition[]) => {
            once.nowMs = books.nowMs;
            for (const transition of transitions) {
              const first = once.bookOne(transition);
              const [again, third] = books.book([transition, transition]);
              const fourth = books.bookOne(transition);
              for (const outcome of [again, third, fourth]) {
                expect(lastingPart(outcome as Outcome)).toEqual(lastingPart(first));
              }
              expect(books.tables).toEqual(once.tables);
            }
          };
          replay(books, steps, play, [once]);
        }),
        { numRuns: RUNS / 4 },
      );
    },
    LONGEST_MS,
  );
});
