import { describe, expect, test } from "vitest";
import { type Attempt, type Emission, type Intent, judgeAccount } from "../judge.ts";
import { parseExactly, parseMicro, toUnits, valueAt } from "../money.ts";

const RULES = { prices: { input: 1n, output: 1000n }, counting: { leastPercent: 100, mostPercent: 100 } };
const WHOLE = { status: 200, words: 20, bytes: 100, isComplete: true, hasLeft: false, error: undefined };
const CUT = { ...WHOLE, words: 7, isComplete: false };
const REFUSED = { ...WHOLE, status: 402, words: 0, isComplete: false };

function attempt(received: Attempt["received"], more: Partial<Attempt & Emission> = {}): Attempt {
  const { emittedTokens = 20, isKilled = false } = more;
  const reportedPromptTokens = "reportedPromptTokens" in more || !received.isComplete ? undefined : 2;
  const asked = { streamed: true, promptBytes: 20, tokensMax: 20 };
  return { received, ...asked, upstream: { emittedTokens, reportedPromptTokens }, isKilled };
}

function judged(attempts: Attempt[], charged: bigint, granted = 1_000_000n) {
  const intents: Intent[] = [{ id: "a", name: "case", attempts }];
  const one = judgeAccount({ granted, charged, chargedByIntent: undefined, intents }, RULES);
  const { delivered, overspent, double, lost, unfinished } = one;
  return { delivered, overspent, double, lost, unfinished };
}

const RIGHT = { overspent: 0n, double: 0n, lost: 0n, unfinished: 0n };

describe("The judge", () => {
  test.each([
    ["a complete answer at its price", [attempt(WHOLE)], 20_002n, { delivered: 20_002n }],
    ["a complete answer that was charged twice", [attempt(WHOLE)], 40_004n, { delivered: 20_002n, double: 20_002n }],
    ["a complete answer that was not charged", [attempt(WHOLE)], 0n, { delivered: 20_002n, lost: 20_002n }],
    [
      "a lie that was charged",
      [attempt(WHOLE, { reportedPromptTokens: undefined })],
      30_532n,
      { delivered: 20_000n, double: 10_000n },
    ],
    ["a broken stream that was charged as received", [attempt(CUT)], 7_532n, { delivered: 7_000n }],
    ["a broken stream that was charged in full", [attempt(CUT)], 20_532n, { delivered: 7_000n, double: 13_000n }],
    ["a broken stream that was not charged", [attempt(CUT)], 0n, { delivered: 7_000n, lost: 7_000n }],
    [
      "a client that left, charged as emitted",
      [attempt({ ...CUT, hasLeft: true }, { emittedTokens: 9 })],
      9_532n,
      { delivered: 7_000n },
    ],
    [
      "a client that left, charged above what was emitted",
      [attempt({ ...CUT, hasLeft: true }, { emittedTokens: 9 })],
      9_533n,
      { delivered: 7_000n, double: 1n },
    ],
    ["a refusal that was charged", [attempt(REFUSED)], 1n, { delivered: 0n, double: 1n }],
    [
      "an answer that a kill broke, not charged",
      [attempt(CUT, { isKilled: true })],
      0n,
      { delivered: 0n, unfinished: 7_000n },
    ],
    [
      "a repetition that was charged less what was charged before",
      [attempt(CUT), attempt(WHOLE)],
      20_002n,
      { delivered: 20_002n },
    ],
    [
      "a repetition that was charged in full",
      [attempt(CUT), attempt(WHOLE)],
      27_002n,
      { delivered: 20_002n, double: 7_000n },
    ],
  ])("judges %s.", (_name, attempts, charged, expected) => {
    expect(judged(attempts, charged)).toEqual({ ...RIGHT, ...expected });
  });

  test("reports what was delivered above what was granted.", () => {
    expect(judged([attempt(WHOLE)], 20_002n, 15_000n)).toEqual({ ...RIGHT, delivered: 20_002n, overspent: 5_002n });
  });

  test("does not let an answer charged twice hide one that was not charged, where charges have names.", () => {
    const intents = ["a", "b"].map((id) => ({ id, name: "case", attempts: [attempt(WHOLE)] }));
    const account = { granted: 1_000_000n, charged: 40_004n, intents };
    const bySums = judgeAccount({ ...account, chargedByIntent: undefined }, RULES);
    expect(bySums).toMatchObject({ double: 0n, lost: 0n });
    const byNames = judgeAccount({ ...account, chargedByIntent: new Map([["a", 40_004n]]) }, RULES);
    expect(byNames).toMatchObject({ double: 20_002n, lost: 20_002n });
  });

  test("reports a balance that differs from the charges of its requests.", () => {
    const intents = [{ id: "a", name: "case", attempts: [attempt(WHOLE)] }];
    const chargedByIntent = new Map([["a", 20_002n]]);
    const more = judgeAccount({ granted: 1_000_000n, charged: 20_003n, chargedByIntent, intents }, RULES);
    const less = judgeAccount({ granted: 1_000_000n, charged: 20_001n, chargedByIntent, intents }, RULES);
    expect([more.double, more.lost, less.double, less.lost]).toEqual([1n, 0n, 0n, 1n]);
  });
});

describe("Amounts", () => {
  test.each([
    ["1", 1n, 1_000_000n],
    ["0.000001", 1n, 1n],
    ["1e-06", 1n, 1n],
    ["99.999994", 1n, 99_999_994n],
    ["0.30000000000000004", 1n, 300_000n],
    ["-0.5", 1n, -500_000n],
    ["9007199254.740993", 1n, 9_007_199_254_740_993n],
  ])("reads %s exactly.", (text, _unit, micro) => {
    expect(parseMicro(text)).toBe(micro);
  });

  test("of gateways that count whole quota convert both ways.", () => {
    expect([parseMicro("10010", 2n), toUnits(20_020n, 2n), toUnits(1_500_000n), toUnits(-1n)]).toEqual([
      20_020n,
      "10010",
      "1.5",
      "-0.000001",
    ]);
    expect([parseMicro("many"), parseMicro("")]).toEqual([undefined, undefined]);
  });

  test("are found by an item's field.", () => {
    const list = {
      keys: [
        { id: "a", usage: "1" },
        { id: "b", usage: "2" },
      ],
    };
    expect([valueAt(list, "keys.id=b.usage"), valueAt(list, "keys.id=c.usage"), valueAt(list, "keys.0.usage")]).toEqual(
      ["2", undefined, "1"],
    );
  });

  test("in JSON keep all digits.", () => {
    expect(valueAt(parseExactly('{"data":[{"spent":0.100000000000000005551}]}'), "data.0.spent")).toBe(
      "0.100000000000000005551",
    );
  });
});
