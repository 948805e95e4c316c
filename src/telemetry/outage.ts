import type { Log } from "./logger.ts";

const EVERY_MS = 60_000;
/** A success ends an outage only if no failure follows for this long, so that an intermittent failure is one outage. */
const QUIET_MS = 2_000;

export interface OutageOptions {
  log: Log;
  level: "warn" | "error";
  /** Messages for the beginning, for each further minute with failures, and for the end. */
  texts: { begins: string; lasts: string; ends: string };
  /** Milliseconds since 1970. */
  clock: () => number;
}

/** Logs a repeating failure: one line when it begins, one a minute with a count, and one when it is over. */
export class Outage {
  readonly #options: OutageOptions;
  #sinceMs: number | undefined;
  #count = 0;
  #countLastMinute = 0;
  #everyMinute: NodeJS.Timeout | undefined;
  #ending: NodeJS.Timeout | undefined;

  constructor(options: OutageOptions) {
    this.#options = options;
  }

  failed(fields: object): void {
    const { log, level, texts, clock } = this.#options;
    clearTimeout(this.#ending);
    this.#ending = undefined;
    this.#count += 1;
    this.#countLastMinute += 1;
    if (this.#sinceMs !== undefined) return;
    this.#sinceMs = clock();
    log[level](fields, texts.begins);
    this.#everyMinute = setInterval(() => this.#logMinute(), EVERY_MS).unref();
  }

  succeeded(): void {
    if (this.#sinceMs === undefined || this.#ending !== undefined) return;
    const durationMs = this.#options.clock() - this.#sinceMs;
    this.#ending = setTimeout(() => this.#end(durationMs), QUIET_MS).unref();
  }

  #logMinute(): void {
    const failures = this.#countLastMinute;
    this.#countLastMinute = 0;
    const { log, level, texts } = this.#options;
    if (failures > 0) log[level]({ failures, seconds: EVERY_MS / 1000 }, texts.lasts);
  }

  #end(durationMs: number): void {
    clearInterval(this.#everyMinute);
    const failures = this.#count;
    this.#sinceMs = undefined;
    this.#ending = undefined;
    this.#count = 0;
    this.#countLastMinute = 0;
    this.#options.log.info({ failures, durationMs }, this.#options.texts.ends);
  }
}
