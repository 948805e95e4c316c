import fc from "fast-check";
import { countTokens } from "gpt-tokenizer/encoding/o200k_base";
import { afterEach, expect, test } from "vitest";
import { keepLog } from "../../test/support/log.ts";
import type { Log } from "../telemetry/logger.ts";
import { sampleOf, TokenCounter } from "./token-counter.ts";

let counter: TokenCounter;
afterEach(() => counter?.stop());

function make(options: { deadlineMs: number; log?: Log } = { deadlineMs: 60_000 }): TokenCounter {
  counter = new TokenCounter({ log: keepLog(), ...options });
  return counter;
}

const exact = (text: string) => countTokens(text, { disallowedSpecial: new Set<string>() });

test("Each group of texts is counted with the vocabulary, in a thread that starts with the first count.", async () => {
  const tokenCounter = make();
  expect(tokenCounter.isRunning).toBe(false);
  const text = "The quick brown fox jumps over the lazy dog. <|endoftext|> 漢字 👩‍👩‍👧‍👦\n";
  expect(await tokenCounter.count([[text], [], ["", "a", "b"]])).toEqual([exact(text), 0, 2]);
  expect(tokenCounter.isRunning).toBe(true);
});

test("The count of a short text is exact.", async () => {
  const tokenCounter = make();
  await fc.assert(
    fc.asyncProperty(fc.string({ unit: "binary", maxLength: 250 }), async (text) => {
      expect(await tokenCounter.count([[text]])).toEqual([exact(text)]);
    }),
    { numRuns: 200 },
  );
});

test("The count of long prose is nearly exact.", async () => {
  const text = "It was the best of times, it was the worst of times. ".repeat(4_000);
  const [count = 0] = (await make().count([[text]])) ?? [];
  expect(Math.abs(count - exact(text)) / exact(text)).toBeLessThan(0.01);
});

test.each([
  ["one letter", "a"],
  ["spaces", " "],
  ["line ends", "\n"],
  ["marks", "!?"],
  ["joined emoji", "👩‍👩‍👧‍👦"],
])("A megabyte of %s is counted.", async (_name, unit) => {
  const text = unit.repeat(Math.ceil((1024 * 1024) / unit.length));
  const [count = 0] = (await make().count([[text]])) ?? [];
  expect(count).toBeGreaterThan(0);
  expect(count).toBeLessThanOrEqual(Buffer.byteLength(text));
});

test("A count that takes too long is abandoned and logged.", async () => {
  const log = keepLog();
  expect(await make({ deadlineMs: 1, log }).count([["a ".repeat(100_000)]])).toBeUndefined();
  expect(log.messages("warn")).toEqual(["tokens were not counted in time and are estimated from bytes"]);
});

test("A count is not begun while more than 16 Mi characters wait.", async () => {
  const tokenCounter = make();
  const long = "a ".repeat(128 * 1024);
  const waiting = Array.from({ length: 64 }, () => tokenCounter.count([[long]]));
  expect(await tokenCounter.count([["a"]])).toBeUndefined();
  for (const counts of await Promise.all(waiting)) expect(counts?.[0]).toBeGreaterThan(128 * 1024);
  expect(await tokenCounter.count([["a"]])).toEqual([1]);
});

test("A stop resolves the running counts, and later counts are refused.", async () => {
  const tokenCounter = make();
  const counting = tokenCounter.count([["a"]]);
  await tokenCounter.stop();
  expect(await counting).toBeUndefined();
  expect(await tokenCounter.count([["a"]])).toBeUndefined();
  expect(tokenCounter.isRunning).toBe(false);
});

test("Samples of long texts are bounded, evenly spaced and have the ratio to the whole.", () => {
  fc.assert(
    fc.property(fc.array(fc.nat(400_000), { minLength: 1, maxLength: 20 }), (lengths) => {
      const texts = lengths.map((length) => "x".repeat(length));
      const total = lengths.reduce((sum, length) => sum + length, 0);
      const { texts: samples, scale } = sampleOf(texts);
      const taken = samples.reduce((sum, { length }) => sum + length, 0);
      expect(taken).toBeLessThanOrEqual(256 * 1024);
      if (total > 0) expect(taken * scale).toBeCloseTo(total, 3);
      if (total > 256 * 1024) expect(taken).toBeGreaterThan(255 * 1024 - 1024 * 20);
    }),
    { numRuns: 200 },
  );
  const { texts } = sampleOf(["a".repeat(300_000), "b".repeat(300_000)]);
  const share = texts.join("").replaceAll("a", "").length / texts.join("").length;
  expect(share).toBeCloseTo(0.5, 1);
});
