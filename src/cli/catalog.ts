import type { Catalog } from "../catalog/model.ts";
import type { Config } from "../config.ts";
import type { Upstreams } from "../upstreams.ts";
import type { CommonFlags, Terminal } from "./command.ts";
import { type ConfigUse, readConfig } from "./configuration.ts";

export interface CatalogAndUpstreams {
  config: Config;
  catalog: Catalog;
  upstreams: Upstreams;
}

/** The models and the providers that a service with this configuration has. */
export async function withCatalog(
  terminal: Terminal,
  flags: CommonFlags,
  work: (parts: CatalogAndUpstreams) => Promise<void>,
  use: ConfigUse = {},
): Promise<void> {
  const config = await readConfig(flags, use);
  const [{ createCatalog, createUpstreams }, { createLog }] = await Promise.all([
    import("../upstreams.ts"),
    import("../telemetry/log.ts"),
  ]);
  const upstreams = createUpstreams(config);
  try {
    const log = createLog(config.log.level);
    const catalog = createCatalog(config, upstreams, { ...terminal, ownPort: () => config.server.port, log });
    await catalog.refresh();
    await work({ config, catalog, upstreams });
  } finally {
    await upstreams.close();
  }
}
