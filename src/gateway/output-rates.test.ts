import fc from "fast-check";
import { expect, test } from "vitest";
import { OutputRates } from "./output-rates.ts";

test("before 100 answers of a route are known it is 50 tokens a second, at most 4,096", () => {
  const rates = new OutputRates();
  for (let i = 0; i < 99; i += 1) rates.note("up/m", 1_000, 1_000);
  expect(rates.estimate("up/m", 10_000)).toBe(500);
  expect(rates.estimate("up/m", 10 ** 9)).toBe(4_096);
  rates.note("up/m", 1_000, 1_000);
  expect(rates.estimate("up/m", 500)).toBe(500);
  expect(rates.estimate("up/m", 10 ** 9)).toBe(1_000);
  expect(rates.estimate("up/other", 10_000)).toBe(500);
});

test("it is the median rate of the newest 512 answers, and at most their 95th percentile", () => {
  const answer = fc.record({ tokens: fc.nat(10_000), durationMs: fc.nat(60_000) });
  fc.assert(
    fc.property(fc.array(answer, { minLength: 100, maxLength: 600 }), fc.nat(100_000), (answers, elapsedMs) => {
      const rates = new OutputRates();
      for (const { tokens, durationMs } of answers) rates.note("up/m", tokens, durationMs);
      const newest = answers.slice(-512);
      const rank = (values: number[], part: number) =>
        values.sort((a, b) => a - b)[Math.ceil(values.length * part) - 1] ?? 0;
      const rate = rank(
        newest.map(({ tokens, durationMs }) => tokens / Math.max(1, durationMs)),
        0.5,
      );
      const most = rank(
        newest.map(({ tokens }) => tokens),
        0.95,
      );
      expect(rates.estimate("up/m", elapsedMs)).toBe(Math.floor(Math.min(most, elapsedMs * rate)));
    }),
    { numRuns: 200 },
  );
});

test("a clock that was set back estimates nothing", () => {
  expect(new OutputRates().estimate("up/m", -5_000)).toBe(0);
});
