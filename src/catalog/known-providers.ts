import type { Capability } from "../contract/model.ts";

/** A provider that is known by its address, so that its models' facts and prices are known too. */
export interface KnownProvider {
  /** Also the name under which `facts/offers.json` lists its models. */
  id: string;
  /** The environment variable that its users keep their key in. */
  keyVariable: string;
  kind: string;
  baseUrl: string;
  /** Its name in the price data. */
  pricesId: string;
  /** What its models can, but not through this address. */
  lacks: readonly Capability[];
  /** Request fields that this address refuses, or takes and does nothing with. */
  refuses: readonly string[];
}

/** What identifies a provider that the service is set up with. */
export interface ProviderIdentity {
  id: string;
  kind: string;
  baseUrl: string | null;
}

/** A provider as the service is set up with it; times in milliseconds. */
export interface ProviderOfKey extends ProviderIdentity {
  baseUrl: string;
  apiKey: string;
  headers: Record<string, string>;
  timeouts: { connectMs: number; firstByteMs: number; idleMs: number };
}

const KIND = "openai-compatible";
const known = (
  id: string,
  keyVariable: string,
  baseUrl: string,
  more: Partial<Pick<KnownProvider, "pricesId" | "lacks" | "refuses">> = {},
): KnownProvider => ({ id, keyVariable, kind: KIND, baseUrl, pricesId: id, lacks: [], refuses: [], ...more });

/**
 * In the order in which they win a model's plain id where several offer it: makers first, then who hosts the models of
 * others. Addresses, and what they refuse, are from each provider's own documentation of its OpenAI-compatible API.
 */
export const KNOWN_PROVIDERS: readonly KnownProvider[] = [
  known("openai", "OPENAI_API_KEY", "https://api.openai.com/v1"),
  known("anthropic", "ANTHROPIC_API_KEY", "https://api.anthropic.com/v1", {
    lacks: ["structured_output", "prompt_caching"],
    refuses: [
      "frequency_penalty",
      "logit_bias",
      "logprobs",
      "presence_penalty",
      "reasoning_effort",
      "seed",
      "top_logprobs",
      "user",
    ],
  }),
  known("google", "GEMINI_API_KEY", "https://generativelanguage.googleapis.com/v1beta/openai"),
  known("mistral", "MISTRAL_API_KEY", "https://api.mistral.ai/v1", {
    refuses: ["logit_bias", "logprobs", "seed", "top_logprobs", "user"],
  }),
  known("xai", "XAI_API_KEY", "https://api.x.ai/v1", { pricesId: "x-ai", refuses: ["logit_bias"] }),
  known("deepseek", "DEEPSEEK_API_KEY", "https://api.deepseek.com"),
  known("moonshotai", "MOONSHOT_API_KEY", "https://api.moonshot.ai/v1"),
  known("cohere", "COHERE_API_KEY", "https://api.cohere.ai/compatibility/v1", {
    refuses: ["logit_bias", "parallel_tool_calls", "top_logprobs", "user"],
  }),
  known("perplexity", "PERPLEXITY_API_KEY", "https://api.perplexity.ai"),
  known("groq", "GROQ_API_KEY", "https://api.groq.com/openai/v1", {
    refuses: ["logit_bias", "logprobs", "top_logprobs"],
  }),
  known("cerebras", "CEREBRAS_API_KEY", "https://api.cerebras.ai/v1", {
    refuses: ["frequency_penalty", "logit_bias", "presence_penalty"],
  }),
  known("together", "TOGETHER_API_KEY", "https://api.together.xyz/v1"),
  known("fireworks", "FIREWORKS_API_KEY", "https://api.fireworks.ai/inference/v1"),
  known("openrouter", "OPENROUTER_API_KEY", "https://openrouter.ai/api/v1"),
];

/** The environment variables to look for. */
export const PROVIDER_KEY_VARIABLES: readonly string[] = KNOWN_PROVIDERS.map(({ keyVariable }) => keyVariable);

/** Kinds of provider that can only mean one company. */
const PROVIDER_OF_KIND: Record<string, string> = {
  anthropic: "anthropic",
  cohere: "cohere",
  google: "google",
  mistral: "mistral",
  xai: "xai",
};

/** Hosts beside those of the table. */
const FURTHER_HOSTS: Record<string, string> = {
  "api.together.ai": "together",
  "api.cohere.com": "cohere",
  "api.moonshot.cn": "moonshotai",
};

/** The known provider behind a provider's kind or address; undefined for a server of one's own. */
export function identify({ kind, baseUrl }: Pick<ProviderIdentity, "kind" | "baseUrl">): KnownProvider | undefined {
  const host = baseUrl === null ? undefined : URL.parse(baseUrl)?.hostname;
  const id = PROVIDER_OF_KIND[kind] ?? (host === undefined ? undefined : FURTHER_HOSTS[host]);
  return KNOWN_PROVIDERS.find((provider) =>
    id === undefined ? host !== undefined && new URL(provider.baseUrl).hostname === host : provider.id === id,
  );
}

/**
 * The providers whose keys were found, in the table's order. `keys` maps environment variables to their values; a
 * provider among `configured`, by id or by address, is left to the configuration.
 */
export function providersOfKeys(
  keys: Readonly<Record<string, string>>,
  configured: readonly ProviderIdentity[] = [],
): ProviderOfKey[] {
  const taken = new Set(configured.flatMap((provider) => [provider.id, identify(provider)?.id]));
  return KNOWN_PROVIDERS.flatMap(({ id, kind, baseUrl, keyVariable }) => {
    const apiKey = keys[keyVariable];
    if (!apiKey || taken.has(id)) return [];
    const timeouts = { connectMs: 5_000, firstByteMs: 600_000, idleMs: 300_000 };
    return [{ id, kind, baseUrl, apiKey, headers: {}, timeouts }];
  });
}
