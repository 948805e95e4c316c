import { OperatorError } from "../errors.ts";
import type { Wire } from "./ai-sdk/wire.ts";
import { aiSdk } from "./ai-sdk.ts";
import { withSecondWire } from "./native.ts";
import { createAzure, createOpenAiCompatible } from "./openai-compatible.ts";
import type { Provider } from "./provider.ts";
import { AZURE, KNOWN_PROVIDERS, OPENAI_COMPATIBLE } from "./registry.ts";
import { createSandbox } from "./sandbox.ts";
import { type Environment, isPrivateUpstream, type KindKey, OWN_HEADERS, type ProviderSettings } from "./settings.ts";

interface Kind {
  kind: string;
  create(settings: ProviderSettings, environment: Environment): Provider;
  keys: readonly KindKey[];
  /** The wire that an AI SDK package speaks; absent for this service's own adapters. */
  wire?: Wire;
}

/** The values that a provider's `kind` may have: the adapters of this service, and each wire of the registry. */
export const PROVIDER_KINDS: readonly Kind[] = [
  { kind: OPENAI_COMPATIBLE, create: createOpenAiCompatible, keys: ["apiKey", "baseUrl"] },
  ...KNOWN_PROVIDERS.flatMap(({ kind, wire }) =>
    wire === undefined ? [] : [{ kind, create: aiSdk(wire), keys: wire.keys, wire }],
  ),
  { kind: AZURE, create: createAzure, keys: ["apiKey", "baseUrl", "resourceName"] },
  { kind: "sandbox", create: createSandbox, keys: [] },
];

/** Creates the provider that the settings describe, with the environment's proxies. Throws OperatorError. */
export function createProvider(settings: ProviderSettings, environment: Environment): Provider {
  const { id, kind: name } = settings;
  const kind = PROVIDER_KINDS.find((row) => row.kind === name);
  if (kind === undefined) {
    const names = PROVIDER_KINDS.map((row) => row.kind).join(", ");
    throw new OperatorError(`providers '${id}': kind is '${name}', but must be one of: ${names}`);
  }
  const foreign = PROVIDER_KINDS.flatMap(({ keys }) => keys).find(
    (key) => settings[key] != null && !kind.keys.includes(key),
  );
  if (foreign !== undefined) {
    const allowed = kind.keys.length === 0 ? "none of its own" : kind.keys.join(", ");
    throw new OperatorError(`providers '${id}': the kind ${name} takes no ${foreign}; its keys are: ${allowed}`);
  }
  const own = Object.keys(settings.headers).find((header) => OWN_HEADERS.test(header.toLowerCase()));
  if (own !== undefined) throw new OperatorError(`providers '${id}': headers must not set '${own}'`);
  const provider = { ...kind.create(settings, environment), isPrivate: isPrivateUpstream(settings.baseUrl) };
  return withSecondWire(provider, settings, environment);
}
