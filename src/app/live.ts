import type { LiveCatalog } from "../catalog/live.ts";
import { withoutPassword } from "../config/difference.ts";
import type { Config } from "../config.ts";
import { type CatalogOptions, createCatalog, createUpstreams, type Upstreams } from "./upstreams.ts";

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
