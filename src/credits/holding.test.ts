import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { affordableOutputTokens, type HoldNeed, holdBounds } from "./holding.ts";
import { FREE, NO_TOKENS, priceOf } from "./price.ts";

const unitPrice = fc.oneof(fc.constant(0n), fc.bigInt({ min: 1n, max: 100_000_000n }));
const needs: fc.Arbitrary<HoldNeed> = fc
  .record({
    promptTokensMost: fc.integer({ min: 0, max: 1_000_000 }),
    a: fc.integer({ min: 1, max: 4_096 }),
    b: fc.integer({ min: 1, max: 4_096 }),
    prices: fc.record({
      input: unitPrice,
      cachedInput: unitPrice,
      cacheWrite: unitPrice,
      output: unitPrice,
      reasoning: unitPrice,
    }),
  })
  .map(({ a, b, ...need }) => ({ ...need, outputTokensLeast: Math.min(a, b), outputTokensMost: Math.max(a, b) }));
const share = fc.integer({ min: 0, max: 1_000_000 });

describe("holdBounds", () => {
  test("the most covers any usage within the need, whatever its classes", () => {
    fc.assert(
      fc.property(needs, share, share, share, (need, cached, written, reasoned) => {
        const cachedInput = Math.min(cached, need.promptTokensMost);
        const cacheWrite = Math.min(written, need.promptTokensMost - cachedInput);
        const reasoning = Math.min(reasoned, need.outputTokensMost);
        const input = need.promptTokensMost - cachedInput - cacheWrite;
        const tokens = { input, cachedInput, cacheWrite, reasoning, output: need.outputTokensMost - reasoning };
        const { least, most } = holdBounds(need);
        expect(priceOf(tokens, need.prices) <= most && least <= most).toBe(true);
      }),
      { numRuns: 2_000 },
    );
  });

  test("prices input at its dearest class and output at its own", () => {
    const prices = {
      input: 1_000_000n,
      cachedInput: 100_000n,
      cacheWrite: 2_000_000n,
      output: 3_000_000n,
      reasoning: 0n,
    };
    const need = { promptTokensMost: 10, outputTokensLeast: 4, outputTokensMost: 100, prices };
    expect(holdBounds(need)).toEqual({ least: 32n, most: 320n });
    expect(holdBounds({ ...need, prices: FREE })).toEqual({ least: 0n, most: 0n });
  });
});

describe("affordableOutputTokens", () => {
  test("is the most output that an amount pays for", () => {
    fc.assert(
      fc.property(needs, fc.bigInt({ min: 0n, max: 10n ** 11n }), (need, amount) => {
        const tokens = affordableOutputTokens(amount, need);
        expect(tokens >= 0 && tokens <= need.outputTokensMost).toBe(true);
        const costOf = (output: number) => holdBounds({ ...need, outputTokensMost: output }).most;
        if (tokens > 0) expect(costOf(tokens)).toBeLessThanOrEqual(amount);
        if (tokens < need.outputTokensMost) expect(costOf(tokens + 1)).toBeGreaterThan(amount);
      }),
      { numRuns: 2_000 },
    );
  });

  test("of what a hold took is within the need: all for the most, enough for the least", () => {
    fc.assert(
      fc.property(needs, (need) => {
        const { least, most } = holdBounds(need);
        expect(affordableOutputTokens(most, need)).toBe(need.outputTokensMost);
        expect(affordableOutputTokens(least, need)).toBeGreaterThanOrEqual(need.outputTokensLeast);
      }),
      { numRuns: 2_000 },
    );
  });

  test("is nothing where not even the input is paid, and everything where output is free", () => {
    const prices = { ...FREE, input: 1_000_000n };
    const need = { promptTokensMost: 10, outputTokensLeast: 1, outputTokensMost: 100, prices };
    expect(affordableOutputTokens(9n, need)).toBe(0);
    expect(affordableOutputTokens(10n, need)).toBe(100);
    expect(priceOf({ ...NO_TOKENS, input: 10, output: 100 }, prices)).toBe(10n);
  });
});
