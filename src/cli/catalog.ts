import { createUpstreams, type Upstreams } from "../app/upstreams.ts";
import { buildCatalog } from "../catalog/build.ts";
import type { Catalog } from "../catalog/model.ts";
import type { CommonFlags, Terminal } from "./command.ts";
import { readConfig } from "./configuration.ts";

export interface CatalogAndUpstreams {
  catalog: Catalog;
  upstreams: Upstreams;
}

/** The models and the providers that a service with this configuration has. */
export async function withCatalog(
  terminal: Terminal,
  flags: CommonFlags,
  work: (parts: CatalogAndUpstreams) => Promise<void>,
): Promise<void> {
  const config = readConfig(flags);
  const upstreams = createUpstreams(config);
  try {
    const catalog = buildCatalog({ ...config, providers: upstreams.settings }, terminal.clock());
    await work({ catalog, upstreams });
  } finally {
    await upstreams.close();
  }
}
