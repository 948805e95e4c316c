import {
  KNOWN_PROVIDERS,
  type KnownProvider,
  OPENAI_COMPATIBLE,
  type UnsupportedFeatures,
} from "../providers/registry.ts";

/** The settings by which a provider is recognized. */
export interface ProviderIdentity {
  id: string;
  kind: string;
  baseUrl: string | null;
}

type Address = Pick<ProviderIdentity, "kind" | "baseUrl">;

/** Returns the known provider with a kind or an address; undefined for any other server. */
export function identify({ kind, baseUrl }: Address): KnownProvider | undefined {
  // A wire of its own belongs to one provider at any address.
  if (kind !== OPENAI_COMPATIBLE) return KNOWN_PROVIDERS.find((provider) => provider.kind === kind);
  const host = hostOf(baseUrl);
  return KNOWN_PROVIDERS.find((known) => host !== undefined && hostsOf(known).includes(host));
}

/** Returns the limits of a known provider on the wire that a configured kind uses. */
export function limitsOf(known: KnownProvider, { kind }: Pick<ProviderIdentity, "kind">): UnsupportedFeatures {
  const compatible = kind === OPENAI_COMPATIBLE ? known.compatible : undefined;
  const { lacks, refuses } = (known.kind === kind ? known : compatible) ?? { lacks: [], refuses: [] };
  return { lacks, refuses };
}

/** Returns how the API of a provider deviates from the usual, by its host, a domain above it, or its kind. */
export function deviationsOf({
  kind,
  baseUrl,
}: Address): Pick<KnownProvider, "baseUrl" | "requestFormat" | "secondWire"> {
  const host = `.${hostOf(baseUrl)}`;
  const isKnown = (row: KnownProvider) =>
    kind === OPENAI_COMPATIBLE ? hostsOf(row).some((known) => host.endsWith(`.${known}`)) : row.kind === kind;
  const known = KNOWN_PROVIDERS.find(isKnown);
  if (known === undefined) return { baseUrl };
  const { requestFormat, secondWire } = known;
  return {
    baseUrl: baseUrl ?? known.baseUrl,
    ...(kind === OPENAI_COMPATIBLE && { requestFormat: { servesTexts: false, ...requestFormat } }),
    // The chat completions of a provider with a wire of its own have another address than that wire.
    ...(known.kind === kind && secondWire && { secondWire }),
  };
}

function hostsOf({ baseUrl, otherHosts }: KnownProvider): string[] {
  return [hostOf(baseUrl) ?? [], otherHosts].flat();
}

function hostOf(baseUrl: string | null): string | undefined {
  return baseUrl === null ? undefined : URL.parse(baseUrl)?.hostname;
}

/** Returns the providers whose keys are in the environment and that the configuration does not contain. */
export function providersOfKeys(keys: Readonly<Record<string, string>>, configured: readonly ProviderIdentity[] = []) {
  const taken = new Set(configured.flatMap((provider) => [provider.id, identify(provider)?.id]));
  return KNOWN_PROVIDERS.flatMap(({ id, kind, baseUrl, keyVariable }) => {
    const apiKey = keyVariable === null ? undefined : keys[keyVariable];
    if (!apiKey || baseUrl === null || taken.has(id)) return [];
    return [{ id, kind, baseUrl, apiKey }];
  });
}
