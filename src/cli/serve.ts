import type { Command } from "commander";
import type { RunningService } from "../app.ts";
import type { Config } from "../config.ts";
import type { Log } from "../telemetry/logger.ts";
import { addCommand, type CommonFlags, type Terminal } from "./command.ts";
import { readConfig } from "./config.ts";
import { isFirst, isWorker, joinSupervisor, requireSharedStore, supervise, workersFlag } from "./workers.ts";

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
      const { createLog, openAccessLog } = await import("../telemetry/logger.ts");
      const log = createLog(config.log.level);
      if (workers > 1 && !isWorker()) {
        terminal.exitWith(await supervise(workers, log));
        return;
      }
      // Loaded here, so that no other command waits for them.
      const [{ startService }, { printStart }] = await Promise.all([import("../app.ts"), import("./start-report.ts")]);
      const accessLog = openAccessLog({ ...config.log, clock: terminal.clock, random: Math.random });
      const out = (line: string) => {
        if (flags.json !== true && isFirst()) terminal.out(line);
      };
      const tokensTo = terminal.isInteractive ? "output" : "files";
      let { server } = config;
      const shutdown = createShutdown(() => server, terminal.clock, log);
      const onServing = () => shutdown.handleSignals();
      const apply = (changed: Config) => {
        log.setLevel(changed.log.level);
        accessLog.configure(changed.log);
        server = changed.server;
      };
      // The file of the start must exist from then on: without it, every setting would have its default.
      const again = { ...flags, ...(config.file !== null && { config: config.file }) };
      const load = (read: Set<string>) => readConfig(again, { files: read, isReload: true });
      const source = { load, files, apply };
      const given = { log, accessLog, out, version, workers, source, onServing };
      const service = await startService(config, { ...terminal, ...given });
      started.resolve(service);
      if (isFirst()) {
        const facts = await printStart(config, out, service, tokensTo, log);
        if (flags.json === true) terminal.out(JSON.stringify(facts));
      }
      joinSupervisor(() => shutdown.stop("the supervisor has ended"));
      terminal.exitWith(await shutdown.untilStopped(service));
    });
}

/** Stops the service at a signal or a defect. A second signal ends the drain delay, or the process if the delay is over. */
function createShutdown(settings: () => Config["server"], clock: () => number, log: Log) {
  const times = () => {
    const { drainDelaySeconds, drainSeconds } = settings();
    return { delayMs: drainDelaySeconds * 1000, drainMs: drainSeconds * 1000 };
  };
  const started = Promise.withResolvers<RunningService>();
  const exitCode = Promise.withResolvers<number>();
  const skipDelay = new AbortController();
  let delayEndsAtMs: number | undefined;
  let signalledAtMs = Number.NEGATIVE_INFINITY;
  const begin = async (code: number, { delayMs, drainMs }: ReturnType<typeof times>) => {
    delayEndsAtMs = clock() + delayMs;
    try {
      const service = await started.promise;
      await service.stop({ delayMs, drainMs, skipDelay: skipDelay.signal });
      exitCode.resolve(code);
    } catch (error) {
      log.error({ err: error }, "the service could not be stopped cleanly");
      exitCode.resolve(1);
    }
  };
  const receive = (signal: string, code: number) => {
    const nowMs = clock();
    if (delayEndsAtMs === undefined) {
      log.info({ signal, ...times() }, STOPPING);
      void begin(0, times());
    } else if (nowMs - signalledAtMs <= SAME_SIGNAL_MS) return;
    else if (!skipDelay.signal.aborted && nowMs < delayEndsAtMs) skipDelay.abort();
    else process.exit(code);
    signalledAtMs = nowMs;
  };
  const fail = (error: unknown) => {
    log.error({ defect: error }, "a defect stops the service");
    if (delayEndsAtMs === undefined) void begin(1, { ...times(), delayMs: 0 });
  };
  return {
    /** Handles signals and defects from now on. Before that, while nothing is served, they end the process. */
    handleSignals(): void {
      for (const [signal, code] of Object.entries(SIGNALS)) process.on(signal, () => receive(signal, code));
      process.on("uncaughtException", fail);
      process.on("unhandledRejection", fail);
    },
    untilStopped(service: RunningService): Promise<number> {
      started.resolve(service);
      return exitCode.promise;
    },
    stop(reason: string): void {
      if (delayEndsAtMs !== undefined) return;
      log.warn({ reason, ...times() }, STOPPING);
      void begin(0, times());
    },
  };
}
