import { calcPrice, findProvider } from "@pydantic/genai-prices";
import { describe, expect, test } from "vitest";
import { priceOf } from "../credits/price.ts";
import { KNOWN_PROVIDERS } from "../providers/registry.ts";
import { offeredBy, offeredDollars } from "./facts.ts";
import { knownPrice, pricesIdOf } from "./known-prices.ts";
import { pricesAt } from "./model.ts";

const CREDITS = { perDollar: "1", markup: "0" };
const NOW = Date.parse("2026-11-21T12:00:00Z");
const AT = { credits: CREDITS, nowMs: NOW, isEmbedding: false };

function known(pricesId: string, model: string, nowMs = NOW, credits = CREDITS) {
  const priced = knownPrice(pricesId, model, { credits, nowMs, isEmbedding: false });
  if (typeof priced === "string") throw new Error(`${model}: ${priced}`);
  return priced;
}

describe("A known price", () => {
  test("is read exactly, each token class by its own figure or that of input or output.", () => {
    const { prices } = known("openai", "gpt-5-mini");
    expect(prices).toEqual({
      searches: 10_000_000_000n,
      input: 250_000n,
      cachedInput: 25_000n,
      cacheWrite: 250_000n,
      output: 2_000_000n,
      reasoning: 2_000_000n,
    });
  });

  test("is found by a dated name.", () => {
    expect(known("openai", "gpt-5-mini-2025-08-07").prices).toEqual(known("openai", "gpt-5-mini").prices);
  });

  test("below one micro-credit per token is exact.", () => {
    expect(known("cohere", "command-r7b-12-2024").prices.input).toBe(37_500n);
    expect(known("deepseek", "deepseek-v4-flash").prices.cachedInput).toBe(14_000n);
  });

  test("becomes credits at the rate and with the markup, rounded up.", () => {
    const { prices } = known("openai", "gpt-5-mini", NOW, { perDollar: "100", markup: "0.2" });
    expect(prices.input).toBe(30_000_000n);
    const odd = known("openai", "gpt-5-mini", NOW, { perDollar: "0.0000001", markup: "0" });
    expect(odd.prices.cachedInput).toBe(1n);
  });

  test("with dates is the one in force on the day.", () => {
    const at = (date: string) => known("google", "gemini-3.6-flash", Date.parse(date)).prices.input;
    expect(at("2026-12-31T23:59:59Z")).toBe(750_000n);
    expect(at("2027-01-01T00:00:00Z")).toBe(1_500_000n);
    expect(known("openai", "o3").prices.input).toBe(2_000_000n);
  });

  test("that depends on the time of day is the highest of the day.", () => {
    const night = known("deepseek", "deepseek-v4-flash", Date.parse("2026-11-21T20:00:00Z")).prices;
    const day = known("deepseek", "deepseek-v4-flash", Date.parse("2026-11-21T02:00:00Z")).prices;
    expect(night).toEqual(day);
    expect(night.input).toBe(440_000n);
  });

  test("that rises with the prompt has its highest tier and the prices of shorter prompts.", () => {
    const list = known("google", "gemini-2.5-pro");
    const { prices, tiers } = list;
    expect(prices.input).toBe(2_500_000n);
    expect(prices.output).toBe(15_000_000n);
    expect(tiers?.map(({ promptTokensMax }) => promptTokensMax)).toEqual([200_000]);
    expect(pricesAt(list, 200_000).input).toBe(1_250_000n);
    expect(pricesAt(list, 200_001).input).toBe(2_500_000n);
  });

  test("keeps, for long prompts, the classes and fees that have no tiers of their own.", () => {
    const search = { searches: 10_000_000_000n };
    for (const promptTokens of [1, 271_999, 272_000]) {
      expect(pricesAt(known("openai", "gpt-5.4"), promptTokens)).toMatchObject(search);
    }
    const grok = known("openrouter", "x-ai/grok-4-fast");
    const [short, long] = [1, 1_000_000].map((promptTokens) => pricesAt(grok, promptTokens));
    expect([short?.cachedInput, long?.cachedInput]).toEqual([50_000n, 50_000n]);
    expect(short?.input).toBeLessThan(long?.input ?? 0n);
  });

  test("is unknown for a model that the data lacks or lists without a price.", () => {
    expect(knownPrice("openai", "gpt-99", AT)).toBe("unknown");
    expect(knownPrice("nobody", "gpt-5-mini", AT)).toBe("unknown");
    expect(knownPrice("openai", "text-embedding-3-small", AT)).toBe("unknown");
    expect(knownPrice("cerebras", "qwen-3-coder-480b", AT)).toBe("unknown");
  });

  test("has parts and calls with prices of their own.", () => {
    expect(known("anthropic", "claude-opus-4-7").prices).toMatchObject({
      input: 5_000_000n,
      cachedInput: 500_000n,
      cacheWrite: 6_250_000n,
      ...{ cacheWrite1h: 10_000_000n, searches: 10_000_000_000n },
    });
    expect(known("openai", "gpt-audio").prices).toMatchObject({ inputAudio: 32_000_000n, outputAudio: 64_000_000n });
    // Dollars by the thousand requests: 0.012 credits each.
    expect(known("perplexity", "sonar").prices).toMatchObject({ requests: 12_000_000_000n });
  });

  test("does not exist for a model with charges that no answer reports.", () => {
    expect(knownPrice("perplexity", "sonar-deep-research", AT)).toBe("charged beyond the report");
    expect(knownPrice("openrouter", "perplexity/sonar", AT)).toBe("charged beyond the report");
    expect(knownPrice("openai", "gpt-4o-mini-search-preview", AT)).toBe("charged beyond the report");
    expect(knownPrice("openai", "o3-deep-research", AT)).toBe("charged beyond the report");
  });
});

describe("By the price data's own calculation,", () => {
  const HOURS = [0, 2, 5, 8, 12, 17, 20, 23];
  const PROMPTS = [1_000, 150_000, 250_000, 600_000];

  const byKey = KNOWN_PROVIDERS.filter(({ id, keyVariable }) => keyVariable !== null && offeredBy(id).length > 0);
  test.each(byKey.map((provider) => [provider.pricesId, provider.id]))(
    "no request to %s is charged less than it costs.",
    (pricesId, id) => {
      const provider = findProvider({ providerId: pricesId });
      let compared = 0;
      for (const name of offeredBy(id)) {
        const priced = knownPrice(pricesId, name, AT);
        if (typeof priced === "string" || provider === undefined) continue;
        for (const hour of HOURS) {
          for (const input of PROMPTS) {
            const cached = { cache_read_tokens: 500, cache_audio_read_tokens: 0 };
            const parts = { ...cached, cache_write_tokens: 300, input_audio_tokens: 200 };
            const usage = { input_tokens: input, ...parts, output_tokens: 2_000, output_audio_tokens: 100 };
            const cost = calcPrice(usage, name, { provider, timestamp: new Date(Date.UTC(2026, 10, 21, hour, 30)) });
            const classes = { input: input - 800, cachedInput: 500, cacheWrite: 300, output: 1_500, reasoning: 500 };
            const tokens = { ...classes, inputAudio: 200, outputAudio: 100, requests: 1 };
            const charged = Number(priceOf(tokens, pricesAt(priced, input))) / 1e6;
            expect(charged, `${name} at ${hour}:30 with ${input}`).toBeGreaterThanOrEqual(
              (cost?.total_price ?? 0) - 1e-9,
            );
            compared += 1;
          }
        }
      }
      expect(compared).toBeGreaterThan(0);
    },
  );
});

describe("The table's own prices", () => {
  test("are valid and belong only to models that need them.", () => {
    for (const { id, pricesId } of KNOWN_PROVIDERS) {
      for (const name of offeredBy(id)) {
        const dollars = offeredDollars(id, name);
        if (dollars === undefined) continue;
        const table = knownPrice(undefined, name, { ...AT, dollars });
        if (typeof table === "string") throw new Error(`${name}: ${table}`);
        const data = knownPrice(pricesId, name, AT);
        if (typeof data === "string") continue;
        const usual = data.tiers?.[0]?.prices ?? data.prices;
        expect(table.prices.input > usual.input || table.prices.output > usual.output, `${id} ${name}`).toBe(true);
      }
    }
  });

  test("raise a known price, never lower it, and never replace a fee per request.", () => {
    const data = known("mistral", "mistral-small-latest");
    const withTable = { ...AT, dollars: { input_mtok: 0.15, output_mtok: 0.01 } };
    const both = knownPrice("mistral", "mistral-small-latest", withTable);
    if (typeof both === "string") throw new Error(both);
    expect(both.prices.input).toBe(150_000n);
    expect(both.prices.output).toBe(data.prices.output);
    expect(knownPrice("openai", "gpt-99", withTable)).toMatchObject({ prices: { input: 150_000n, output: 10_000n } });
    expect(knownPrice("openrouter", "perplexity/sonar", withTable)).toBe("charged beyond the report");
    expect(knownPrice(undefined, "m", { ...AT, dollars: { input_mtok: 1 } })).toBe("unknown");
  });
});

test("A provider of the price data is found by its address.", () => {
  expect(pricesIdOf("https://api.novita.ai/v3/openai")).toBe("novita");
  expect(pricesIdOf("http://127.0.0.1:11434/v1")).toBeUndefined();
  expect(pricesIdOf(null)).toBeUndefined();
});
