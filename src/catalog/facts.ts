import { readdirSync, readFileSync } from "node:fs";
import type { ModelInfo } from "@pydantic/genai-prices";
import type { Capability } from "../api/model.ts";
import { isoDay } from "../api/time.ts";
import type { EmbeddingSizes } from "./model.ts";

/** Facts about a model that hold at every provider, from `facts/makers/`. */
export interface ModelFacts {
  /** The maker's short name, for `owned_by`. */
  ownedBy: string;
  maker: string;
  name: string;
  /** YYYY-MM-DD. */
  released: string;
  /** YYYY-MM-DD; undefined if the maker states none. */
  cutoffDate: string | undefined;
  contextWindow: number;
  maxOutputTokens: number;
  can: readonly Capability[];
  isForCode: boolean;
  refuses: readonly string[];
  imageTokensMax: number;
  deprecated: boolean;
  shutdownDate: string | null;
  replacement: string | null;
  /** Present for models that create embeddings. Their context window bounds each input. */
  embedding?: Required<EmbeddingSizes>;
}

/** Facts as a file has them: without those that are as usual. */
type WrittenFacts = Partial<ModelFacts> &
  Pick<ModelFacts, "name" | "released" | "contextWindow" | "maxOutputTokens" | "can">;

interface MakerFile {
  maker: string;
  ownedBy: string;
  models: Record<string, WrittenFacts>;
}

/** A provider's offer of a model: the key of the model's facts, and the values that differ at this provider. */
interface WrittenOffer extends Partial<Omit<ModelFacts, "can">> {
  model: string;
  lacks?: Capability[];
  dollars?: ListedPrice;
}

/** A price in dollars, in the form of the price data. */
export type ListedPrice = Exclude<ModelInfo["prices"], unknown[]>;

/** Bound of the tokens of one image if the model's documentation states none: the largest of the usual bounds. */
export const IMAGE_TOKENS_MAX = 4_800;

const models = new Map<string, ModelFacts>();
const makersFolder = new URL("./facts/makers/", import.meta.url);
for (const file of readdirSync(makersFolder).sort()) {
  const { maker, ownedBy, models: written } = readJson<MakerFile>(new URL(file, makersFolder));
  for (const [key, facts] of Object.entries(written)) models.set(key, readFacts(facts, maker, ownedBy));
}
const offers = readJson<Record<string, Record<string, string | WrittenOffer>>>(
  new URL("./facts/offers.json", import.meta.url),
);

/** Returns the names under which a known provider offers models with known facts. */
export function offeredBy(providerId: string): string[] {
  return Object.keys(offers[providerId] ?? {});
}

/** Finds the facts of a model by the upstream's name, also with a vendor, a date, a tag, or in Amazon's spelling. */
export function findFacts(providerId: string | undefined, model: string): ModelFacts | undefined {
  const names = spellings(model);
  const offered = providerId === undefined ? undefined : offers[providerId];
  for (const name of names) {
    const offer = offered?.[name];
    if (offer !== undefined) return offeredFacts(providerId, typeof offer === "string" ? { model: offer } : offer);
  }
  return names.map((name) => offeredFacts(providerId, { model: name })).find((facts) => facts !== undefined);
}

/** A provider that passes requests on to each maker's own API, so that the makers' shutdown dates apply there. */
const PASSES_ON = "openrouter";

function offeredFacts(
  providerId: string | undefined,
  { model, lacks = [], dollars: _dollars, ...differing }: WrittenOffer,
): ModelFacts | undefined {
  const made = models.get(model);
  if (made === undefined) return undefined;
  const endsWithMaker = providerId === made.ownedBy || providerId === PASSES_ON;
  const facts = endsWithMaker ? made : { ...made, deprecated: false, shutdownDate: null, replacement: null };
  const { deprecated = facts.deprecated || differing.shutdownDate !== undefined } = differing;
  return { ...facts, ...differing, can: facts.can.filter((capability) => !lacks.includes(capability)), deprecated };
}

/** Returns a provider's price of a model from `offers.json`, which lists only prices that the price data lacks or has too low. */
export function offeredDollars(providerId: string, model: string): ListedPrice | undefined {
  const offer = offers[providerId]?.[model];
  return typeof offer === "object" ? offer.dollars : undefined;
}

/** Ollama's other tags name models of other sizes; OpenRouter's are conditions of the same model. */
const DATE_OR_TAG = /(?:[-@](?:20\d{2}-\d{2}-\d{2}|20\d{6}|latest)|:(?:latest|free|nitro|floor|exacto|online))$/i;

/** Amazon's spelling, with a region and the maker: `eu.anthropic.claude-sonnet-4-5-20250929-v1:0`. */
const AMAZONS = /^(?:[a-z-]{2,6}\.)?[a-z0-9]+\.([a-z0-9.:-]+)$/;
const AMAZONS_VERSION = /-v\d+(?::\d+)?$|-\d+:\d+$/;

function spellings(model: string): string[] {
  const plain = model.toLowerCase();
  const bare = plain.slice(plain.lastIndexOf("/") + 1);
  const amazons = AMAZONS.exec(plain)?.[1] ?? plain;
  const unversioned = amazons.replace(AMAZONS_VERSION, "");
  const undated = [plain.replace(DATE_OR_TAG, ""), bare, bare.replace(":", "-"), bare.replace(DATE_OR_TAG, "")];
  const ofAmazon = [amazons.replace(/:\d+$/, ""), unversioned, unversioned.replace(DATE_OR_TAG, "")];
  return [...new Set([model, plain, ...undated, ...ofAmazon])];
}

/** Adds the usual facts to those that are written. */
export function readFacts({ cutoffDate, ...written }: WrittenFacts, maker: string, ownedBy: string): ModelFacts {
  return {
    maker,
    ownedBy,
    cutoffDate: cutoffDate && lastDay(cutoffDate),
    isForCode: false,
    refuses: [],
    imageTokensMax: IMAGE_TOKENS_MAX,
    deprecated: written.shutdownDate !== undefined,
    shutdownDate: null,
    replacement: null,
    ...written,
  };
}

function lastDay(date: string): string {
  if (date.length > "YYYY-MM".length) return date;
  const [year = 0, month = 0] = date.split("-").map(Number);
  return isoDay(Date.UTC(year, month, 0));
}

function readJson<T>(file: URL): T {
  return JSON.parse(readFileSync(file, "utf8")) as T;
}
