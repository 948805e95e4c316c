import { describe, expect, test } from "vitest";
import { buildCatalog } from "./build.ts";
import type { ModelSettings } from "./configured.ts";

const OPENAI = { id: "openai", kind: "openai-compatible", baseUrl: "https://api.openai.com/v1" };
const SERVER = { id: "server", kind: "openai-compatible", baseUrl: "http://127.0.0.1:1/v1" };

const CREDITS = { perDollar: "1", markup: "0" };
const NOW_MS = Date.parse("2026-11-22");

function build(models: ModelSettings[] = []) {
  return buildCatalog({ models, providers: [OPENAI, SERVER], credits: CREDITS }, NOW_MS);
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

test.each<[string, Partial<ModelSettings>]>([
  ["a stated category", { category: "embedding", routes: routeTo("nomic") }],
  ["a known name", { routes: routeTo("text-embedding-3-small", "openai") }],
])("A price of an embedding model needs no output: by %s.", (_name, settings) => {
  const list = [{ from: "2026-01-01", input: "0.5" }];
  for (const stated of [{ input: "0.5" }, list]) {
    const model = build([{ id: "mine", price: stated, routes: [], ...settings }]).find("mine");
    expect(model?.prices).toMatchObject({ input: 500_000n, output: 0n, reasoning: 0n });
  }
});

test("Vertex AI's embedding model has Google's price and facts.", () => {
  const vertex = { id: "cloud", kind: "google-vertex", baseUrl: null };
  const catalog = buildCatalog({ ...{ models: [], providers: [vertex] }, credits: CREDITS }, NOW_MS);
  expect(catalog.find("gemini-embedding-001")).toMatchObject({
    ...{ category: "embedding", ownedBy: "google", contextWindow: 2_048, prices: { input: 150_000n, output: 0n } },
    ...{ embedding: { dimensions: 3_072, choices: "shorter" }, routes: [{ providerId: "cloud" }] },
  });
});

test("Embedding models of a local server are free, and are not offered as chat models.", () => {
  const ollama = { id: "ollama", name: "Ollama", kind: "openai-compatible", baseUrl: "http://127.0.0.1:1/v1" };
  const models = [
    { name: "nomic-embed-text:latest", contextWindow: 2_048, fileDate: "2025-03-04", embedding: { dimensions: 768 } },
    { name: "plain", embedding: {} },
  ];
  const found = [{ ...ollama, models }];
  const catalog = buildCatalog({ models: [], providers: [], credits: CREDITS, found }, NOW_MS);
  const nomic = catalog.find("ollama/nomic-embed-text:latest");
  expect(nomic).toMatchObject({
    ...{
      category: "embedding",
      ownedBy: "ollama",
      prices: { input: 0n, output: 0n },
      contextWindow: 2_048,
      maxOutputTokens: 0,
    },
    ...{ embedding: { dimensions: 768 }, cutoffDate: "2025-03-04" },
  });
  expect([...(nomic?.capabilities ?? [])]).toEqual(["embeddings"]);
  expect(catalog.find("ollama/plain")?.embedding).toEqual({});
});

test("A route of the sandbox's embedding model creates embeddings.", () => {
  const model = build([{ id: "mine", routes: routeTo("embed", "sandbox") }]).find("mine");
  expect(model?.category).toBe("embedding");
});

describe("A setting that means nothing for the kind of model is refused:", () => {
  test.each<[Partial<ModelSettings>, string]>([
    [{ category: "chat", dimensions: 3 }, "models[0].dimensions: found 3; allowed: only with the category embedding"],
    [{ category: "chat", capabilities: ["embeddings"] }, 'models[0].category: found "chat"; allowed: embedding'],
    [
      { category: "embedding", capabilities: ["tools"] },
      'models[0].capabilities: found "tools"; allowed: embeddings alone',
    ],
    [
      { category: "embedding", maxOutputTokens: 9 },
      "models[0].maxOutputTokens: found 9; allowed: nothing for a model of the category embedding",
    ],
  ])("%j", (settings, message) => {
    expect(() => build([{ id: "mine", routes: routeTo("m"), price, ...settings }])).toThrow(message);
  });
});
