import type { LanguageModelV4, LanguageModelV4CallOptions, SharedV4ProviderMetadata } from "@ai-sdk/provider";
import type { UpstreamRequest } from "../provider.ts";
import type { KindKey, ProviderSettings } from "../settings.ts";

/** What the packages take for fetch: only what they use of it. */
export type Fetch = (address: string | URL | Request, init?: RequestInit) => Promise<Response>;

/** Makes models of a package for one call, whose requests go through the call's own fetch. */
export type Connect = (fetch: Fetch) => Promise<(model: string) => Pick<LanguageModelV4, "doGenerate" | "doStream">>;

/** What a wire asks for beside what all wires take alike. */
export interface Fit {
  /** Over those that are the same on every wire. */
  options: Partial<LanguageModelV4CallOptions>;
  /** Hints that this wire cannot take with this request. */
  ignored: string[];
}

/**
 * One provider's wire, spoken by its AI SDK package. What stands here is only what the package cannot know: where keys
 * come from, how OpenAI's fields are called in its options, and what has to come back in the next turn.
 */
export interface Wire {
  /** The npm package: an optional dependency, loaded when a provider of the kind is first called. */
  package: string;
  /** Keys of the configuration that this kind takes. */
  keys: readonly KindKey[];
  /** What is wrong with the settings, after "the kind … "; undefined where nothing is. */
  fault(settings: ProviderSettings): string | undefined;
  /** Called once per provider, so that it may keep credentials. `settings.baseUrl` is the registry's where none is configured. `fetchToken` is for whatever tells who we are. */
  connect(settings: ProviderSettings, fetchToken: Fetch): Connect;
  /** Those of OpenAI's own fields that this wire has too, under whatever name. */
  takes: readonly OwnField[];
  /** What becomes of fields whose names or bounds are the wire's own. */
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
  /** Whether system messages may stand first alone: later ones are then moved there. */
  isSystemFirst: boolean;
  /** Whether reasoning goes back as plain text; else only what is signed does. */
  takesPlainReasoning: boolean;
  /** Whether the provider fetches an image from its address. */
  takesImageAddresses: boolean;
  /** Whether a tool's result may hold images. */
  takesToolImages: boolean;
  /** Whether text that stands beside tool calls goes back. */
  takesTextWithCalls: boolean;
  /** An image's `detail` in the package's options; absent: the wire has no such thing. */
  imageDetail?(detail: string): SharedV4ProviderMetadata;
}

/** What most wires do. */
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
