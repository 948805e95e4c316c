import { readdirSync, readFileSync } from "node:fs";
import { readdir, rename, rm, stat, writeFile } from "node:fs/promises";
import { join } from "node:path";
import type { ModelRoute } from "../api/admin/reports.ts";
import { type CatalogModel, upstreamOf } from "../catalog/model.ts";
import { pricesByClass } from "../credits/price.ts";
import type { Log } from "../telemetry/logger.ts";

/** Health of an upstream, as its requests have shown it, in the form of the admin API. */
export interface RouteHealth {
  provider: string;
  route: string;
  health: NonNullable<ModelRoute["health"]>;
}

const EVERY_MS = 1_000;
/** The file is written as often even without a change: an older file belongs to a process that died. */
const HEARTBEAT_MS = 10_000;
const VALID_MS = 30_000;

export interface HealthFileOptions {
  dataDir: string;
  /** Unique among all processes, in hexadecimal digits and dashes: several processes may share a directory on PostgreSQL. */
  name: string;
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

  async stop(): Promise<void> {
    clearInterval(this.#timer);
    await this.#writing;
    await rm(this.#file, { force: true });
  }

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
  const ofUpstreams = Map.groupBy(known.flat(), ({ route }) => route);
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

const SEVERITY = { closed: 0, partly_open: 1, open: 2 };

/** Combines the health of an upstream in two processes: the worse state, the later times, and the sums of the counts. */
function combine({ health: one, ...names }: RouteHealth, { health: other }: RouteHealth): RouteHealth {
  const worse = SEVERITY[other.state] > SEVERITY[one.state] ? other : one;
  const later = (other.last_success_at ?? "") > (one.last_success_at ?? "") ? other : one;
  const [limitedUntil] = [one, other]
    .flatMap(({ limited_until }) => limited_until ?? [])
    .sort()
    .reverse();
  const health = {
    state: worse.state,
    // Usually the same organizations call both processes.
    failing_organizations: Math.max(one.failing_organizations, other.failing_organizations),
    next_probe_at: worse.next_probe_at,
    limited_until: limitedUntil ?? null,
    last_failure: (other.last_failure?.at ?? "") > (one.last_failure?.at ?? "") ? other.last_failure : one.last_failure,
    last_success_at: later.last_success_at,
    recent: {
      successes: one.recent.successes + other.recent.successes,
      failures: one.recent.failures + other.recent.failures,
    },
    first_byte_ms: later.first_byte_ms,
  };
  return { ...names, health };
}

/** Formats the routes of a model for the admin API, with their prices and, where known, their health. */
export function reportRoutes({ routes }: CatalogModel, known: readonly RouteHealth[]): ModelRoute[] {
  return routes.map((one) => {
    const route = upstreamOf(one);
    const health = known.find((seen) => seen.route === route)?.health ?? null;
    return { route, weight: one.weight ?? null, prices: pricesByClass(one.prices), health };
  });
}
