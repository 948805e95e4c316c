import { readdirSync, readFileSync } from "node:fs";
import { readdir, rename, rm, stat, writeFile } from "node:fs/promises";
import { join } from "node:path";
import type { Log } from "../telemetry/logger.ts";
import type { RouteHealth } from "./circuit.ts";

const EVERY_MS = 1_000;
/** Written as often even where nothing has changed: an older file is that of a process that died. */
const BEAT_MS = 10_000;
const GOOD_FOR_MS = 30_000;

export interface HealthFileOptions {
  dataDir: string;
  /** Of hexadecimal digits and dashes, such as no other process ever had: several may share a directory on PostgreSQL. */
  name: string;
  /** What is known of the upstreams at a moment. */
  health: (nowMs: number) => RouteHealth[];
  clock: () => number;
  log: Log;
}

interface Content {
  writtenAtMs: number;
  routes: RouteHealth[];
}

/**
 * Keeps what a service knows of its upstreams in a small file of its own in its data directory, for the commands beside
 * it: health is in the memory of a process, and asking it over HTTP would take a secret, or show strangers who serves what.
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

  /** Writes no more, and removes the file: nobody knows anything then. */
  async stop(): Promise<void> {
    clearInterval(this.#timer);
    await this.#writing;
    await rm(this.#file, { force: true });
  }

  /** What processes that died have left. */
  async #removeOld(): Promise<void> {
    const { dataDir, clock } = this.#options;
    for (const name of (await readdir(dataDir).catch(() => [])).filter((name) => OF_A_PROCESS.test(name))) {
      const path = join(dataDir, name);
      const writtenAtMs = await stat(path).then(
        ({ mtimeMs }) => mtimeMs,
        () => Number.POSITIVE_INFINITY,
      );
      // What cannot be removed is not read either: it is too old.
      if (clock() - writtenAtMs > GOOD_FOR_MS) await rm(path, { force: true }).catch(() => {});
    }
  }

  async #write(): Promise<void> {
    const { health, clock, log } = this.#options;
    const nowMs = clock();
    const routes = health(nowMs);
    const text = JSON.stringify(routes);
    if (text === this.#written && nowMs - this.#writtenAtMs < BEAT_MS) return;
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

/** What the services on a data directory know of their upstreams, together; undefined where none runs. */
export function readHealth(dataDir: string, nowMs: number): RouteHealth[] | undefined {
  const known = filesIn(dataDir)
    .map((path) => contentOf(path, nowMs))
    .filter((routes) => routes !== undefined);
  if (known.length === 0) return undefined;
  const ofUpstreams = Map.groupBy(known.flat(), ({ provider, model }) => JSON.stringify([provider, model]));
  return [...ofUpstreams.values()].map((seen) => seen.reduce(together));
}

const OF_A_PROCESS = /^routes-[0-9a-f-]+\.json(\.new)?$/;

function filesIn(dataDir: string): string[] {
  try {
    const names = readdirSync(dataDir).filter((name) => OF_A_PROCESS.test(name) && name.endsWith(".json"));
    return names.map((name) => join(dataDir, name));
  } catch {
    return [];
  }
}

/** What one process wrote; undefined where it is none that runs. */
function contentOf(path: string, nowMs: number): RouteHealth[] | undefined {
  try {
    const { writtenAtMs, routes } = JSON.parse(readFileSync(path, "utf8")) as Content;
    return Math.abs(nowMs - writtenAtMs) <= GOOD_FOR_MS ? routes : undefined;
  } catch {
    return undefined;
  }
}

const SEVERITY: Record<RouteHealth["state"], number> = { closed: 0, half_open: 1, open: 2 };

/** What two processes know of an upstream: the worse state, the later times, and all that was counted. */
function together(one: RouteHealth, other: RouteHealth): RouteHealth {
  const { state, nextProbeAtMs } = SEVERITY[other.state] > SEVERITY[one.state] ? other : one;
  const { lastSuccessAtMs, firstByteMs } = (other.lastSuccessAtMs ?? 0) > (one.lastSuccessAtMs ?? 0) ? other : one;
  return {
    provider: one.provider,
    model: one.model,
    state,
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
