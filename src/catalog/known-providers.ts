import type { Dialect } from "../providers/dialect.ts";
import { anthropic } from "../providers/registry/anthropic.ts";
import { azure } from "../providers/registry/azure.ts";
import { bedrock } from "../providers/registry/bedrock.ts";
import { cerebras } from "../providers/registry/cerebras.ts";
import { cohere } from "../providers/registry/cohere.ts";
import { deepseek } from "../providers/registry/deepseek.ts";
import { fireworks } from "../providers/registry/fireworks.ts";
import { google } from "../providers/registry/google.ts";
import { googleVertex } from "../providers/registry/google-vertex.ts";
import { groq } from "../providers/registry/groq.ts";
import type { KnownProvider, Limits } from "../providers/registry/known-provider.ts";
import { mistral } from "../providers/registry/mistral.ts";
import { moonshotai } from "../providers/registry/moonshotai.ts";
import { openai } from "../providers/registry/openai.ts";
import { openrouter } from "../providers/registry/openrouter.ts";
import { perplexity } from "../providers/registry/perplexity.ts";
import { together } from "../providers/registry/together.ts";
import { xai } from "../providers/registry/xai.ts";
import type { Route } from "./model.ts";

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

/**
 * In the order in which they win a model's plain id where several offer it: makers first, then who hosts the models of
 * others.
 */
export const KNOWN_PROVIDERS: readonly KnownProvider[] = [
  openai,
  anthropic,
  google,
  mistral,
  xai,
  deepseek,
  moonshotai,
  cohere,
  perplexity,
  groq,
  cerebras,
  together,
  fireworks,
  openrouter,
  azure,
  bedrock,
  googleVertex,
];

/** The environment variables to look for. */
export const PROVIDER_KEY_VARIABLES: readonly string[] = KNOWN_PROVIDERS.flatMap(
  ({ keyVariable }) => keyVariable ?? [],
);

const COMPATIBLE = "openai-compatible";

/** Hosts beside those of the table. */
const FURTHER_HOSTS: Record<string, string> = {
  "api.together.ai": "together",
  "api.cohere.ai": "cohere",
  "api.moonshot.cn": "moonshotai",
};

/** The known provider behind a provider's kind or address; undefined for a server of one's own. */
export function identify({ kind, baseUrl }: Pick<ProviderIdentity, "kind" | "baseUrl">): KnownProvider | undefined {
  // A kind that is one provider's own wire means that provider, wherever it is reached.
  if (kind !== COMPATIBLE) return KNOWN_PROVIDERS.find((provider) => provider.kind === kind);
  const host = hostOf(baseUrl);
  if (host === undefined) return undefined;
  const further = Object.hasOwn(FURTHER_HOSTS, host) ? FURTHER_HOSTS[host] : undefined;
  return KNOWN_PROVIDERS.find((provider) => provider.id === further || hostOf(provider.baseUrl) === host);
}

/** The provider's deviations that decide the largest charge of a request. */
export function chargingOf(known: KnownProvider | undefined): Pick<Route, "runsTools" | "countsReasoningBeside"> {
  return {
    ...(known?.runsTools === true && { runsTools: true }),
    ...(known?.countsReasoningBeside === true && { countsReasoningBeside: true }),
  };
}

/** What cannot be had of a known provider in the way a provider of its is spoken to. */
export function limitsOf(known: KnownProvider, { kind }: Pick<ProviderIdentity, "kind">): Limits {
  const compatible = kind === COMPATIBLE ? known.compatible : undefined;
  const { lacks, refuses } = (known.kind === kind ? known : compatible) ?? { lacks: [], refuses: [] };
  return { lacks, refuses };
}

/** How an OpenAI-compatible API at an address, or at one below it such as `eu.api.openai.com`, differs from most. */
export function dialectOf({ kind, baseUrl }: Pick<ProviderIdentity, "kind" | "baseUrl">): Partial<Dialect> | undefined {
  const host = hostOf(baseUrl);
  if (kind !== COMPATIBLE || host === undefined) return undefined;
  return KNOWN_PROVIDERS.find(({ baseUrl: known }) => `.${host}`.endsWith(`.${hostOf(known)}`))?.dialect;
}

function hostOf(baseUrl: string | null): string | undefined {
  return baseUrl === null ? undefined : URL.parse(baseUrl)?.hostname;
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
    const apiKey = keyVariable === null ? undefined : keys[keyVariable];
    if (!apiKey || baseUrl === null || taken.has(id)) return [];
    const timeouts = { connectMs: 5_000, firstByteMs: 600_000, idleMs: 300_000 };
    return [{ id, kind, baseUrl, apiKey, headers: {}, timeouts }];
  });
}
