import { readFileSync } from "node:fs";
import { rename, rm, writeFile } from "node:fs/promises";
import { join } from "node:path";
import type { Log } from "../contract/log.ts";
import type { RouteHealth } from "../gateway/circuit.ts";

const EVERY_MS = 1_000;
/** Written as often even where nothing has changed: an older file is that of a process that died. */
const BEAT_MS = 10_000;
const GOOD_FOR_MS = 30_000;

export interface HealthFileOptions {
  dataDir: string;
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
 * Keeps what a service knows of its upstreams in a small file of its data directory, for the commands beside it: health is
 * in the memory of a process, and asking it over HTTP would take a secret, or show strangers who serves what.
 */
export class HealthFile {
  readonly #options: HealthFileOptions;
  #timer: NodeJS.Timeout | undefined;
  #writing: Promise<void> = Promise.resolve();
  #written = "";
  #writtenAtMs = Number.NEGATIVE_INFINITY;
  #hasFailed = false;

  constructor(options: HealthFileOptions) {
    this.#options = options;
  }

  start(): void {
    this.#timer = setInterval(() => {
      this.#writing = this.#writing.then(() => this.#write());
    }, EVERY_MS).unref();
  }

  /** Writes no more, and removes the file: nobody knows anything then. */
  async stop(): Promise<void> {
    clearInterval(this.#timer);
    await this.#writing;
    await rm(fileIn(this.#options.dataDir), { force: true });
  }

  async #write(): Promise<void> {
    const { dataDir, health, clock, log } = this.#options;
    const nowMs = clock();
    const routes = health(nowMs);
    const text = JSON.stringify(routes);
    if (text === this.#written && nowMs - this.#writtenAtMs < BEAT_MS) return;
    const content: Content = { writtenAtMs: nowMs, routes };
    try {
      await writeFile(`${fileIn(dataDir)}.new`, JSON.stringify(content), { mode: 0o600 });
      await rename(`${fileIn(dataDir)}.new`, fileIn(dataDir));
      this.#written = text;
      this.#writtenAtMs = nowMs;
    } catch (error) {
      if (!this.#hasFailed) log.warn({ err: error }, "the health of the routes could not be written for the commands");
      this.#hasFailed = true;
    }
  }
}

/** What the service on a data directory knows of its upstreams; undefined where none runs. */
export function readHealth(dataDir: string, nowMs: number): RouteHealth[] | undefined {
  try {
    const { writtenAtMs, routes } = JSON.parse(readFileSync(fileIn(dataDir), "utf8")) as Content;
    return Math.abs(nowMs - writtenAtMs) <= GOOD_FOR_MS ? routes : undefined;
  } catch {
    return undefined;
  }
}

function fileIn(dataDir: string): string {
  return join(dataDir, "routes.json");
}
