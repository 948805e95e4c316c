import { parsePrice, type UnitPrices } from "../credits/price.ts";
import type { CatalogModel } from "./model.ts";

/** The provider of the built-in models. It exists unless the configuration disables the sandbox. */
export const SANDBOX_PROVIDER = { id: "sandbox", kind: "sandbox", baseUrl: null } as const;

const RELEASED = "2026-11-21";
const CONTEXT_WINDOW_TOKENS = 32_768;
const MAX_OUTPUT_TOKENS = 4_096;
const EMBEDDING_MODEL = "embed";
const EMBEDDING_DIMENSIONS = 256;

const NAMES = {
  echo: [
    "Sandbox Echo",
    "Answers with the last user message, word by word. For trying things out: no AI model is called.",
  ],
  story: ["Sandbox Story", "Writes the same story until max_tokens. For trying things out: no AI model is called."],
  fault: [
    "Sandbox Fault",
    "Fails the way its message says, such as a status, a delay or a reset. For testing clients: no AI model is called.",
  ],
} as const;

/** Returns the built-in models, which are deterministic and work offline. They have prices, so that charges can be tried out. */
export function sandboxModels(): CatalogModel[] {
  const input = parsePrice("1") ?? 0n;
  const output = parsePrice("2") ?? 0n;
  const prices: UnitPrices = { input, cachedInput: input, cacheWrite: input, output, reasoning: output };
  const chat = Object.entries(NAMES).map(
    ([model, [name, description]]): CatalogModel => ({
      id: `${SANDBOX_PROVIDER.id}/${model}`,
      name,
      ownedBy: "tollgate",
      category: "sandbox",
      description,
      capabilities: new Set(["chat", "streaming", "instructions", "tools", "structured_output"] as const),
      contextWindow: CONTEXT_WINDOW_TOKENS,
      maxOutputTokens: MAX_OUTPUT_TOKENS,
      cutoffDate: RELEASED,
      cutoffBasis: "released",
      created: Date.parse(RELEASED) / 1000,
      deprecatedSince: null,
      shutdownDate: null,
      replacement: null,
      playground: true,
      refusedParameters: new Set<string>(),
      imageTokensMax: 0,
      prices,
      routes: [{ providerId: SANDBOX_PROVIDER.id, model, prices }],
    }),
  );
  return [...chat, ...chat.slice(0, 1).map(toEmbedding)];
}

/** Makes the embedding model, whose facts are those of the others. */
function toEmbedding(chat: CatalogModel): CatalogModel {
  const prices: UnitPrices = { ...chat.prices, output: 0n, reasoning: 0n };
  return {
    ...chat,
    id: `${SANDBOX_PROVIDER.id}/${EMBEDDING_MODEL}`,
    name: "Sandbox Embed",
    category: "embedding",
    description: "Makes the same vector of the same text. For trying things out: no AI model is called.",
    capabilities: new Set(["embeddings"] as const),
    maxOutputTokens: 0,
    embedding: { dimensions: EMBEDDING_DIMENSIONS, choices: "shorter" },
    prices,
    routes: [{ providerId: SANDBOX_PROVIDER.id, model: EMBEDDING_MODEL, prices }],
  };
}
