import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { countOf, seedOfRun, timeoutOf } from "../../test/support/counts.ts";
import { FURTHER_CLASSES, FURTHER_ROWS, TOKEN_CLASSES } from "../api/price-classes.ts";
import {
  addTokens,
  assertCounts,
  dearer,
  FREE,
  fitted,
  NO_TOKENS,
  parsePrice,
  priceOf,
  pricesUsed,
  type TokenCounts,
  type UnitPrices,
} from "./price.ts";

/** An exact rational number: nothing is shared with what it judges. */
class Fraction {
  readonly top: bigint;
  readonly bottom: bigint;
  constructor(top: bigint, bottom: bigint) {
    this.top = top;
    this.bottom = bottom;
  }
  plus(other: Fraction): Fraction {
    return new Fraction(this.top * other.bottom + other.top * this.bottom, this.bottom * other.bottom);
  }
  times(other: Fraction): Fraction {
    return new Fraction(this.top * other.top, this.bottom * other.bottom);
  }
  roundedUp(): bigint {
    const whole = this.top / this.bottom;
    return whole * this.bottom === this.top ? whole : whole + 1n;
  }
}

const ONE = new Fraction(1n, 1n);
const MILLION = new Fraction(1_000_000n, 1n);

const counts = fc.record(
  Object.fromEntries(TOKEN_CLASSES.map((tokenClass) => [tokenClass, fc.integer({ min: 0, max: 10_000_000 })])),
) as fc.Arbitrary<TokenCounts>;

/** A decimal text and the number that it stands for. */
const decimalUpTo = (wholeDigitsMax: number, fractionDigitsMax: number) =>
  fc
    .tuple(
      fc.integer({ min: 0, max: 10 ** wholeDigitsMax - 1 }),
      fc.array(fc.integer({ min: 0, max: 9 }), { maxLength: fractionDigitsMax }),
      fc.constantFrom(0, 0, 0, -1, -7, -30, 2),
    )
    .map(([whole, digits, exponent]) => {
      const fraction = digits.length === 0 ? "" : `.${digits.join("")}`;
      const top = BigInt(`${whole}${digits.join("")}`) * 10n ** BigInt(Math.max(0, exponent));
      const bottom = 10n ** BigInt(digits.length + Math.max(0, -exponent));
      return { text: `${whole}${fraction}${exponent === 0 ? "" : `e${exponent}`}`, exact: new Fraction(top, bottom) };
    });

const prices = decimalUpTo(4, 12);
/** Credits a dollar, and a markup. */
const rates = decimalUpTo(1, 6);
const fivePrices = fc.tuple(prices, prices, prices, prices, prices);

describe("priceOf", () => {
  test(
    "The cost equals an exact rational oracle, rounded up once, in many cases of dollars, rate and markup.",
    () => {
      fc.assert(
        fc.property(counts, fivePrices, rates, rates, (tokens, five, perDollar, markup) => {
          const unit = { ...FREE };
          let exact = new Fraction(0n, 1n);
          for (const [index, tokenClass] of TOKEN_CLASSES.entries()) {
            const price = five[index] as (typeof five)[0];
            const terms = { perDollar: perDollar.text, markup: markup.text };
            unit[tokenClass] = parsePrice(price.text, terms) as bigint;
            // A price a token, with its markup, is rounded up to a pico-credit by definition; from there on nothing may be.
            const pico = price.exact.times(perDollar.exact).times(ONE.plus(markup.exact)).times(MILLION).roundedUp();
            // More than a billion credits per million tokens is refused, as below.
            fc.pre(pico <= 10n ** 15n);
            exact = exact.plus(new Fraction(BigInt(tokens[tokenClass]) * pico, 1_000_000n));
          }
          if (priceOf(tokens, unit) !== exact.roundedUp()) expect(priceOf(tokens, unit)).toBe(exact.roundedUp());
        }),
        { numRuns: countOf("prices"), seed: seedOfRun() },
      );
    },
    timeoutOf("prices"),
  );

  test("The cost of the whole request is rounded up, not that of each class.", () => {
    const unit: UnitPrices = { input: 1n, cachedInput: 1n, cacheWrite: 1n, output: 1n, reasoning: 1n };
    expect(priceOf({ input: 1, cachedInput: 1, cacheWrite: 1, output: 1, reasoning: 1 }, unit)).toBe(1n);
    expect(priceOf({ input: 1_000_000, cachedInput: 0, cacheWrite: 0, output: 1, reasoning: 0 }, unit)).toBe(2n);
    expect(priceOf({ input: 1_000_000, cachedInput: 0, cacheWrite: 0, output: 0, reasoning: 0 }, FREE)).toBe(0n);
  });
});

describe("parsePrice", () => {
  test("The markup is applied exactly, and the price rounded up once.", () => {
    fc.assert(
      fc.property(decimalUpTo(6, 30), decimalUpTo(2, 30), (price, markup) => {
        const exact = price.exact.times(ONE.plus(markup.exact)).times(MILLION).roundedUp();
        expect(parsePrice(price.text, { markup: markup.text })).toBe(exact <= 10n ** 15n ? exact : undefined);
      }),
      { numRuns: 10_000 },
    );
  });

  test("Dollars are converted exactly, and the price rounded up once.", () => {
    fc.assert(
      fc.property(decimalUpTo(4, 12), decimalUpTo(3, 12), decimalUpTo(1, 12), (dollars, perDollar, markup) => {
        const factor = perDollar.exact.times(ONE.plus(markup.exact));
        const exact = dollars.exact.times(factor).times(MILLION).roundedUp();
        const parsed = parsePrice(dollars.text, { perDollar: perDollar.text, markup: markup.text });
        expect(parsed).toBe(exact <= 10n ** 15n ? exact : undefined);
      }),
      { numRuns: 5_000 },
    );
  });

  test.each([
    ["0.25", "0", 250_000n],
    ["0.25", "0.2", 300_000n],
    ["0.0000001", "0", 1n],
    ["1e-99", "0", 1n],
    ["1e-99", "1e-99", 1n],
    ["0", "5", 0n],
    // Rounding the price to thirty digits before the markup would make this 2.
    ["0.999999999999999999999999999999e-6", "0.000000000000000000000000000001", 1n],
    ["1.000000000000000000000000000000e-6", "0", 1n],
  ])("The price %s with a markup of %s is %s pico-credits.", (price, markup, pico) => {
    expect(parsePrice(price, { markup })).toBe(pico);
  });

  test.each([
    ["a word", "cheap", "0"],
    ["a negative price", "-1", "0"],
    ["a negative markup", "1", "-0.1"],
    ["more than a billion credits", "1000000000.000001", "0"],
    ["more than a billion credits by its markup", "1000000000", "0.1"],
  ])("An invalid price is refused: %s.", (_, price, markup) => {
    expect(parsePrice(price, { markup })).toBeUndefined();
  });
});

test("The dearer of two prices covers the cost at either.", () => {
  const unit = fc.record(
    Object.fromEntries(TOKEN_CLASSES.map((tokenClass) => [tokenClass, fc.bigInt({ min: 0n, max: 10n ** 12n })])),
  ) as fc.Arbitrary<UnitPrices>;
  fc.assert(
    fc.property(counts, unit, unit, (tokens, a, b) => {
      const covered = priceOf(tokens, dearer(a, b));
      expect(covered >= priceOf(tokens, a) && covered >= priceOf(tokens, b)).toBe(true);
    }),
    { numRuns: 2_000 },
  );
});

describe("parts and calls", () => {
  const price = fc.bigInt({ min: 0n, max: 10n ** 9n });
  const record = <Value>(value: fc.Arbitrary<Value>) =>
    fc.record(Object.fromEntries(FURTHER_CLASSES.map((name) => [name, value])), { requiredKeys: [] });
  const classes = <Value>(value: fc.Arbitrary<Value>) =>
    fc.record({ input: value, cachedInput: value, cacheWrite: value, output: value, reasoning: value });
  const prices = fc.tuple(classes(price), record(price)).map(([own, further]): UnitPrices => ({ ...own, ...further }));
  const tokens = fc.tuple(classes(fc.nat(1_000)), record(fc.nat(1_500))).map(([counts, further]) => {
    return fitted({ ...counts, ...further }, 1_000);
  });

  test("each token costs the price of its part, or else of its class, each call its own; rounded up once", () => {
    fc.assert(
      fc.property(tokens, prices, (given: TokenCounts, unitPrices) => {
        const rest = { ...given };
        let pico = 0n;
        for (const { class: name, partOf: whole } of FURTHER_ROWS) {
          const count = given[name] ?? 0;
          if (whole !== undefined) rest[whole] -= count;
          pico += BigInt(count) * (unitPrices[name] ?? (whole === undefined ? 0n : unitPrices[whole]));
        }
        for (const name of TOKEN_CLASSES) {
          expect(rest[name]).toBeGreaterThanOrEqual(0);
          pico += BigInt(rest[name]) * unitPrices[name];
        }
        const cost = priceOf(assertCounts(given), unitPrices);
        expect(cost >= 0n && cost === (pico + 999_999n) / 1_000_000n).toBe(true);
        expect(priceOf(given, pricesUsed(unitPrices, given))).toBe(cost);
      }),
      { numRuns: 3_000 },
    );
  });

  test("the dearer of two prices covers either", () => {
    fc.assert(
      fc.property(tokens, prices, prices, (given, a, b) => {
        const both = priceOf(given, dearer(a, b));
        expect(both >= priceOf(given, a) && both >= priceOf(given, b)).toBe(true);
      }),
      { numRuns: 2_000 },
    );
  });

  test("a sum of counts minus one of them is the other", () => {
    fc.assert(
      fc.property(tokens, tokens, (a, b) => {
        expect(addTokens(addTokens(a, b), b, -1)).toEqual(a);
      }),
    );
  });

  test("a part above its class is refused", () => {
    const counts = { ...NO_TOKENS, output: 3 };
    expect(() => assertCounts({ ...counts, outputAudio: 2, outputImage: 2 })).toThrow(RangeError);
    expect(() => assertCounts({ ...counts, searches: -1 })).toThrow(RangeError);
    expect(assertCounts({ ...counts, outputAudio: 2, outputImage: 1, searches: 9 })).toBeDefined();
  });
});
