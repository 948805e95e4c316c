import { OperatorError } from "../errors.ts";
import type { Wire } from "./ai-sdk/wire.ts";
import { anthropic } from "./ai-sdk/wires/anthropic.ts";
import { azure } from "./ai-sdk/wires/azure.ts";
import { bedrock } from "./ai-sdk/wires/bedrock.ts";
import { cohere } from "./ai-sdk/wires/cohere.ts";
import { google } from "./ai-sdk/wires/google.ts";
import { googleVertex } from "./ai-sdk/wires/google-vertex.ts";
import { mistral } from "./ai-sdk/wires/mistral.ts";
import { xai } from "./ai-sdk/wires/xai.ts";
import { aiSdk } from "./ai-sdk.ts";
import { createOpenAiCompatible } from "./openai-compatible.ts";
import type { Provider } from "./provider.ts";
import { createSandbox } from "./sandbox.ts";
import { type Environment, KIND_KEYS, type KindKey, type ProviderSettings } from "./settings.ts";

export type { Environment, ProviderSettings } from "./settings.ts";

interface Kind {
  create(settings: ProviderSettings, environment: Environment): Provider;
  /** Keys of the configuration that it takes, of those that only some kinds have. */
  keys: readonly KindKey[];
  /** The wire that an AI SDK package speaks; absent: one of this service's own adapters. */
  wire?: Wire;
}

const ofWire = (wire: Wire): Kind => ({ create: aiSdk(wire), keys: wire.keys, wire });

/** Kinds of provider: a file each, and a line here. */
const KINDS: Readonly<Record<string, Kind>> = {
  "openai-compatible": { create: createOpenAiCompatible, keys: ["apiKey", "baseUrl"] },
  anthropic: ofWire(anthropic),
  google: ofWire(google),
  "google-vertex": ofWire(googleVertex),
  bedrock: ofWire(bedrock),
  azure: ofWire(azure),
  mistral: ofWire(mistral),
  cohere: ofWire(cohere),
  xai: ofWire(xai),
  sandbox: { create: createSandbox, keys: [] },
};

/** The kinds that a provider may have. */
export const PROVIDER_KINDS: readonly ({ kind: string } & Kind)[] = Object.entries(KINDS).map(([kind, row]) => ({
  kind,
  ...row,
}));

/**
 * Makes the provider that the settings describe. `environment` holds the process's variables, for HTTPS_PROXY, HTTP_PROXY
 * and NO_PROXY. Throws OperatorError where a setting is wrong.
 */
export function createProvider(settings: ProviderSettings, environment: Environment): Provider {
  const { id, kind: name } = settings;
  const kind = Object.hasOwn(KINDS, name) ? KINDS[name] : undefined;
  if (kind === undefined) {
    throw new OperatorError(
      `providers '${id}': kind is '${name}', but must be one of: ${Object.keys(KINDS).join(", ")}`,
    );
  }
  const foreign = KIND_KEYS.find((key) => settings[key] != null && !kind.keys.includes(key));
  if (foreign !== undefined) {
    const allowed = kind.keys.length === 0 ? "none of its own" : kind.keys.join(", ");
    throw new OperatorError(`providers '${id}': the kind ${name} takes no ${foreign}; its keys are: ${allowed}`);
  }
  return kind.create(settings, environment);
}
