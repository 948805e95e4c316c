import { buildCatalog } from "./catalog/build.ts";
import { dialectOf, type ProviderOfKey, providersOfKeys } from "./catalog/known-providers.ts";
import { LiveCatalog } from "./catalog/live.ts";
import { findServers, LOCAL_SERVERS } from "./catalog/local-servers.ts";
import { SANDBOX_PROVIDER } from "./catalog/sandbox.ts";
import type { Config, ProviderSettings } from "./config.ts";
import { createProvider } from "./providers/index.ts";
import type { Provider } from "./providers/provider.ts";
import type { Log } from "./telemetry/logger.ts";

/** The first look delays the start, the later ones nothing. */
const FIRST_LOOK_MS = 400;
const LATER_LOOK_MS = 3_000;
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
  const sandbox = config.sandbox.enabled ? [SANDBOX_PROVIDER] : [];
  const builtIn = [...sandbox, ...LOCAL_SERVERS].map(({ id, kind, baseUrl }) => {
    return { id, kind, baseUrl, apiKey: null, headers: {}, timeouts: TIMEOUTS };
  });
  for (const one of [...settings, ...builtIn]) {
    if (providers.has(one.id)) continue;
    const dialect = dialectOf(one) ?? LOCAL_SERVERS.find((server) => isSame(one, server))?.dialect;
    providers.set(one.id, createProvider({ ...one, ...(dialect && { dialect }) }, config.proxyVariables));
  }
  return {
    providers,
    settings,
    close: async () => {
      await Promise.all([...providers.values()].map((provider) => provider.close()));
    },
  };
}

export interface CatalogOptions {
  /** Where the service itself listens, so that it never finds itself. */
  ownPort: () => number | undefined;
  clock: () => number;
  log: Log;
}

/**
 * The models of a configuration. Where it states none, local model servers on their usual ports are looked for too, but
 * for those that it sets up itself. Throws OperatorError for a mistake in the models.
 */
export function createCatalog(config: Config, { settings }: Upstreams, options: CatalogOptions): LiveCatalog {
  const { ownPort, clock, log } = options;
  const servers = LOCAL_SERVERS.filter((server) => !settings.some((one) => isSame(one, server)));
  let timeoutMs = FIRST_LOOK_MS;
  const look = async () => {
    const found = await findServers(servers, { ownPort: ownPort(), timeoutMs });
    timeoutMs = LATER_LOOK_MS;
    return found;
  };
  return new LiveCatalog({
    build: (found, nowMs) => buildCatalog({ ...config, providers: settings, found }, nowMs),
    ...(config.models.length === 0 && { look }),
    clock,
    log,
  });
}

function isSame(one: { id: string; baseUrl: string | null }, server: { id: string; baseUrl: string }): boolean {
  const host = (address: string) => URL.parse(address)?.host.replace(/^(localhost|\[::1\])(?=:|$)/, "127.0.0.1");
  return one.id === server.id || (one.baseUrl !== null && host(one.baseUrl) === host(server.baseUrl));
}
