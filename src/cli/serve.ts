import type { Command } from "commander";
import type { RunningService } from "../app.ts";
import type { Config } from "../config.ts";
import type { Log } from "../telemetry/logger.ts";
import { addCommand, type CommonFlags, type Terminal } from "./command.ts";
import { readConfig } from "./config.ts";
import { isFirst, isWorker, joinSupervisor, requireSharedStore, superviseWorkers, workersFlag } from "./workers.ts";

/** npm forwards a signal that the terminal has sent to the whole group already. Two signals this close are one. */
const SAME_SIGNAL_MS = 100;
/** Exit code after a repeated signal. */
const SIGNALS: Record<"SIGINT" | "SIGTERM", number> = { SIGINT: 130, SIGTERM: 143 };

const STOPPING = "stopping: new requests are accepted for delayMs, then running ones may finish within drainMs";

type Flags = CommonFlags & { host?: string; port?: string; workers?: string };

export function addServe(program: Command, terminal: Terminal, version: string): void {
  addCommand(program, "serve", "Start the service")
    .option("--port <number>", "port to listen on (default: 8484)")
    .option("--host <address>", "address to listen on (default: 127.0.0.1)")
    .option("--workers <number>", "processes that share the port; more than one need PostgreSQL (default: 1)")
    .action(async (flags: Flags) => {
      const workers = workersFlag(flags.workers);
      const started = Promise.withResolvers<RunningService>();
      // From the beginning: a service manager may ask for a reload at once, and an unhandled signal would end the process.
      process.on("SIGHUP", () => void started.promise.then((service) => service.reload()));
      const files = new Set<string>();
      const config = await readConfig(flags, { files });
      if (workers > 1) requireSharedStore(config);
      const { createLog } = await import("../telemetry/logger.ts");
      const log = createLog(config.log.level);
      if (workers > 1 && !isWorker()) {
        terminal.exitWith(await superviseWorkers(workers, log));
        return;
      }
      // Loaded here, so that no other command waits for them.
      const [{ startService }, { printStart }, { openAccessLog }] = await Promise.all([
        import("../app.ts"),
        import("./start-report.ts"),
        import("../telemetry/access-log.ts"),
      ]);
      const accessLog = openAccessLog({ ...config.log, clock: terminal.clock, random: Math.random });
      const out = (line: string) => {
        if (flags.json !== true && isFirst()) terminal.out(line);
      };
      const tokensTo = flags.json === true || terminal.isInteractive ? "output" : "files";
      const shutdown = new Shutdown(config.server, { clock: terminal.clock, log });
      const onServing = () => shutdown.handleSignals();
      const apply = (changed: Config) => {
        log.setLevel(changed.log.level);
        accessLog.configure(changed.log);
        shutdown.configure(changed.server);
      };
      // The file of the start must exist from then on: without it, every setting would have its default.
      const again = { ...flags, ...(config.file !== null && { config: config.file }) };
      const load = (read: Set<string>) => readConfig(again, { files: read, isReload: true });
      const source = { load, files, apply };
      const given = { log, accessLog, out, version, workers, source, onServing };
      const service = await startService(config, { ...terminal, ...given });
      started.resolve(service);
      if (isFirst()) {
        await printStart(config, out, service, tokensTo);
        if (flags.json === true) terminal.out(JSON.stringify(service.facts));
      }
      joinSupervisor(() => shutdown.stop("the supervisor has ended"));
      terminal.exitWith(await shutdown.untilStopped(service));
    });
}

/**
 * Stops the service at a signal or a defect; one during the start takes effect at its end. A second signal ends the drain
 * delay, or the process if the delay is over.
 */
class Shutdown {
  #times: { delayMs: number; drainMs: number };
  readonly #clock: () => number;
  readonly #log: Log;
  readonly #started = Promise.withResolvers<RunningService>();
  readonly #exitCode = Promise.withResolvers<number>();
  readonly #skipDelay = new AbortController();
  #stoppingSinceMs: number | undefined;
  #signalledAtMs = Number.NEGATIVE_INFINITY;

  constructor(settings: Config["server"], { clock, log }: { clock: () => number; log: Log }) {
    this.#times = timesOf(settings);
    this.#clock = clock;
    this.#log = log;
  }

  /** Changes the times of a shutdown that has not begun. */
  configure(settings: Config["server"]): void {
    this.#times = timesOf(settings);
  }

  /** Handles signals and defects from now on. Before that, while nothing is served, they end the process. */
  handleSignals(): void {
    for (const [signal, exitCode] of Object.entries(SIGNALS)) process.on(signal, () => this.#receive(signal, exitCode));
    const fail = (error: unknown) => {
      this.#log.error({ defect: error }, "a defect stops the service");
      if (this.#stoppingSinceMs === undefined) this.#stop(1, 0);
    };
    process.on("uncaughtException", fail);
    process.on("unhandledRejection", fail);
  }

  /** Resolves with the code to exit with, once the service has stopped. */
  untilStopped(service: RunningService): Promise<number> {
    this.#started.resolve(service);
    return this.#exitCode.promise;
  }

  /** Stops the service as at a signal, for another reason. */
  stop(reason: string): void {
    if (this.#stoppingSinceMs !== undefined) return;
    this.#log.warn({ reason, ...this.#times }, STOPPING);
    this.#stop(0, this.#times.delayMs);
  }

  #receive(signal: string, exitCode: number): void {
    const nowMs = this.#clock();
    if (this.#stoppingSinceMs === undefined) {
      this.#log.info({ signal, ...this.#times }, STOPPING);
      this.#stop(0, this.#times.delayMs);
    } else if (nowMs - this.#signalledAtMs <= SAME_SIGNAL_MS) {
      return;
    } else if (!this.#skipDelay.signal.aborted && nowMs - this.#stoppingSinceMs < this.#times.delayMs) {
      this.#skipDelay.abort();
    } else {
      process.exit(exitCode);
    }
    this.#signalledAtMs = nowMs;
  }

  #stop(exitCode: number, delayMs: number): void {
    this.#stoppingSinceMs = this.#clock();
    const options = { delayMs, drainMs: this.#times.drainMs, skipDelay: this.#skipDelay.signal };
    this.#started.promise
      .then((service) => service.stop(options))
      .then(
        () => this.#exitCode.resolve(exitCode),
        (error: unknown) => {
          this.#log.error({ err: error }, "the service could not be stopped cleanly");
          this.#exitCode.resolve(1);
        },
      );
  }
}

function timesOf({ drainDelaySeconds, drainSeconds }: Config["server"]): { delayMs: number; drainMs: number } {
  return { delayMs: drainDelaySeconds * 1000, drainMs: drainSeconds * 1000 };
}
