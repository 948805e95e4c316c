import { expect, test } from "vitest";
import { figuresInWords } from "./figures.ts";

const usage = { prompt_tokens: 12, completion_tokens: 100, total_tokens: 112, cost: 0.00042 };

test("an answer tells its tokens, its cost and its speed", () => {
  const figures = { model: "m", firstMs: 250, durationMs: 2250, usage, finishReason: "length" };
  expect(figuresInWords(figures, false)).toBe(
    "m · 12 tokens in, 100 tokens out · 0.00042 credits · first token after 250 ms · 50 tokens/s · Stopped at max tokens",
  );
});

test("one that was stopped tells what is known", () => {
  const figures = { model: "m", firstMs: null, durationMs: 900, usage: null, finishReason: null };
  expect(figuresInWords(figures, true)).toBe("m · Stopped: tokens generated so far are charged");
});
