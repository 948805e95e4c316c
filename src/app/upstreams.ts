import { buildCatalog } from "../catalog/build.ts";
import { deviationsOf, providersOfKeys } from "../catalog/known-providers.ts";
import { LiveCatalog } from "../catalog/live.ts";
import { type FoundServer, findServers } from "../catalog/local-servers.ts";
import { SANDBOX_PROVIDER } from "../catalog/sandbox.ts";
import { withoutPassword } from "../config/difference.ts";
import { PROVIDER_TIMEOUTS } from "../config/upstream-schema.ts";
import type { Config, ConfiguredProvider } from "../config.ts";
import { createProvider } from "../providers/index.ts";
import { LOCAL_SERVERS } from "../providers/local-servers.ts";
import type { Provider } from "../providers/provider.ts";
import type { Log } from "../telemetry/logger.ts";

/** Time limits of a search for local servers. Only the first search delays the start. */
const FIRST_SEARCH_MS = 400;
const LATER_SEARCH_MS = 3_000;
const DEFAULTS = { headers: {}, timeouts: PROVIDER_TIMEOUTS };

/** All providers that completions may use. */
export interface Upstreams {
  /** By id, including every local server, whether or not it runs. */
  providers: ReadonlyMap<string, Provider>;
  /** Providers that the configuration or a key in the environment sets up. */
  settings: ConfiguredProvider[];
  /** The settings of each provider in one text, by its id. */
  fingerprints: ReadonlyMap<string, string>;
  /** Closes all providers, except those that others contain too. */
  close(others?: Upstreams): Promise<void>;
}

/** Creates providers; those of `earlier` with the same settings are used again. Throws OperatorError if a setting is wrong. */
export function createUpstreams(config: Config, earlier?: Upstreams): Upstreams {
  const ofKeys = providersOfKeys(config.providerKeys, config.providers).map((one) => ({ ...one, ...DEFAULTS }));
  const settings = [...config.providers, ...ofKeys];
  const providers = new Map<string, Provider>();
  const fingerprints = new Map<string, string>();
  const sandbox = config.sandbox.enabled ? [SANDBOX_PROVIDER] : [];
  const builtIn = [...sandbox, ...LOCAL_SERVERS].map(({ id, kind, baseUrl }) => {
    return { id, kind, baseUrl, apiKey: null, ...DEFAULTS };
  });
  for (const one of [...settings, ...builtIn]) {
    if (providers.has(one.id)) continue;
    const local = LOCAL_SERVERS.find((server) => isSame(one, server))?.requestFormat;
    const deviations = { ...(local && { requestFormat: local }), ...deviationsOf(one) };
    const fingerprint = JSON.stringify([one, config.proxyVariables]);
    const known = earlier?.fingerprints.get(one.id) === fingerprint ? earlier.providers.get(one.id) : undefined;
    providers.set(one.id, known ?? createProvider({ ...one, ...deviations }, config.proxyVariables));
    fingerprints.set(one.id, fingerprint);
  }
  return {
    providers,
    settings,
    fingerprints,
    close: async (others) => {
      const kept = new Set(others?.providers.values());
      const closed = [...providers.values()].filter((provider) => !kept.has(provider));
      await Promise.all(closed.map((provider) => provider.close()));
    },
  };
}

interface CatalogOptions {
  /** The port that the service itself listens on, so that it never finds itself. */
  ownPort: () => number | undefined;
  clock: () => number;
  log: Log;
  known?: readonly FoundServer[];
}

/** Creates the catalog. If the configuration lists no models, local servers are searched for. Throws OperatorError for a mistake. */
export function createCatalog(config: Config, { settings }: Upstreams, options: CatalogOptions): LiveCatalog {
  const { ownPort, clock, log, known = [] } = options;
  const servers = LOCAL_SERVERS.filter((server) => !settings.some((one) => isSame(one, server)));
  let timeoutMs = FIRST_SEARCH_MS;
  const look = async () => {
    const found = await findServers(servers, { ownPort: ownPort(), timeoutMs });
    timeoutMs = LATER_SEARCH_MS;
    return found;
  };
  return new LiveCatalog({
    build: (found, nowMs) => buildCatalog({ ...config, providers: settings, found }, nowMs),
    ...(config.models.length === 0 && { look }),
    known,
    clock,
    log,
  });
}

function isSame(one: { id: string; baseUrl: string | null }, server: { id: string; baseUrl: string }): boolean {
  const host = (address: string) => URL.parse(address)?.host.replace(/^(localhost|\[::1\])(?=:|$)/, "127.0.0.1");
  return one.id === server.id || (one.baseUrl !== null && host(one.baseUrl) === host(server.baseUrl));
}

/** Values that a reload replaces. */
export interface LiveValues {
  readonly config: Config;
  readonly upstreams: Upstreams;
  readonly catalog: LiveCatalog;
}

/** The current values of a service. Replaced ones are closed when the requests that use them have ended. */
export class LiveParts implements LiveValues {
  readonly #options: CatalogOptions;
  readonly #closing = new Set<Promise<void>>();
  config: Config;
  upstreams: Upstreams;
  catalog: LiveCatalog;
  /** Address of the database that the service has opened, with the current password. Null: SQLite. */
  database: string | null;

  /** Throws OperatorError if a setting is wrong. */
  constructor(config: Config, options: CatalogOptions) {
    this.#options = options;
    this.config = config;
    this.upstreams = createUpstreams(config);
    this.catalog = createCatalog(config, this.upstreams, options);
    this.database = config.database;
  }

  /** Creates the values of another configuration. Throws OperatorError if a setting is wrong; nothing is changed. */
  prepare(config: Config): LiveValues {
    const upstreams = createUpstreams(config, this.upstreams);
    const catalog = createCatalog(config, upstreams, { ...this.#options, known: this.catalog.found });
    return { config, upstreams, catalog };
  }

  /** Replaces all values. `ended` resolves when no request uses the earlier ones. */
  replace(values: LiveValues, ended: Promise<void>): void {
    const { catalog, upstreams } = this;
    Object.assign(this, values);
    void values.catalog.start();
    const { database } = values.config;
    if (withoutPassword(database) === withoutPassword(this.database)) this.database = database;
    const closing = Promise.all([catalog.stop(), ended.then(() => upstreams.close(values.upstreams))]);
    const closed = closing.then(() => void this.#closing.delete(closed));
    this.#closing.add(closed);
  }

  /** Closes everything; called when no request is running. */
  async close(): Promise<void> {
    await this.catalog.stop();
    await Promise.all(this.#closing);
    await this.upstreams.close();
  }
}
