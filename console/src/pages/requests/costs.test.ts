import { expect, test } from "vitest";
import { callPricesText, costLines, tierText } from "./costs.tsx";

test("Each class with tokens has a line with its price.", () => {
  const tokens = { input: 1000, cached_input: 0, cache_write: 0, output: 50, reasoning: 10 };
  const prices = { input: 0.25, cached_input: 0.025, cache_write: 0.3, output: 2, reasoning: 4 };
  expect(costLines(tokens, prices)).toEqual([
    { name: "Input", count: 1000, price: 0.25, isCall: false, cost: 0.00025 },
    { name: "Output", count: 50, price: 2, isCall: false, cost: 0.0001 },
    { name: "Reasoning", count: 10, price: 4, isCall: false, cost: 0.00004 },
  ]);
});

test("Parts with a price of their own and calls have lines, and the line of a class leaves its parts out.", () => {
  const tokens = { input: 100, cached_input: 0, cache_write: 40, output: 50, reasoning: 0 };
  const further = { cache_write_1h: 30, input_audio: 20, output_audio: 50, searches: 2 };
  const prices = { input: 1, cached_input: 1, cache_write: 2, output: 4, reasoning: 4 };
  const furtherPrices = { cache_write_1h: 3, output_audio: 8, searches: 0.01 };
  expect(costLines({ ...tokens, ...further }, { ...prices, ...furtherPrices })).toEqual([
    { name: "Input", count: 100, price: 1, isCall: false, cost: 0.0001 },
    { name: "Cache write", count: 10, price: 2, isCall: false, cost: 0.00002 },
    { name: "Cache write, 1 hour", count: 30, price: 3, isCall: false, cost: 0.00009 },
    { name: "Output audio", count: 50, price: 8, isCall: false, cost: 0.0004 },
    { name: "Searches", count: 2, price: 0.01, isCall: true, cost: 0.02 },
  ]);
});

test("The prices of calls are named by what each one is for.", () => {
  const prices = { input: 1, output: 2, searches: 0.01, images: 0.04, characters: 0.0000005, seconds: 0 };
  expect(callPricesText(prices)).toBe("0.01 per search, 0.04 per image, 0.0000005 per character");
});

test("The price tier of a charge names the length of the prompt, the service tier and the day, as far as they chose it.", () => {
  const none = { price_list: null, from: null, service_tier: null, above_prompt_tokens: null, max_prompt_tokens: null };
  expect(tierText({ ...none, max_prompt_tokens: 200_000 })).toBe("prompts of at most 200,000 tokens");
  expect(tierText({ ...none, above_prompt_tokens: 1000, max_prompt_tokens: 2000 })).toBe(
    "prompts of more than 1,000 and at most 2,000 tokens",
  );
  expect(
    tierText({ ...none, above_prompt_tokens: 1000, service_tier: "flex", from: "2027-01-01", price_list: "own" }),
  ).toBe("prompts of more than 1,000 tokens, service tier flex, price list own, in force since 2027-01-01");
});
