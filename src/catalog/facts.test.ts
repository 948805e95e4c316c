import { describe, expect, test } from "vitest";
import { CAPABILITIES } from "../api/model.ts";
import { KNOWN_PROVIDERS } from "../providers/registry.ts";
import offers from "./facts/offers.json" with { type: "json" };
import { findFacts, IMAGE_TOKENS_MAX, type ModelFacts, offeredBy } from "./facts.ts";

const offered = KNOWN_PROVIDERS.flatMap(({ id }) => offeredBy(id).map((name) => [id, name] as const));

function factsOf(providerId: string | undefined, name: string): ModelFacts {
  const facts = findFacts(providerId, name);
  if (facts === undefined) throw new Error(`${name} is not in the table`);
  return facts;
}

function isDay(text: string): boolean {
  const time = Date.parse(text);
  return /^\d{4}-\d{2}-\d{2}$/.test(text) && !Number.isNaN(time) && new Date(time).toISOString().startsWith(text);
}

describe("The table", () => {
  test("covers the providers that need only a key.", () => {
    const byKey = KNOWN_PROVIDERS.filter(({ keyVariable }) => keyVariable !== null);
    const ids = KNOWN_PROVIDERS.map(({ id }) => id);
    expect(Object.keys(offers).filter((id) => !ids.includes(id))).toEqual([]);
    // The models of a new provider may be missing; they need a configured price then.
    expect(byKey.map(({ id }) => offeredBy(id).length).filter((count) => count > 0 && count <= 2)).toEqual([]);
    expect(offered.length).toBeGreaterThan(300);
  });

  test.each(offered)("has plausible facts: %s %s.", (id, name) => {
    const facts = factsOf(id, name);
    expect(isDay(facts.released), facts.released).toBe(true);
    expect(facts.released >= "2020-01-01" && facts.released <= "2026-11-21").toBe(true);
    if (facts.cutoffDate !== undefined) {
      expect(isDay(facts.cutoffDate), facts.cutoffDate).toBe(true);
      expect(facts.cutoffDate < facts.released, `${facts.cutoffDate} is before ${facts.released}`).toBe(true);
    }
    if (facts.shutdownDate !== null) {
      expect(isDay(facts.shutdownDate) && facts.shutdownDate > facts.released).toBe(true);
      expect(facts.deprecated).toBe(true);
    }
    const { contextWindow, maxOutputTokens, embedding } = facts;
    expect(Number.isInteger(contextWindow) && contextWindow >= (embedding === undefined ? 4_096 : 2_048)).toBe(true);
    expect(Number.isInteger(maxOutputTokens) && maxOutputTokens >= 1).toBe(embedding === undefined);
    if (embedding !== undefined) expect(embedding.dimensions).toBeGreaterThan(0);
    for (const capability of facts.can) expect(CAPABILITIES).toContain(capability);
    expect(facts.imageTokensMax).toBeGreaterThan(0);
    expect(facts.name.trim()).toBe(facts.name);
    expect(facts.name).not.toBe("");
  });

  test("has the facts that makers document.", () => {
    expect(factsOf("openai", "gpt-5-mini")).toMatchObject({
      ownedBy: "openai",
      released: "2025-08-07",
      cutoffDate: "2024-05-30",
      contextWindow: 400_000,
      can: ["tools", "structured_output", "vision", "reasoning"],
    });
    expect(factsOf("anthropic", "claude-sonnet-4-5")).toMatchObject({
      released: "2025-09-29",
      cutoffDate: "2025-07-31",
    });
    expect(factsOf("google", "gemini-2.5-flash")).toMatchObject({ contextWindow: 1_048_576, cutoffDate: "2025-01-31" });
  });

  test("reads a cutoff month as its last day.", () => {
    expect(factsOf("openai", "gpt-4o-mini").cutoffDate).toBe("2023-09-30");
    expect(factsOf("deepseek", "deepseek-v4-pro").cutoffDate).toBe("2025-05-31");
    expect(factsOf("anthropic", "claude-haiku-4-5").cutoffDate).toBe("2025-02-28");
  });

  test("has the documented bound of an image's tokens.", () => {
    expect(factsOf("openai", "gpt-4o-mini").imageTokensMax).toBe(2_833 + 8 * 5_667);
    expect(factsOf("openai", "gpt-4o").imageTokensMax).toBe(85 + 8 * 170);
    expect(factsOf("anthropic", "claude-sonnet-4-5").imageTokensMax).toBe(IMAGE_TOKENS_MAX);
  });

  test("has the models of OpenAI that refuse a temperature.", () => {
    for (const name of ["gpt-5", "gpt-5-mini", "gpt-5-nano", "o1", "o3", "o4-mini", "gpt-6-sol"]) {
      expect(factsOf("openai", name).refuses, name).toEqual(
        expect.arrayContaining(["frequency_penalty", "logprobs", "presence_penalty", "temperature", "top_p"]),
      );
    }
    for (const name of ["gpt-4o", "gpt-4.1-mini"]) expect(factsOf("openai", name).refuses).toEqual([]);
  });

  test("offers only models that write text, and embeddings.", () => {
    const writing = offeredBy("openai").filter((name) => factsOf("openai", name).embedding === undefined);
    expect(writing.filter((name) => /embedding|audio|image|realtime/.test(name))).toEqual([]);
  });
});

describe("A model is found:", () => {
  test.each([
    [undefined, "gpt-5-mini-2025-08-07", "gpt-5-mini"],
    [undefined, "openai/gpt-5-mini", "gpt-5-mini"],
    [undefined, "OpenAI/GPT-OSS-20B", "gpt-oss-20b"],
    [undefined, "gpt-oss:20b", "gpt-oss-20b"],
    ["openai", "gpt-4o-2024-07-18", "gpt-4o"],
    ["anthropic", "claude-haiku-4-5-20251001", "claude-haiku-4-5"],
    ["mistral", "mistral-large-latest", "mistral-large-2512"],
    ["groq", "llama-3.3-70b-versatile", "llama-3.3-70b-instruct"],
    ["openrouter", "anthropic/claude-sonnet-4.5", "claude-sonnet-4-5"],
    ["bedrock", "eu.anthropic.claude-sonnet-4-5-20250929-v1:0", "claude-sonnet-4-5"],
    ["bedrock", "anthropic.claude-sonnet-4-6", "claude-sonnet-4-6"],
    ["bedrock", "openai.gpt-oss-120b-1:0", "gpt-oss-120b"],
    ["bedrock", "us.amazon.nova-pro-v1:0", "nova-pro-v1"],
    ["google-vertex", "gemini-2.5-flash", "gemini-2.5-flash"],
  ])("%s %s is %s.", (provider, name, key) => {
    expect(factsOf(provider, name).name).toBe(factsOf(undefined, key).name);
  });

  test("not by a similar name.", () => {
    expect(findFacts(undefined, "gpt")).toBeUndefined();
    expect(findFacts("openai", "my-gpt-4o-tune")).toBeUndefined();
    expect(findFacts(undefined, "constructor")).toBeUndefined();
    expect(findFacts("openai", "__proto__")).toBeUndefined();
    expect(offeredBy("constructor")).toEqual([]);
  });

  test("a snapshot with its own figures before the model's.", () => {
    expect(factsOf("openai", "gpt-4o-2024-11-20").name).toBe("GPT-4o (November 2024)");
  });

  test("with its maker's shutdown date only at its maker.", () => {
    expect(factsOf("openai", "o4-mini").shutdownDate).toBe("2026-10-23");
    expect(factsOf("openrouter", "openai/o4-mini").shutdownDate).toBe("2026-10-23");
    expect(factsOf(undefined, "o4-mini")).toMatchObject({ shutdownDate: null, deprecated: false, replacement: null });
  });

  test.each([
    ["gpt-5", "gpt-5.6-sol"],
    ["gpt-5-mini-2025-08-07", "gpt-5.6-terra"],
    ["gpt-5-nano", "gpt-5.6-luna"],
    ["o3", "gpt-5.6-sol"],
    ["gpt-5-pro", "gpt-5.6-sol"],
  ])("with OpenAI's shutdown date: %s is replaced by %s.", (name, replacement) => {
    expect(factsOf("openai", name)).toMatchObject({ deprecated: true, shutdownDate: "2026-12-11", replacement });
    expect(factsOf("azure", name)).toMatchObject({ deprecated: false, shutdownDate: null });
  });

  test("with the values that differ at the provider.", () => {
    expect(factsOf("cerebras", "gemma-4-31b").contextWindow).toBe(131_072);
    expect(factsOf("cerebras", "llama3.1-8b").deprecated).toBe(true);
    expect(factsOf(undefined, "gemma-4-31b-it").contextWindow).toBe(262_144);
  });
});
