import { describe, expect, test } from "vitest";
import { KNOWN_PROVIDERS, PROVIDER_KEY_VARIABLES } from "../providers/registry.ts";
import { deviationsOf, identify, limitsOf, providersOfKeys } from "./known-providers.ts";

describe("A provider is identified", () => {
  test.each(KNOWN_PROVIDERS)("by its kind or address: $id.", (provider) => {
    expect(identify(provider)).toBe(provider);
    if (provider.baseUrl === null) return;
    expect(identify({ kind: "openai-compatible", baseUrl: `${provider.baseUrl}/` })).toBe(provider);
  });

  test.each([
    ["anthropic", null, "anthropic"],
    ["google", null, "google"],
    ["mistral", "https://proxy.example/v1", "mistral"],
    ["openai-compatible", "https://api.together.ai/v1", "together"],
    ["openai-compatible", "https://api.x.ai/v1", "xai"],
    ["bedrock", null, "bedrock"],
    ["azure", "https://gateway.example/v1", "azure"],
  ])("%s %s", (kind, baseUrl, id) => {
    expect(identify({ kind, baseUrl })?.id).toBe(id);
  });

  test.each([
    ["http://127.0.0.1:11434/v1"],
    ["https://api.openai.com.evil.example/v1"],
    ["https://evil.example/api.openai.com"],
    ["not an address"],
  ])("not by another address: %s.", (baseUrl) => {
    expect(identify({ kind: "openai-compatible", baseUrl })).toBeUndefined();
  });

  test("not by the kind of all compatible APIs.", () => {
    expect(identify({ kind: "openai-compatible", baseUrl: null })).toBeUndefined();
    expect(identify({ kind: "constructor", baseUrl: null })).toBeUndefined();
  });
});

describe("The request format of an OpenAI-compatible API", () => {
  test.each([
    ["https://api.openai.com/v1", "max_completion_tokens"],
    ["https://eu.api.openai.com/v1", "max_completion_tokens"],
    ["https://api.moonshot.cn/v1", "max_completion_tokens"],
    ["https://api.openai.com.example/v1", undefined],
    ["https://fakeapi.openai.com.test/v1", undefined],
    ["http://127.0.0.1:8080/v1", undefined],
  ])("%s", (baseUrl, maxTokens) => {
    expect(deviationsOf({ kind: "openai-compatible", baseUrl }).requestFormat?.maxTokensField).toBe(maxTokens);
  });

  test("is absent for another wire.", () => {
    expect(deviationsOf({ kind: "anthropic", baseUrl: "https://api.openai.com/v1" }).requestFormat).toBeUndefined();
  });

  test("is separate from the limits of the provider's own wire.", () => {
    const kinds = ["anthropic", "openai-compatible"];
    const [own, compatible] = kinds.map((kind) => {
      const identity = { kind, baseUrl: "https://api.anthropic.com/v1" };
      const known = identify(identity);
      return known && limitsOf(known, identity);
    });
    expect(own?.refuses).not.toContain("reasoning_effort");
    expect(compatible?.refuses).toContain("reasoning_effort");
  });
});

describe("Keys in the environment", () => {
  test("create providers in the order of the table.", () => {
    const found = providersOfKeys({ GROQ_API_KEY: "b", OPENAI_API_KEY: "a", UNKNOWN_KEY: "c", XAI_API_KEY: "" });
    expect(found.map(({ id, apiKey, baseUrl, kind }) => [id, apiKey, baseUrl, kind])).toEqual([
      ["openai", "a", "https://api.openai.com/v1", "openai-compatible"],
      ["groq", "b", "https://api.groq.com/openai/v1", "openai-compatible"],
    ]);
  });

  test("are ignored for a provider that is configured by id or address.", () => {
    const keys = { OPENAI_API_KEY: "a", GROQ_API_KEY: "b", MISTRAL_API_KEY: "c" };
    const configured = [
      { id: "mine", kind: "openai-compatible", baseUrl: "https://api.openai.com/v1" },
      { id: "groq", kind: "openai-compatible", baseUrl: "https://proxy.example/v1" },
    ];
    expect(providersOfKeys(keys, configured).map(({ id }) => id)).toEqual(["mistral"]);
  });

  test("have unique variables.", () => {
    expect(new Set(PROVIDER_KEY_VARIABLES).size).toBe(PROVIDER_KEY_VARIABLES.length);
    expect(PROVIDER_KEY_VARIABLES).toEqual(
      expect.arrayContaining(["OPENAI_API_KEY", "ANTHROPIC_API_KEY", "GEMINI_API_KEY"]),
    );
    expect(new Set(KNOWN_PROVIDERS.map(({ id }) => id)).size).toBe(KNOWN_PROVIDERS.length);
  });
});
