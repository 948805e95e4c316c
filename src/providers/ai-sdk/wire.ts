import type {
  LanguageModelV4CallOptions,
  ProviderV4,
  SharedV4ProviderMetadata,
  SharedV4ProviderOptions,
} from "@ai-sdk/provider";
import type { CacheControl } from "../../api/chat/request.ts";
import type { FieldSupport } from "../fields.ts";
import type { UpstreamRequest, UpstreamUsage } from "../provider.ts";
import type { SchemaLimits } from "../schemas.ts";
import type { KindKey, ProviderSettings } from "../settings.ts";
import type { ReasoningForm } from "./reasoning.ts";

/** The part of `fetch` that the packages use. */
export type Fetch = (address: string | URL | Request, init?: RequestInit) => Promise<Response>;

type Models = Pick<ProviderV4, "languageModel" | "embeddingModel">;
/** Creates the models of a package for one call. Their requests use the call's own fetch. */
export type Connect = (fetch: Fetch) => Promise<Models>;

export interface EmbeddingWire {
  /** Returns the most inputs of one call of a model, where the package's number is too large; absent if it never is. */
  inputsACall?(model: string): number;
  /** Returns the package's own options, such as its name for `dimensions`; absent if it needs none. */
  options?(dimensions: number | undefined, model: string): SharedV4ProviderOptions;
}

/** Additions of one wire to the options that are the same on every wire. */
export interface Fit {
  /** Options that override the common ones. */
  options?: Partial<LanguageModelV4CallOptions>;
  own?: SharedV4ProviderOptions[string];
  /** Names of request hints that this wire cannot express for this request. */
  ignored?: readonly string[];
}

/**
 * One provider's wire, implemented by its AI SDK package. A wire adds only what the package cannot know: the source of the
 * keys, the names of OpenAI's fields in the package's options, and the fields that the next turn must send back.
 */
export interface Wire {
  /** The npm packages: optional dependencies, loaded when a provider of the kind is first called. */
  packages: readonly string[];
  keys: readonly KindKey[];
  /** Returns the fault of the settings, worded to follow "the kind … "; undefined if they are valid. */
  fault(settings: ProviderSettings): string | undefined;
  /** Called once per provider, so that it may keep credentials. `fetchToken` sends requests for access tokens. */
  connect(settings: ProviderSettings, fetchToken: Fetch): Connect;
  /** Absent where the provider, or its package, has no embeddings. */
  embedding?: EmbeddingWire;
  /** The hints, rare fields and parts that this wire takes; `fit` converts the fields. */
  fields: FieldSupport;
  /** Limits on the JSON schemas that the upstream enforces; absent: none. */
  schemas?: SchemaLimits;
  /** Converts fields whose names or bounds are specific to this wire. */
  fit(request: UpstreamRequest): Fit;
  prompt: PromptRules;
  /** The name of this wire in the package's options and metadata. */
  metadataKey: string;
  /** Absent if no signed reasoning is sent back. */
  reasoning?: ReasoningForm;
  /** The event that the package needs to report the end; appended to every stream, because it may break after it. */
  closing?: string;
  /** Reads the parts of the usage, such as audio tokens, from the unparsed counters, if the package does not pass them on. */
  partsOf?(raw: unknown): UpstreamUsage;
  /** Returns the package's own options that carry our id of the request to the upstream's log. Absent: it has no field for it. */
  identify?(requestId: string): SharedV4ProviderOptions[string];
  /** Counts the searches of an answer by the package's metadata. Absent if the upstream is asked for none. */
  searchesIn?(metadata: unknown): number;
}

/** The differences of a wire from most wires. */
export interface PromptRules {
  /** True if system messages must come first: later ones are moved there. */
  isSystemFirst?: boolean;
  /** True if reasoning is sent back as plain text; otherwise only signed reasoning is sent back. */
  takesPlainReasoning?: boolean;
  refusesImageAddresses?: boolean;
  takesToolImages?: boolean;
  /** True if the text of a message with tool calls is not sent back. */
  dropsTextWithCalls?: boolean;
  /** Converts an image's `detail` to the package's options; absent if the wire has no such option. */
  imageDetail?(detail: string): SharedV4ProviderMetadata;
  /** True if only PDF is taken as a file; otherwise the upstream decides. */
  takesOnlyPdf?: boolean;
  /** Returns the package's mark of what the upstream caches; undefined for a model that takes none. */
  cacheMark?(control: CacheControl, model: string): SharedV4ProviderMetadata | undefined;
  takesToolMarks?: boolean;
}

/** Returns the parts of a wire that needs only a key. `load` imports the function that creates the package's provider. */
export function keyed(
  name: string,
  load: () => Promise<(options: ReturnType<typeof optionsOf>) => Models>,
): Pick<Wire, "packages" | "keys" | "fault" | "connect"> {
  return {
    packages: [name],
    keys: ["apiKey", "baseUrl"],
    fault: (settings) => missingKey(settings, "apiKey"),
    connect: (settings) => async (fetch) => (await load())(optionsOf(settings, fetch)),
  };
}

/** Returns the fault of settings that lack one of some required keys; undefined if none is missing. */
export function missingKey(settings: ProviderSettings, ...keys: readonly KindKey[]): string | undefined {
  const absent = keys.filter((key) => !settings[key]);
  return absent.length === 0 ? undefined : `needs ${absent.join(" and ")}`;
}

/** Returns the options that most packages take in the same form. An empty key is none; left out, a package would look in the environment. */
export function optionsOf({ apiKey, baseUrl, headers }: ProviderSettings, fetch: Fetch) {
  return { apiKey: apiKey ?? "", ...(baseUrl !== null && { baseURL: baseUrl }), headers: { ...headers }, fetch };
}

/** Share of `max_tokens` for reasoning, on wires that need a number of tokens; below one half, so that an answer follows. */
export const REASONING_SHARES = { minimal: 0.1, low: 0.2, medium: 0.35, high: 0.45, xhigh: 0.45, max: 0.45 } as const;
