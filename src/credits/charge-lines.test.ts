import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { FURTHER_CLASSES, PRICE_ROWS, TOKEN_CLASSES } from "../api/price-classes.ts";
import { decodeLines, encodeLines } from "./charge-lines.ts";
import {
  addTokens,
  FREE,
  fitted,
  NO_TOKENS,
  type PriceTier,
  priceOf,
  type TokenCounts,
  type UnitPrices,
} from "./price.ts";

const byClass = <Value>(names: readonly string[], value: fc.Arbitrary<Value>, requiredKeys: string[]) =>
  fc.record(Object.fromEntries(names.map((name) => [name, value])), { requiredKeys });
const tier = fc.record(
  {
    from: fc.constant("2027-01-01"),
    serviceTier: fc.string({ unit: "binary" }),
    abovePromptTokens: fc.nat(),
    promptTokensMax: fc.maxSafeNat(),
  },
  { requiredKeys: [] },
) as fc.Arbitrary<PriceTier>;
const price = fc.oneof(fc.constantFrom(0n, 1n, 2_000_000n), fc.bigInt(0n, 2n ** 64n));
const prices = fc
  .tuple(
    byClass(TOKEN_CLASSES, price, TOKEN_CLASSES),
    byClass(FURTHER_CLASSES, price, []),
    fc.option(tier, { nil: undefined }),
  )
  .map(([own, further, of]) => ({ ...own, ...further, ...(of && { tier: of }) }) as UnitPrices);
const tokens = fc
  .tuple(byClass(TOKEN_CLASSES, fc.nat(), TOKEN_CLASSES), byClass(FURTHER_CLASSES, fc.nat(), []))
  .map(([own, further]) => fitted({ ...own, ...further } as TokenCounts, Number.POSITIVE_INFINITY));

describe("the lines of a charge", () => {
  test("each class has one letter of its own", () => {
    const codes = PRICE_ROWS.map(({ code }) => code);
    expect(new Set(codes).size).toBe(codes.length);
    for (const code of codes) expect(code).toMatch(/^[a-z]$/);
  });

  test("tokens and prices of every class, tier and date are decoded as they were encoded", () => {
    fc.assert(
      fc.property(tokens, prices, (counts, unitPrices) => {
        expect(decodeLines(encodeLines(counts, unitPrices))).toEqual({ tokens: counts, prices: unitPrices });
      }),
      { numRuns: 5_000 },
    );
  });

  test("signed differences are decoded as they were encoded", () => {
    fc.assert(
      fc.property(tokens, tokens, prices, (a, b, unitPrices) => {
        const difference = addTokens(a, b, -1);
        expect(decodeLines(encodeLines(difference, unitPrices)).tokens).toEqual(difference);
      }),
      { numRuns: 2_000 },
    );
  });

  test("the sum of the lines is the charge", () => {
    const rowOf = new Map<string, (typeof PRICE_ROWS)[number]>(PRICE_ROWS.map((row) => [row.code, row]));
    fc.assert(
      fc.property(tokens, prices, ({ ...counts }, { tier: _tier, ...unitPrices }) => {
        const lines = encodeLines(counts, unitPrices as UnitPrices)
          .split(" ")
          .filter((line) => line !== "")
          .map((line) => /^(.)(\d*)(?:@(\d+))?$/.exec(line) ?? []);
        const stated = new Map(lines.map(([, code = "", , own]) => [rowOf.get(code)?.class as string, own]));
        const priceIn = (name: string | undefined): bigint => {
          const own = name === undefined ? "0" : stated.get(name);
          if (own !== undefined) return BigInt(own);
          const row = PRICE_ROWS.find((one) => one.class === name);
          return priceIn(row?.partOf ?? row?.costsAs);
        };
        const pico = lines.reduce(
          (sum, [, code = "", count]) => sum + BigInt(count ?? 0) * priceIn(rowOf.get(code)?.class),
          0n,
        );
        expect((pico + 999_999n) / 1_000_000n).toBe(priceOf(counts, unitPrices as UnitPrices));
      }),
      { numRuns: 3_000 },
    );
  });

  test("a usual charge is short", () => {
    const unit = { ...FREE, input: 2n, cachedInput: 1n, cacheWrite: 2n, output: 8n, reasoning: 8n };
    expect(encodeLines({ ...NO_TOKENS, input: 20, output: 400 }, unit)).toBe("i20@2 c@1 o400@8");
    const parts = { ...NO_TOKENS, output: 9, outputAudio: 4, searches: 2 };
    const tiered = { ...unit, searches: 5n, tier: { serviceTier: "flex" } };
    expect(encodeLines(parts, tiered)).toBe('i@2 c@1 o5@8 s4 f2@5 {"serviceTier":"flex"}');
    expect(encodeLines(NO_TOKENS, FREE)).toBe("");
  });

  test.each([
    ["an unknown class", "i1@2 z3", '"z3" is not'],
    ["a class twice", "i1@2 i1@2", '"i1@2" is not'],
    ["another order", "o1@2 i1@2", '"i1@2" is not'],
    ["a class without count and price", "i", '"i" is not'],
    ["a count of 0", "i0@2", '"i0@2" is not'],
    ["a fraction", "i1.5@2", '"i1.5@2" is not'],
    ["a price below 0", "i1@-2", '"i1@-2" is not'],
    ["two spaces", "i1@2  o1@2", '"" is not'],
    ["a space at the end", "i1@2 ", '"i1@2" is not'],
    ["a condition that is no JSON", "i1@2 {", "JSON"],
  ])("a text with %s is refused, and the line is named", (_, text, message) => {
    expect(() => decodeLines(text)).toThrow(SyntaxError);
    expect(() => decodeLines(text)).toThrow(message);
  });

  test("no two classes have one code or one name", () => {
    for (const key of ["code", "name", "setting"] as const) {
      expect(new Set(PRICE_ROWS.map((row) => row[key])).size).toBe(PRICE_ROWS.length);
    }
  });
});
