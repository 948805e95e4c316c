import fc from "fast-check";
import { describe, expect, test } from "vitest";
import {
  ceilDivide,
  creditsFromMicro,
  creditsJson,
  creditsOf,
  formatCredits,
  MICRO_CREDITS_MAX,
  parseCredits,
  parseDecimal,
} from "./amount.ts";

const NOT_DECIMALS = [
  "",
  " ",
  "-1",
  "+1",
  ".5",
  "5.",
  "1,5",
  "0x10",
  "1e",
  "1e100",
  "NaN",
  "Infinity",
  "1_000",
  "١",
  "1\n",
];
const amounts = fc.bigInt({ min: 0n, max: MICRO_CREDITS_MAX });
const decimals = fc
  .tuple(
    fc.stringMatching(/^[0-9]{1,15}$/),
    fc.option(fc.stringMatching(/^[0-9]{1,30}$/), { nil: undefined }),
    fc.option(fc.integer({ min: -99, max: 99 }), { nil: undefined }),
  )
  .map(([whole, fraction, exponent]) => ({
    text: `${whole}${fraction === undefined ? "" : `.${fraction}`}${exponent === undefined ? "" : `e${exponent}`}`,
    digits: BigInt(whole + (fraction ?? "")),
    exponent: (exponent ?? 0) - (fraction?.length ?? 0),
  }));

describe("parseDecimal", () => {
  test.each(NOT_DECIMALS)("The text %j is not a decimal.", (text) => {
    expect(parseDecimal(text, 6)).toBeUndefined();
  });

  test.each([
    ["0.1", 1, 1n],
    ["0.11", 1, 2n],
    ["1e-99", 30, 1n],
    ["0e-99", 0, 0n],
    ["12.5E+1", 0, 125n],
    ["007", 2, 700n],
  ])("The text %s with %i digits is %s.", (text, digits, value) => {
    expect(parseDecimal(text, digits)).toBe(value);
  });

  test("The result is the least integer not below the exact number.", () => {
    fc.assert(
      fc.property(decimals, fc.integer({ min: 0, max: 40 }), ({ text, digits, exponent }, places) => {
        const parsed = parseDecimal(text, places) as bigint;
        // Both sides of parsed - 1 < digits x 10^(exponent + places) <= parsed, multiplied until they are integers.
        const up = 10n ** BigInt(Math.max(0, exponent + places));
        const down = 10n ** BigInt(Math.max(0, -exponent - places));
        expect(digits * up <= parsed * down).toBe(true);
        expect(parsed === 0n || digits * up > (parsed - 1n) * down).toBe(true);
      }),
      { numRuns: 5_000 },
    );
  });
});

describe("parseCredits", () => {
  test("parseCredits reverses formatCredits.", () => {
    fc.assert(
      fc.property(amounts, (amount) => {
        expect(parseCredits(formatCredits(amount))).toBe(amount);
      }),
      { numRuns: 5_000 },
    );
  });

  test.each([
    ["finer than a micro-credit", "0.0000001"],
    ["finer by 37 digits", "9.999999999999999999999999999999e-7"],
    ["finer than any digit kept", "1e-99"],
    ["too large", "9000000001"],
    ["too large by its exponent", "1e99"],
    ["negative", "-1"],
  ])("An amount that is %s is refused.", (_, text) => {
    expect(parseCredits(text)).toBeUndefined();
  });

  test("Trailing zeros, exponents and the largest amount are accepted.", () => {
    expect(parseCredits("1.000000000000000000000000000000")).toBe(1_000_000n);
    expect(parseCredits("1e-6")).toBe(1n);
    expect(parseCredits("9000000000")).toBe(MICRO_CREDITS_MAX);
  });
});

describe("formatCredits", () => {
  test.each([
    [0n, "0"],
    [1n, "0.000001"],
    [14n, "0.000014"],
    [100_000_000n, "100"],
    [12_500_000n, "12.5"],
    [-1_500_000n, "-1.5"],
    [-1n, "-0.000001"],
  ])("The amount %s is formatted as %s.", (amount, text) => {
    expect(formatCredits(amount)).toBe(text);
  });
});

describe("creditsFromMicro", () => {
  test("The number prints the exact decimal up to 2^33 credits.", () => {
    fc.assert(
      fc.property(fc.bigInt({ min: 0n, max: 2n ** 33n * 1_000_000n }), (amount) => {
        const text = creditsFromMicro(amount).toString();
        expect(parseCredits(text)).toBe(amount);
      }),
      { numRuns: 20_000 },
    );
  });
});

test("ceilDivide returns the least integer not below the quotient.", () => {
  fc.assert(
    fc.property(fc.bigInt({ min: 0n, max: 10n ** 40n }), fc.bigInt({ min: 1n, max: 10n ** 20n }), (a, b) => {
      const quotient = ceilDivide(a, b);
      expect(quotient * b >= a && (quotient === 0n || (quotient - 1n) * b < a)).toBe(true);
    }),
    { numRuns: 2_000 },
  );
});

test("A balance is stated in credits, without expired credits.", () => {
  const balance = {
    granted: 100_000_000n,
    available: 60_500_000n,
    held: 9_000_000n,
    spent: 20_499_986n,
    expired: 10_000_014n,
  };
  expect(creditsJson(creditsOf(balance))).toEqual({
    creditsAvailable: 60.5,
    creditsTotal: 89.999986,
    creditsUsed: 20.499986,
    creditsHeld: 9,
  });
});
