import { readdirSync, readFileSync } from "node:fs";
import { readdir, rename, rm, stat, writeFile } from "node:fs/promises";
import { join } from "node:path";
import type { ModelRoute } from "../api/admin/reports.ts";
import { isoTime } from "../api/time.ts";
import { type CatalogModel, upstreamOf } from "../catalog/model.ts";
import { pricesByClass } from "../credits/price.ts";
import type { UpstreamFailure } from "../errors.ts";
import type { Log } from "../telemetry/logger.ts";

/** Health of an upstream, as its requests have shown it. Times are milliseconds since 1970. */
export interface RouteHealth {
  provider: string;
  /** The upstream's own name of the model. */
  model: string;
  /** Open: no organization gets an answer. Partly open: it fails for some organizations, and answers others. */
  state: "closed" | "partly_open" | "open";
  /** Organizations whose circuits are open. */
  failingOrganizations: number;
  /** Time of the next probe of one of these organizations. */
  nextProbeAtMs: number | null;
  /** End of the pause that the upstream asked for. */
  limitedUntilMs: number | null;
  lastFailure: { failure: UpstreamFailure; atMs: number } | null;
  lastSuccessAtMs: number | null;
  /** Counts of the last five minutes. */
  recent: { successes: number; failures: number };
  /** Moving average of the time until an answer begins; null before the first answer. */
  firstByteMs: number | null;
}

const EVERY_MS = 1_000;
/** The file is written as often even without a change: an older file belongs to a process that died. */
const HEARTBEAT_MS = 10_000;
const VALID_MS = 30_000;

export interface HealthFileOptions {
  dataDir: string;
  /** Unique among all processes, in hexadecimal digits and dashes: several processes may share a directory on PostgreSQL. */
  name: string;
  /** Returns the health of all upstreams. */
  health: (nowMs: number) => RouteHealth[];
  clock: () => number;
  log: Log;
}

interface Content {
  writtenAtMs: number;
  routes: RouteHealth[];
}

/**
 * Writes the health of a service's upstreams to a small file in its data directory, for the commands. Health is in the
 * memory of a process; a request over HTTP would need a secret, or show strangers which providers are used.
 */
export class HealthFile {
  readonly #options: HealthFileOptions;
  readonly #file: string;
  #timer: NodeJS.Timeout | undefined;
  #writing: Promise<void> = Promise.resolve();
  #written = "";
  #writtenAtMs = Number.NEGATIVE_INFINITY;
  #hasFailed = false;

  constructor(options: HealthFileOptions) {
    this.#options = options;
    this.#file = join(options.dataDir, `routes-${options.name}.json`);
  }

  start(): void {
    this.#writing = this.#removeOld();
    this.#timer = setInterval(() => {
      this.#writing = this.#writing.then(() => this.#write());
    }, EVERY_MS).unref();
  }

  /** Stops writing and removes the file. */
  async stop(): Promise<void> {
    clearInterval(this.#timer);
    await this.#writing;
    await rm(this.#file, { force: true });
  }

  /** Removes the files of processes that died. */
  async #removeOld(): Promise<void> {
    const { dataDir, clock } = this.#options;
    for (const name of (await readdir(dataDir).catch(() => [])).filter((name) => HEALTH_FILE.test(name))) {
      const path = join(dataDir, name);
      const writtenAtMs = await stat(path).then(
        ({ mtimeMs }) => mtimeMs,
        () => Number.POSITIVE_INFINITY,
      );
      // A file that cannot be removed is ignored: it is too old.
      if (clock() - writtenAtMs > VALID_MS) await rm(path, { force: true }).catch(() => {});
    }
  }

  async #write(): Promise<void> {
    const { health, clock, log } = this.#options;
    const nowMs = clock();
    const routes = health(nowMs);
    const text = JSON.stringify(routes);
    if (text === this.#written && nowMs - this.#writtenAtMs < HEARTBEAT_MS) return;
    const content: Content = { writtenAtMs: nowMs, routes };
    try {
      await writeFile(`${this.#file}.new`, JSON.stringify(content), { mode: 0o600 });
      await rename(`${this.#file}.new`, this.#file);
      this.#written = text;
      this.#writtenAtMs = nowMs;
    } catch (error) {
      if (!this.#hasFailed) log.warn({ err: error }, "the health of the routes could not be written for the commands");
      this.#hasFailed = true;
    }
  }
}

/** Reads and combines the health files of the services on a data directory; undefined where none runs. */
export function readHealth(dataDir: string, nowMs: number): RouteHealth[] | undefined {
  const known = filesIn(dataDir)
    .map((path) => contentOf(path, nowMs))
    .filter((routes) => routes !== undefined);
  if (known.length === 0) return undefined;
  const ofUpstreams = Map.groupBy(known.flat(), ({ provider, model }) => JSON.stringify([provider, model]));
  return [...ofUpstreams.values()].map((seen) => seen.reduce(combine));
}

const HEALTH_FILE = /^routes-[0-9a-f-]+\.json(\.new)?$/;

function filesIn(dataDir: string): string[] {
  try {
    const names = readdirSync(dataDir).filter((name) => HEALTH_FILE.test(name) && name.endsWith(".json"));
    return names.map((name) => join(dataDir, name));
  } catch {
    return [];
  }
}

/** Reads one health file; undefined where its process does not run. */
function contentOf(path: string, nowMs: number): RouteHealth[] | undefined {
  try {
    const { writtenAtMs, routes } = JSON.parse(readFileSync(path, "utf8")) as Content;
    return Math.abs(nowMs - writtenAtMs) <= VALID_MS ? routes : undefined;
  } catch {
    return undefined;
  }
}

const SEVERITY: Record<RouteHealth["state"], number> = { closed: 0, partly_open: 1, open: 2 };

/** Combines the health of an upstream in two processes: the worse state, the later times, and the sums of the counts. */
function combine(one: RouteHealth, other: RouteHealth): RouteHealth {
  const { state, nextProbeAtMs } = SEVERITY[other.state] > SEVERITY[one.state] ? other : one;
  const { lastSuccessAtMs, firstByteMs } = (other.lastSuccessAtMs ?? 0) > (one.lastSuccessAtMs ?? 0) ? other : one;
  return {
    provider: one.provider,
    model: one.model,
    state,
    // Usually the same organizations call both processes.
    failingOrganizations: Math.max(one.failingOrganizations, other.failingOrganizations),
    nextProbeAtMs,
    limitedUntilMs: Math.max(one.limitedUntilMs ?? 0, other.limitedUntilMs ?? 0) || null,
    lastFailure: (other.lastFailure?.atMs ?? 0) > (one.lastFailure?.atMs ?? 0) ? other.lastFailure : one.lastFailure,
    lastSuccessAtMs,
    recent: {
      successes: one.recent.successes + other.recent.successes,
      failures: one.recent.failures + other.recent.failures,
    },
    firstByteMs,
  };
}

/** Formats the routes of a model for the admin API, with their prices and, where known, their health. */
export function reportRoutes({ routes }: CatalogModel, known: readonly RouteHealth[]): ModelRoute[] {
  return routes.map((route) => {
    const health = known.find((one) => one.provider === route.providerId && one.model === route.model);
    return {
      route: upstreamOf(route),
      weight: route.weight ?? null,
      prices: pricesByClass(route.prices),
      health: toHealth(health),
    };
  });
}

/** Formats the health of a route for the admin API; null where it was not called. */
export function toHealth(health: RouteHealth | undefined): ModelRoute["health"] {
  if (health === undefined) return null;
  const { state, lastFailure, recent, firstByteMs } = health;
  return {
    state,
    failing_organizations: health.failingOrganizations,
    next_probe_at: isoTime(health.nextProbeAtMs),
    limited_until: isoTime(health.limitedUntilMs),
    last_failure: lastFailure && { failure: lastFailure.failure, at: isoTime(lastFailure.atMs) },
    last_success_at: isoTime(health.lastSuccessAtMs),
    recent,
    first_byte_ms: firstByteMs,
  };
}
