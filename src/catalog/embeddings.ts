import { readFileSync } from "node:fs";
import { compose, type Knowledge, type Stated } from "./compose.ts";
import type { CatalogModel, EmbeddingSizes } from "./model.ts";

/** Facts about an embedding model. */
interface EmbeddingFacts {
  name: string;
  /** YYYY-MM-DD. */
  released: string;
  /** Tokens of one input at most. */
  input: number;
  dimensions: number;
  choices: readonly number[] | "shorter";
}

/** The facts by the id of a known provider and the name that it has for the model. */
const offers = JSON.parse(readFileSync(new URL("./facts/embeddings.json", import.meta.url), "utf8")) as Record<
  string,
  Record<string, EmbeddingFacts>
>;
const facts = new Map(
  Object.entries(offers).flatMap(([ownedBy, models]) =>
    Object.entries(models).map(([name, one]) => [name, { ...one, ownedBy }]),
  ),
);

/** Returns the names under which a known provider offers embedding models with known facts. */
export function offeredEmbeddings(providerId: string): string[] {
  return Object.keys(offers[providerId] ?? {});
}

/** Tells whether an upstream's name of a model is that of an embedding model with known facts. */
export function isKnownEmbedding(model: string): boolean {
  return factsOf(model) !== undefined;
}

/** Hosts put the maker before a model's name. */
function factsOf(model: string) {
  return facts.get(model) ?? facts.get(model.slice(model.lastIndexOf("/") + 1));
}

/** Composes an embedding model from what is stated, else known, else assumed. */
export function composeEmbedding(
  knowledge: Omit<Knowledge, "facts">,
  stated: Stated & Pick<EmbeddingSizes, "dimensions"> = {},
): CatalogModel {
  const { id, routes, sentence } = knowledge;
  const known = factsOf(routes[0].model);
  const contextWindow = stated.contextWindow ?? known?.input ?? knowledge.knownContextWindow;
  const cutoffDate = stated.cutoffDate ?? known?.released;
  const model = compose({
    ...knowledge,
    knownName: known?.name ?? knowledge.knownName,
    knownContextWindow: contextWindow,
    fileDate: known?.released ?? knowledge.fileDate,
    stated: { ...stated, category: "embedding", description: stated.description ?? describe(known) ?? sentence },
  });
  const dimensions = stated.dimensions ?? known?.dimensions;
  return {
    ...model,
    id,
    ownedBy: known?.ownedBy ?? model.ownedBy,
    capabilities: new Set(["embeddings"]),
    maxOutputTokens: 0,
    ...(cutoffDate !== undefined && { cutoffDate }),
    embedding: {
      ...(dimensions !== undefined && { dimensions }),
      ...(known !== undefined && dimensions === known.dimensions && { choices: known.choices }),
    },
    // A context window bounds each input alone, not their sum.
    routes: routes.map(({ contextWindow: _each, ...route }) => route),
  };
}

function describe(known: EmbeddingFacts | undefined): string | undefined {
  if (known === undefined) return undefined;
  const { name, dimensions, input } = known;
  const tokens = input.toLocaleString("en-US");
  return `${name}: an embedding model with vectors of ${dimensions} numbers, for inputs of up to ${tokens} tokens.`;
}
