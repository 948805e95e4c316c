import { describe, expect, test } from "vitest";
import { OperatorError } from "../errors.ts";
import { buildCatalog, type CatalogSources } from "./build.ts";
import type { FoundServer } from "./local-servers.ts";

const ANTHROPIC = { id: "anthropic", kind: "anthropic", baseUrl: null };
const OPENAI = { id: "openai", kind: "openai-compatible", baseUrl: "https://api.openai.com/v1" };
const LOCAL = { id: "local", kind: "openai-compatible", baseUrl: "http://127.0.0.1:9/v1" };
const price = { input: "1", output: "1" };
const modelOf = (id: string) => ({ id, price, routes: [{ provider: "local", model: id }] });
const MODELS = [modelOf("large"), modelOf("small"), modelOf("claude-own")];

function catalogOf(sources: Partial<CatalogSources>) {
  const usual = { models: [], providers: [LOCAL], credits: { perDollar: "1", markup: "0" } };
  return buildCatalog({ ...usual, ...sources }, Date.parse("2026-11-21"));
}
const found = (sources: Partial<CatalogSources>, name: string) => catalogOf(sources).find(name)?.id;

describe("An alias", () => {
  const aliases = { "gpt-4o": "small", "claude-*": "small", "claude-opus-*": "large" };
  const sources = { models: MODELS, aliases };

  test.each([
    ["gpt-4o", "small"],
    ["gpt-4o-mini", undefined],
    ["claude-sonnet-9", "small"],
    ["claude-", "small"],
    ["claude-opus-9", "large"],
    ["claude-own", "claude-own"],
    ["Claude-opus-9", undefined],
    ["large", "large"],
  ])(
    "finds by the name %s the model %s: an id comes first, then a whole name, then the longest beginning.",
    (name, id) => expect(found(sources, name)).toBe(id),
  );

  test.each([
    [
      { a: "none" },
      'aliases.a: found "none", which is no model; allowed: claude-own, large, sandbox/echo, sandbox/embed, sandbox/fault, sandbox/image, sandbox/speech, sandbox/story, …',
    ],
    [{ a: "ollama/x" }, 'aliases.a: found "ollama/x", which is no model'],
    [{ a: "a" }, 'aliases.a: found another alias, "a"'],
    [{ a: "b", b: "a" }, 'aliases.a: found another alias, "b"'],
    [{ a: "b", b: "small" }, 'aliases.a: found another alias, "b"; allowed: the id of the model itself, small'],
    [{ small: "large" }, "aliases.small: found the id of a model; allowed: a name that no model has"],
  ])("that is %j is refused with the key, the value and the allowed values.", (wrong, message) => {
    expect(() => catalogOf({ models: MODELS, aliases: wrong })).toThrow(OperatorError);
    expect(() => catalogOf({ models: MODELS, aliases: wrong })).toThrow(message);
  });

  test("of a model of a local server waits until the server is found.", () => {
    const server: FoundServer = {
      id: "ollama",
      name: "Ollama",
      kind: "openai-compatible",
      baseUrl: "http://127.0.0.1:11434/v1",
      models: [{ name: "qwen3" }],
    };
    const waiting = { aliases: { coder: "ollama/qwen3" } };
    expect(found(waiting, "coder")).toBeUndefined();
    expect(found({ ...waiting, found: [server] }, "coder")).toBe("ollama/qwen3");
    expect(found({ found: [server] }, "claude-sonnet-9")).toBe("ollama/qwen3");
  });
});

describe("Without configured models", () => {
  test("claude-* names a Claude where one is offered, which is not the most expensive one.", () => {
    const catalog = catalogOf({ providers: [OPENAI, ANTHROPIC] });
    const model = catalog.find("claude-of-tomorrow");
    expect(model?.id).toMatch(/^claude-/);
    expect(model?.capabilities).toContain("tools");
    const claudes = catalog.list().filter(({ id }) => id.startsWith("claude-"));
    expect(claudes.some(({ prices }) => prices.output > (model?.prices.output ?? 0n))).toBe(true);
    expect(catalog.find("claude-opus-4-5")?.id).toBe("claude-opus-4-5");
  });

  test("claude-* names a model of another provider, and without a provider one of the sandbox.", () => {
    const model = catalogOf({ providers: [OPENAI] }).find("claude-sonnet-4-5");
    expect(model?.ownedBy).toBe("openai");
    expect(found({ providers: [] }, "claude-sonnet-4-5")).toBe("sandbox/echo");
  });

  test("gemini-* does the same for Gemini CLI, with a Gemini where one is offered.", () => {
    const google = { ...OPENAI, id: "google", kind: "google" as const, baseUrl: null };
    expect(found({ providers: [OPENAI, google] }, "gemini-of-tomorrow")).toMatch(/^gemini-/);
    expect(found({ providers: [OPENAI, google] }, "claude-sonnet-4-5")).not.toMatch(/^sandbox/);
    expect(found({ providers: [] }, "gemini-of-tomorrow")).toBe("sandbox/echo");
  });

  test("there is no alias with an empty setting, none where models are configured, and never one for every name.", () => {
    expect(found({ providers: [OPENAI], aliases: {} }, "claude-sonnet-4-5")).toBeUndefined();
    expect(found({ models: [modelOf("large")] }, "claude-sonnet-4-5")).toBeUndefined();
    expect(found({ providers: [OPENAI] }, "unknown")).toBeUndefined();
  });
});
