import type {
  EmbeddingModelV4,
  LanguageModelV4,
  LanguageModelV4CallOptions,
  SharedV4ProviderMetadata,
  SharedV4ProviderOptions,
} from "@ai-sdk/provider";
import type { UpstreamRequest } from "../provider.ts";
import type { KindKey, ProviderSettings } from "../settings.ts";

/** The part of `fetch` that the packages use. */
export type Fetch = (address: string | URL | Request, init?: RequestInit) => Promise<Response>;

/** Makes models of a package for one call, whose requests go through the call's own fetch. */
export type Connect = (fetch: Fetch) => Promise<(model: string) => Pick<LanguageModelV4, "doGenerate" | "doStream">>;

/** Embeddings on one wire. */
export interface EmbeddingWire {
  /** Makes embedding models for one call, as `Connect` makes language models. */
  connect(settings: ProviderSettings): (fetch: Fetch) => Promise<(model: string) => EmbeddingModelV4>;
  /** Returns the package's own options, such as its name for `dimensions`; absent if it needs none. */
  options?(dimensions: number | undefined, model: string): SharedV4ProviderOptions;
}

/** Additions of one wire to the options that are the same on every wire. */
export interface Fit {
  /** Options that override the common ones. */
  options: Partial<LanguageModelV4CallOptions>;
  /** Names of request hints that this wire cannot express for this request. */
  ignored: string[];
}

/**
 * One provider's wire, implemented by its AI SDK package. A wire adds only what the package cannot know: the source of the
 * keys, the names of OpenAI's fields in the package's options, and the fields that the next turn must send back.
 */
export interface Wire {
  /** The npm package: an optional dependency, loaded when a provider of the kind is first called. */
  package: string;
  /** Keys of the configuration that this kind takes. */
  keys: readonly KindKey[];
  /** Returns the fault of the settings, worded to follow "the kind … "; undefined if they are valid. */
  fault(settings: ProviderSettings): string | undefined;
  /**
   * Called once per provider, so that it may keep credentials. `settings.baseUrl` is the registry's if none is configured.
   * `fetchToken` sends requests for access tokens.
   */
  connect(settings: ProviderSettings, fetchToken: Fetch): Connect;
  /** Absent where the provider, or its package, has no embeddings. */
  embedding?: EmbeddingWire;
  /** Fields of `OWN_FIELDS` that this wire supports, under any name. */
  takes: readonly OwnField[];
  /** Converts fields whose names or bounds are specific to this wire. */
  fit(request: UpstreamRequest): Fit;
  prompt: PromptRules;
  /** Metadata by which the package names this wire, and the fields of it that signed reasoning needs in the next turn. */
  metadataKey: string;
  reasoningFields: readonly string[];
  /** The event without which the package tells no end: a stream that breaks after its finish reason is complete all the same. */
  closing?: string;
  /** Log probabilities of a chunk as it came, where the package passes none on. */
  logprobsOf?(raw: unknown): unknown;
}

/** Fields of a request that the packages know as options of single providers alone. */
export const OWN_FIELDS = ["user", "logit_bias", "parallel_tool_calls", "logprobs"] as const;
type OwnField = (typeof OWN_FIELDS)[number];

export interface PromptRules {
  /** True if system messages must come first: later ones are moved there. */
  isSystemFirst: boolean;
  /** True if reasoning is sent back as plain text; otherwise only signed reasoning is sent back. */
  takesPlainReasoning: boolean;
  /** True if the provider fetches images from their addresses. */
  takesImageAddresses: boolean;
  /** True if a tool's result may contain images. */
  takesToolImages: boolean;
  /** True if the text of a message with tool calls is sent back. */
  takesTextWithCalls: boolean;
  /** Converts an image's `detail` to the package's options; absent if the wire has no such option. */
  imageDetail?(detail: string): SharedV4ProviderMetadata;
}

/** Rules of most wires. */
export const USUAL_PROMPT: PromptRules = {
  isSystemFirst: false,
  takesPlainReasoning: false,
  takesImageAddresses: true,
  takesToolImages: false,
  takesTextWithCalls: true,
};

/** The fault of settings that need each of some keys. */
export function missing(settings: ProviderSettings, ...keys: readonly KindKey[]): string | undefined {
  const absent = keys.filter((key) => !settings[key]);
  return absent.length === 0 ? undefined : `needs ${absent.join(" and ")}`;
}

/** Returns the options that all packages take alike. */
export function optionsOf({ apiKey, baseUrl, headers }: ProviderSettings, fetch: Fetch) {
  return { apiKey: apiKey ?? "", ...(baseUrl !== null && { baseURL: baseUrl }), headers: { ...headers }, fetch };
}

/** Share of `max_tokens` that may go into reasoning, on wires that want a number; below one half, so that an answer follows. */
export const REASONING_SHARES = { minimal: 0.1, low: 0.2, medium: 0.35, high: 0.45, xhigh: 0.45 } as const;
