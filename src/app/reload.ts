import { type StatsListener, unwatchFile, watchFile } from "node:fs";
import { configurationHash, differenceOf } from "../config/difference.ts";
import type { Config } from "../config.ts";
import { OperatorError } from "../errors.ts";
import type { Circuits } from "../gateway/circuit.ts";
import type { Server } from "../http/server.ts";
import type { Log } from "../telemetry/logger.ts";
import { serverSettingsOf } from "./http.ts";
import type { ConfigSource } from "./parts.ts";
import type { ConfigurationState } from "./telemetry/gauges.ts";
import type { LiveParts, LiveValues } from "./upstreams.ts";

export interface ReloadsOptions {
  source: ConfigSource;
  live: LiveParts;
  server: Pick<Server, "reconfigure">;
  circuits: Pick<Circuits, "forget">;
  version: string;
  log: Log;
}

export type ReloadCause = "signal" | "file";

/** Files are polled: network file systems report no changes, and nor do links, which Kubernetes replaces. */
const POLL_MS = 250;
/** Time without a change before the files are read. Longer than a poll, so that one has found them unchanged. */
const SETTLED_MS = 1.5 * POLL_MS;

const VERBOSE: ReadonlySet<string> = new Set(["debug", "info"]);

/** Applies changes of the configuration while the service runs: all of them or, after a mistake, none. */
export class Reloads {
  readonly #options: ReloadsOptions;
  readonly #started: Config;
  #watched: ReadonlySet<string> = new Set();
  #settling: NodeJS.Timeout | undefined;
  #running: Promise<void> = Promise.resolve();
  #isStopped = false;
  #lastMistake: string | undefined;
  #state: ConfigurationState;

  constructor(options: ReloadsOptions) {
    this.#options = options;
    this.#started = options.live.config;
    this.#state = { hash: configurationHash(this.#started), isRead: true, needsRestart: false };
  }

  get state(): ConfigurationState {
    return this.#state;
  }

  start(): void {
    this.#watch(this.#options.source.files);
  }

  /** Stops watching. Resolves when a running reload has ended. */
  async stop(): Promise<void> {
    this.#isStopped = true;
    this.#watch(new Set());
    clearTimeout(this.#settling);
    await this.#running;
  }

  /** Watches these files and no others. A file that is new here may have changed since it was read. */
  #watch(files: ReadonlySet<string>): void {
    const added = files.difference(this.#watched);
    for (const file of added) watchFile(file, { interval: POLL_MS, persistent: false }, this.#changed);
    for (const file of this.#watched.difference(files)) unwatchFile(file, this.#changed);
    this.#watched = files;
    if (added.size > 0) this.#reloadSoon();
  }

  readonly #changed: StatsListener = () => this.#reloadSoon();

  /** Waits until no file changes any more, so that none is read half written. */
  #reloadSoon(): void {
    clearTimeout(this.#settling);
    this.#settling = setTimeout(() => void this.reload("file"), SETTLED_MS).unref();
  }

  /** Reads the configuration again and applies it. Reloads run one after another. Never rejects. */
  reload(cause: ReloadCause): Promise<void> {
    this.#running = this.#running.then(() => (this.#isStopped ? undefined : this.#reload(cause)));
    return this.#running;
  }

  async #reload(cause: ReloadCause): Promise<void> {
    const { source, live, log } = this.#options;
    const files = new Set<string>();
    try {
      const config = await source.load(files);
      const { atReload: changes, atStart } = differenceOf(live.config, config);
      const atNextStart = differenceOf(this.#started, config).atStart;
      const needsRestart = hasKeys(atNextStart);
      const fields = { cause, ...(needsRestart && { atNextStart }) };
      this.#lastMistake = undefined;
      if (hasKeys(changes) || hasKeys(atStart)) {
        const next = live.prepare(config);
        const notes = next.catalog.notes.filter((note) => !live.catalog.notes.includes(note));
        const applied = { ...fields, changes, ...(notes.length > 0 && { notes }) };
        this.#apply(next, () => log.info(applied, "the configuration was reloaded"));
      } else log[cause === "signal" ? "info" : "debug"](fields, "the configuration was reloaded: nothing has changed");
      this.#state = { hash: configurationHash(config), isRead: true, needsRestart };
    } catch (error) {
      this.#state = { ...this.#state, isRead: false };
      this.#report(cause, error);
    } finally {
      if (!this.#isStopped) this.#watch(new Set([...source.files, ...files]));
    }
  }

  /** Replaces everything in one synchronous step: a request sees either all of a configuration or nothing. */
  #apply(next: LiveValues, report: () => void): void {
    const { source, live, server, circuits, version } = this.#options;
    const isVerbose = VERBOSE.has(live.config.log.level);
    const addresses = addressesOf(live);
    live.replace(next, server.reconfigure(serverSettingsOf(next, version)));
    const current = addressesOf(next);
    for (const [id, address] of addresses) if (current.get(id) !== address) circuits.forget(id);
    // A level that hides the line takes effect after it.
    if (isVerbose) report();
    source.apply(next.config);
    if (!isVerbose) report();
  }

  #report(cause: ReloadCause, error: unknown): void {
    const { log } = this.#options;
    if (!(error instanceof OperatorError)) {
      log.error({ cause, defect: error }, "the configuration could not be reloaded: nothing was changed");
      return;
    }
    // A file of a mistake is read again when it is new in the list of files.
    if (cause === "file" && error.message === this.#lastMistake) return;
    this.#lastMistake = error.message;
    log.error({ cause, mistake: error.message }, "the configuration has a mistake: nothing was changed");
  }
}

function hasKeys(value: object): boolean {
  return Object.keys(value).length > 0;
}

function addressesOf({ upstreams }: LiveValues): Map<string, string | null> {
  return new Map(upstreams.settings.map(({ id, baseUrl }) => [id, baseUrl]));
}
