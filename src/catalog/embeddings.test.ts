import { describe, expect, test } from "vitest";
import { buildCatalog } from "./build.ts";
import type { ModelSettings } from "./configured.ts";

const OPENAI = { id: "openai", kind: "openai-compatible", baseUrl: "https://api.openai.com/v1" };
const SERVER = { id: "server", kind: "openai-compatible", baseUrl: "http://127.0.0.1:1/v1" };

function build(models: ModelSettings[] = []) {
  const credits = { perDollar: "1", markup: "0" };
  return buildCatalog({ models, providers: [OPENAI, SERVER], credits }, Date.parse("2026-11-22"));
}

const routeTo = (model: string, provider = "server") => [{ provider, model }];
const price = { input: "0.5", output: "0" };

test("A known embedding model has its facts, and a price for input alone.", () => {
  const model = build().find("text-embedding-3-small");
  expect(model).toMatchObject({
    ...{ category: "embedding", contextWindow: 8192, maxOutputTokens: 0, ownedBy: "openai" },
    ...{ cutoffDate: "2024-01-25", cutoffBasis: "released" },
    embedding: { dimensions: 1536, choices: "shorter" },
    prices: { input: 20_000n, output: 0n },
  });
  expect([...(model?.capabilities ?? [])]).toEqual(["embeddings"]);
});

test("A configured model with a known name is an embedding model without further settings.", () => {
  const model = build([{ id: "mine", routes: routeTo("text-embedding-ada-002", "openai") }]).find("mine");
  expect(model).toMatchObject({ category: "embedding", embedding: { dimensions: 1536, choices: [] } });
});

test("A configured model is what its settings say.", () => {
  const stated = { category: "embedding", contextWindow: 512, dimensions: 768 } as const;
  const model = build([{ id: "mine", ...stated, price, routes: routeTo("nomic") }]).find("mine");
  expect(model).toMatchObject({ category: "embedding", contextWindow: 512, embedding: { dimensions: 768 } });
  expect(model?.embedding?.choices).toBeUndefined();
});

test("A route of the sandbox's embedding model creates embeddings.", () => {
  const model = build([{ id: "mine", routes: routeTo("embed", "sandbox") }]).find("mine");
  expect(model?.category).toBe("embedding");
});

describe("A setting that means nothing for the kind of model is refused:", () => {
  test.each<[Partial<ModelSettings>, string]>([
    [{ category: "chat", dimensions: 3 }, "models[0].dimensions: found 3; allowed: only beside the category embedding"],
    [{ category: "chat", capabilities: ["embeddings"] }, 'models[0].category: found "chat"; allowed: embedding'],
    [
      { category: "embedding", capabilities: ["tools"] },
      'models[0].capabilities: found "tools"; allowed: embeddings alone',
    ],
    [
      { category: "embedding", maxOutputTokens: 9 },
      "models[0].maxOutputTokens: found 9; allowed: nothing for an embedding model",
    ],
  ])("%j", (settings, message) => {
    expect(() => build([{ id: "mine", routes: routeTo("m"), price, ...settings }])).toThrow(message);
  });
});
