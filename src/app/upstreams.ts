import { type ProviderOfKey, providersOfKeys } from "../catalog/known-providers.ts";
import { LOCAL_SERVERS } from "../catalog/local-servers.ts";
import { SANDBOX_PROVIDER } from "../catalog/sandbox.ts";
import type { Config, ProviderSettings } from "../config.ts";
import { createProvider } from "../providers/index.ts";
import type { Provider } from "../providers/provider.ts";

const TIMEOUTS: ProviderSettings["timeouts"] = { connectMs: 5_000, firstByteMs: 600_000, idleMs: 300_000 };

/** Every provider that completions may go to. */
export interface Upstreams {
  /** By id; local servers too, whether or not one answers. */
  providers: ReadonlyMap<string, Provider>;
  /** Those that the configuration or a key in the environment has set up. */
  settings: (ProviderSettings | ProviderOfKey)[];
  close(): Promise<void>;
}

/** Makes the providers of a configuration. Throws OperatorError where a setting is wrong. */
export function createUpstreams(config: Config): Upstreams {
  const settings = [...config.providers, ...providersOfKeys(config.providerKeys, config.providers)];
  const providers = new Map<string, Provider>();
  const builtIn = [SANDBOX_PROVIDER, ...LOCAL_SERVERS].map(({ id, kind, baseUrl }) => {
    return { id, kind, baseUrl, apiKey: null, headers: {}, timeouts: TIMEOUTS };
  });
  for (const one of [...settings, ...builtIn]) {
    if (!providers.has(one.id)) providers.set(one.id, createProvider(one, config.proxyVariables));
  }
  return {
    providers,
    settings,
    close: async () => {
      await Promise.all([...providers.values()].map((provider) => provider.close()));
    },
  };
}
