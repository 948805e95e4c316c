import { existsSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, test } from "vitest";
import { ROOT } from "./support/documents.ts";
import { type Exploration, explore, hasSpin } from "./support/spin.ts";

const MODEL = join(ROOT, "docs", "ledger.pml");
const TAKES_MS_MOST = 1_500_000;

if (!hasSpin) console.log("The model of the ledger (docs/ledger.pml) was left out: spin or gcc is not installed.");

test("every step of the model of the ledger names what is there", () => {
  const named = [...readFileSync(MODEL, "utf8").matchAll(/(src\/[\w/.-]+\.ts): (\w+)/g)];
  const wrong = named.filter(([, file = "", name = ""]) => {
    const path = join(ROOT, file);
    return !existsSync(path) || !new RegExp(`\\b${name}\\b`).test(readFileSync(path, "utf8"));
  });
  expect(named.length).toBeGreaterThan(20);
  expect(wrong.map(([text]) => text)).toEqual([]);
});

/** Together every pair of troubles: lost connections, crashes of the store, nodes that die. */
const TROUBLES = [
  ["FAULTS=2", "CRASHES=0", "KILLS=0"],
  ["FAULTS=1", "CRASHES=0", "KILLS=1"],
  ["FAULTS=0", "CRASHES=1", "KILLS=1"],
  ["FAULTS=1", "CRASHES=1", "KILLS=0"],
];

const BROKEN = [
  ["SETTLE_WITHOUT_STATE", "a settlement charges whatever the hold's state is"],
  ["READ_BEFORE_LOCK", "the hold is read before the balance is locked"],
  ["NO_LOCK", "the balance is not locked"],
  ["LOCKS_UNORDERED", "the two lanes lock in opposite orders"],
  ["EXPIRE_UNTESTED", "an expiry is not tested again on the locked row"],
  ["REPLAY_UNGUARDED", "an entry of the spool is booked whatever its hold's state is"],
  ["SPOOL_EMPTIED_FIRST", "the spool forgets an entry before it is booked"],
  ["ANSWER_FIRST", "the last byte leaves before the settlement"],
  ["SETTLE_NOT_DURABLE", "a settlement need not survive a crash of the store"],
  ["SETTLE_NEEDS_HOLD", "a settlement whose hold was lost books nothing"],
  ["RELEASE_WITHOUT_STATE", "a release gives back whatever the hold's state is"],
  ["RENEW_REVIVES", "a renewal opens a hold that has ended"],
  ["RENEW_FORGETS", "a renewal does not put a lost hold back"],
  ["HOLD_UNGUARDED", "a hold that is asked for again is made again"],
] as const;

describe.skipIf(!hasSpin)("spin explores the model of the ledger", { timeout: TAKES_MS_MOST }, () => {
  const explorations: Exploration[] = [];

  test.each(TROUBLES)("whole and without a violation: %s %s %s", async (...macros) => {
    const exploration = await explore(MODEL, macros);
    explorations.push(exploration);
    expect(exploration).toMatchObject({ violation: undefined, isWhole: true });
    expect(exploration.states).toBeGreaterThan(1_000_000);
  });

  test("and takes every step of it in one of these runs", () => {
    const [first = new Set<number>(), ...others] = explorations.map(({ unreached }) => unreached);
    expect(explorations).toHaveLength(TROUBLES.length);
    expect([...first].filter((step) => others.every((unreached) => unreached.has(step)))).toEqual([]);
  });

  test.each(BROKEN)("and it fails with %s: %s", async (macro) => {
    const exploration = await explore(MODEL, [macro, "FAULTS=1", "CRASHES=1", "KILLS=1"], { isShort: true });
    expect(exploration.violation).toMatch(/assertion violated|invalid end state/);
  });
});
