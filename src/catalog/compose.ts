import type { Static } from "typebox";
import type { Capability, Category, CutoffBasis } from "../api/model.ts";
import { TASKS, type Task } from "../api/tasks.ts";
import type { ModelSchema } from "../config/upstream-schema.ts";
import { IMAGE_TOKENS_MAX, type ModelFacts } from "./facts.ts";
import { type CatalogModel, dearestList, type EmbeddingSizes, type Route } from "./model.ts";

/** Everything that may be known of a model. Most of it is optional. */
export interface Knowledge {
  id: string;
  routes: readonly [Route, ...Route[]];
  facts?: ModelFacts | undefined;
  /** Settings from the configuration. They take precedence over the facts. */
  stated?: Stated;
  /** Display name, if there are no facts. */
  knownName?: string | undefined;
  /** Tokens, if there are no facts. */
  knownContextWindow?: number | undefined;
  /** Date of a local model's file, YYYY-MM-DD. */
  fileDate?: string | undefined;
  /** Capabilities that the provider does not support, although the model has them. */
  lacks?: readonly Capability[];
  refuses?: readonly string[] | undefined;
  isDeprecated?: boolean;
  /** Absent for a model that chats. */
  task?: Task | undefined;
  sentence: string;
}

/** Settings of a model itself, in the configuration. */
export type Stated = Omit<Static<typeof ModelSchema>, "id" | "routes" | "price" | "limits">;

/** Bound of an unknown context window, which holds cover. Hardly any model has more; its upstream would refuse it. */
const UNKNOWN_CONTEXT_WINDOW_TOKENS_MAX = 1_048_576;
/** Cutoff date of a model without facts: nearly every model in use knows events up to it. */
const ASSUMED_CUTOFF_DATE = "2023-12-31";
const ALWAYS: readonly Capability[] = ["chat", "streaming", "instructions"];
/** Capabilities of a model without facts. An upstream that lacks one of them refuses the request. */
const ASSUMED: readonly Capability[] = ["tools", "structured_output"];

/** Unix seconds of the day on which the facts were collected. Makers seldom state since when a model is deprecated. */
const DEPRECATIONS_KNOWN_SINCE = Date.parse("2026-11-21") / 1000;

/** Creates a model of the catalog. Configured values take precedence over known ones, and these over assumed ones. */
export function compose({ facts: given, ...others }: Knowledge): CatalogModel {
  const { id, routes, stated = {}, isDeprecated = false, task } = others;
  const isEmbedding = task === "embedding";
  // Facts of a model of another kind do not hold.
  const facts = (given?.embedding !== undefined) === isEmbedding ? given : undefined;
  const knowledge = { ...others, facts };
  const capabilities = capabilitiesOf(knowledge);
  const category = task ?? stated.category ?? categoryOf(capabilities, facts);
  const name = stated.name ?? facts?.name ?? knowledge.knownName ?? id;
  const contextWindow = stated.contextWindow ?? knowledge.knownContextWindow ?? facts?.contextWindow;
  const window = contextWindow ?? UNKNOWN_CONTEXT_WINDOW_TOKENS_MAX;
  const outputTokens =
    stated.maxOutputTokens ?? (task && TASKS[task].outputTokensMost) ?? facts?.maxOutputTokens ?? window;
  const cutoff = cutoffOf(knowledge);
  return {
    id,
    name,
    ownedBy: facts?.ownedBy ?? routes[0].providerId,
    category,
    description: stated.description ?? describe(knowledge, category, capabilities, window),
    capabilities,
    contextWindow: window,
    ...(contextWindow === undefined && { hasUnknownWindow: true }),
    maxOutputTokens: Math.min(outputTokens, window),
    cutoffDate: cutoff.date,
    cutoffBasis: cutoff.basis,
    created: Date.parse(facts?.released ?? knowledge.fileDate ?? cutoff.date) / 1000,
    deprecatedSince: isDeprecated || facts?.deprecated === true ? DEPRECATIONS_KNOWN_SINCE : null,
    shutdownDate: facts?.shutdownDate ?? null,
    replacement: facts?.replacement ?? null,
    playground: stated.playground ?? false,
    refusedParameters: new Set([...(facts?.refuses ?? []), ...(knowledge.refuses ?? [])]),
    imageTokensMax: facts?.imageTokensMax ?? IMAGE_TOKENS_MAX,
    ...(isEmbedding && { embedding: sizesOf(stated.dimensions, facts?.embedding) }),
    ...dearestList(routes),
    routes,
  };
}

function sizesOf(stated: number | undefined, known: ModelFacts["embedding"]): EmbeddingSizes {
  const dimensions = stated ?? known?.dimensions;
  if (dimensions === undefined) return {};
  return dimensions === known?.dimensions ? known : { dimensions };
}

function capabilitiesOf({ facts, stated, routes, lacks = [], task }: Knowledge): ReadonlySet<Capability> {
  if (task !== undefined) return new Set([TASKS[task].capability]);
  if (stated?.capabilities !== undefined) return new Set([...ALWAYS, ...stated.capabilities]);
  const isCachingCheaper = routes.some(({ prices }) => prices.cachedInput < prices.input);
  const known = [...(facts?.can ?? ASSUMED), ...(isCachingCheaper ? ["prompt_caching" as const] : [])];
  return new Set([...ALWAYS, ...known.filter((capability) => !lacks.includes(capability))]);
}

function categoryOf(capabilities: ReadonlySet<Capability>, facts: ModelFacts | undefined): Category {
  if (facts?.isForCode === true) return "code";
  if (capabilities.has("reasoning")) return "reasoning";
  return capabilities.has("vision") ? "vision" : "chat";
}

function cutoffOf({ stated, facts, fileDate }: Knowledge): { date: string; basis: CutoffBasis } {
  const date = stated?.cutoffDate ?? facts?.cutoffDate;
  if (date !== undefined) return { date, basis: "stated" };
  const released = facts?.released ?? fileDate;
  return released === undefined
    ? { date: ASSUMED_CUTOFF_DATE, basis: "assumed" }
    : { date: released, basis: "released" };
}

const KINDS: { [Name in Category]?: string } = {
  chat: "a chat model",
  code: "a model for code",
  reasoning: "a reasoning model",
  sandbox: "a model for tests",
  vision: "a chat model",
};

function describe(
  { facts, sentence }: Knowledge,
  category: Category,
  capabilities: ReadonlySet<Capability>,
  contextWindow: number,
): string {
  if (facts === undefined) return sentence;
  const window = contextWindow.toLocaleString("en-US");
  if (facts.embedding !== undefined) {
    return `${facts.name}: an embedding model with vectors of ${facts.embedding.dimensions} numbers, for inputs of up to ${window} tokens.`;
  }
  const month = new Date(facts.released).toLocaleDateString("en-US", {
    month: "long",
    year: "numeric",
    timeZone: "UTC",
  });
  const takes = capabilities.has("vision") ? "text and images" : "text";
  return `${facts.name} by ${facts.maker}: ${KINDS[category] ?? "a model"} of ${month} that takes ${takes}, with a context window of ${window} tokens.`;
}
