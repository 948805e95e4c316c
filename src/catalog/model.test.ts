import { describe, expect, test } from "vitest";
import { parsePrice } from "../credits/price.ts";
import type { CatalogModel } from "./model.ts";
import { priceList, toApiModel } from "./model.ts";
import { sandboxModels } from "./sandbox.ts";

function priced(input: string, cachedInput: string, output: string, more: Partial<CatalogModel> = {}) {
  const [echo] = sandboxModels();
  if (echo === undefined) throw new Error("There is no sandbox model");
  const read = (text: string) => parsePrice(text) ?? -1n;
  const prices = {
    input: read(input),
    cachedInput: read(cachedInput),
    cacheWrite: read(input),
    output: read(output),
    reasoning: read(output),
  };
  return toApiModel({ ...echo, prices, ...more });
}

describe("The pricing", () => {
  test.each([
    ["0.25", "2", "0.25 credits per million input tokens, 2.00 per million output tokens"],
    ["0.0375", "0.15", "0.0375 credits per million input tokens, 0.15 per million output tokens"],
    ["0", "0", "0.00 credits per million input tokens, 0.00 per million output tokens"],
    ["0.000001", "1234.5", "0.000001 credits per million input tokens, 1234.50 per million output tokens"],
  ])("of %s for input and %s for output names both prices.", (input, output, text) => {
    expect(priced(input, input, output).pricing).toBe(text);
  });

  test("is also given as numbers.", () => {
    expect(priced("0.25", "0.025", "2").pricing_details).toEqual({
      unit: "credits_per_million_tokens",
      input: 0.25,
      cached_input: 0.025,
      cache_write: 0.25,
      output: 2,
      reasoning: 2,
    });
  });

  test("lists parts and calls with prices of their own, calls only where a route makes them.", () => {
    const classes = { input: 5_000_000n, cachedInput: 500_000n, cacheWrite: 6_250_000n };
    const further = { cacheWrite1h: 10_000_000n, requests: 12_000_000_000n, searches: 10_000_000_000n };
    const prices = { ...classes, output: 25_000_000n, reasoning: 25_000_000n, ...further };
    const shown = priced("1", "1", "1", { prices });
    expect(shown.pricing_details).toEqual({
      unit: "credits_per_million_tokens",
      ...{ input: 5, cached_input: 0.5, cache_write: 6.25, output: 25, reasoning: 25 },
      ...{ cache_write_1h: 10, requests: 0.012 },
    });
    expect(shown.pricing).toBe(
      "5.00 credits per million input tokens, 25.00 per million output tokens; 0.012 per request",
    );
    const routes = [{ providerId: "p", model: "m", prices, callsMost: 1 }] as const;
    expect(priced("1", "1", "1", { prices, routes }).pricing_details).toMatchObject({ searches: 0.01 });
  });

  test("of a model with dearer long prompts gives the usual prices first, then those of long prompts.", () => {
    const usual = {
      input: 2_500_000n,
      cachedInput: 250_000n,
      cacheWrite: 2_500_000n,
      output: 15_000_000n,
      reasoning: 15_000_000n,
    };
    const long = { ...usual, input: 5_000_000n, output: 22_500_000n };
    const byLength = [
      { above: 0, prices: usual },
      { above: 271_999, prices: long },
    ];
    const shown = priced("1", "1", "1", priceList(byLength));
    expect(shown.pricing_details).toMatchObject({ input: 2.5, cached_input: 0.25, output: 15 });
    expect(shown.pricing_details.tiers).toMatchObject([{ above_prompt_tokens: 271_999, input: 5, output: 22.5 }]);
    expect(shown.pricing).toBe(
      "2.50 credits per million input tokens, 15.00 per million output tokens; with a prompt of more than 271,999 tokens 5.00 and 22.50",
    );
  });
});

test("Capabilities are listed in the order of the API.", () => {
  const capabilities = new Set(["vision", "tools", "instructions", "streaming", "chat"] as const);
  expect(priced("1", "1", "1", { capabilities }).capabilities).toEqual([
    "chat",
    "streaming",
    "instructions",
    "tools",
    "vision",
  ]);
});

test("A model tells what clients look for under other names.", () => {
  const capabilities = new Set(["vision", "tools", "structured_output", "chat"] as const);
  const shown = priced("1", "1", "1", { capabilities, refusedParameters: new Set(["seed", "logit_bias"]) });
  expect(shown.context_length).toBe(shown.context_window);
  expect(shown.max_input_tokens).toBe(shown.context_window);
  expect(shown.input_modalities).toEqual(["text", "image"]);
  expect(shown.supported_parameters).toEqual(
    expect.arrayContaining(["temperature", "tools", "tool_choice", "response_format", "structured_outputs"]),
  );
  for (const refused of ["seed", "logit_bias", "reasoning_effort"]) {
    expect(shown.supported_parameters).not.toContain(refused);
  }
});

test("A deprecated model shows its shutdown date and replacement.", () => {
  const shown = priced("1", "1", "1", { deprecatedSince: 1, shutdownDate: "2026-12-01", replacement: "b" });
  expect(shown).toMatchObject({ deprecated: true, shutdown_date: "2026-12-01", replacement: "b" });
});
