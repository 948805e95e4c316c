import type { Command } from "commander";
import type { RunningService } from "../app.ts";
import type { Log } from "../contract/log.ts";
import { addCommand, type CommonFlags, type Terminal } from "./command.ts";
import { readConfig } from "./configuration.ts";

/** npm hands a signal on that the terminal has sent to the whole group already: so close together, two are one. */
const SAME_SIGNAL_MS = 100;
/** Exit code after a repeated signal. SIGHUP has none and never cuts off running answers: a terminal can send several. */
const SIGNALS: Record<"SIGINT" | "SIGTERM" | "SIGHUP", number | null> = { SIGINT: 130, SIGTERM: 143, SIGHUP: null };

type Flags = CommonFlags & { host?: string; port?: string };

export function addServe(program: Command, terminal: Terminal, version: string): void {
  addCommand(program, "serve", "Start the service")
    .option("--port <number>", "port to listen on (default: 8484)")
    .option("--host <address>", "address to listen on (default: 127.0.0.1)")
    .action(async (flags: Flags) => {
      const config = await readConfig(flags);
      // Loaded when they are needed, so that no other command waits for them.
      const [{ startService }, { createLog }, { openAccessLog }] = await Promise.all([
        import("../app.ts"),
        import("../telemetry/log.ts"),
        import("../telemetry/access-log.ts"),
      ]);
      const log = createLog(config.log.level);
      const accessLog = openAccessLog({ ...config.log, clock: terminal.clock, random: Math.random });
      const out = (line: string) => {
        if (flags.json !== true) terminal.out(line);
      };
      const adminTokenTo = flags.json === true || terminal.isInteractive ? "output" : "file";
      const service = await startService(config, { ...terminal, log, accessLog, out, version, adminTokenTo });
      if (flags.json === true) terminal.out(JSON.stringify(service.facts));
      const { drainDelaySeconds, drainSeconds } = config.server;
      const times = { delayMs: drainDelaySeconds * 1000, drainMs: drainSeconds * 1000 };
      terminal.exitWith(await untilStopped(service, times, { terminal, log }));
    });
}

/**
 * Runs until a signal or a defect stops the service; gives the code to exit with. A second signal ends the drain delay,
 * or the process where that is over.
 */
function untilStopped(
  service: RunningService,
  { delayMs, drainMs }: { delayMs: number; drainMs: number },
  { terminal, log }: { terminal: Terminal; log: Log },
): Promise<number> {
  return new Promise((resolve) => {
    let stoppingSinceMs: number | undefined;
    let signalledAtMs = Number.NEGATIVE_INFINITY;
    const skipDelay = new AbortController();
    const isDelayed = (sinceMs: number) => !skipDelay.signal.aborted && terminal.clock() - sinceMs < delayMs;
    const stop = (exitCode: number, delayMs: number) => {
      stoppingSinceMs = terminal.clock();
      service.stop({ delayMs, drainMs, skipDelay: skipDelay.signal }).then(
        () => resolve(exitCode),
        (error: unknown) => {
          log.error({ err: error }, "the service could not be stopped cleanly");
          resolve(1);
        },
      );
    };
    for (const [signal, exitCode] of Object.entries(SIGNALS)) {
      process.on(signal, () => {
        const nowMs = terminal.clock();
        if (stoppingSinceMs === undefined) {
          log.info({ signal, delayMs, drainMs }, "stopping: running answers are finished, nothing new is taken");
          stop(0, delayMs);
        } else if (exitCode === null || nowMs - signalledAtMs <= SAME_SIGNAL_MS) {
          return;
        } else if (isDelayed(stoppingSinceMs)) {
          skipDelay.abort();
        } else {
          process.exit(exitCode);
        }
        signalledAtMs = nowMs;
      });
    }
    const fail = (error: unknown) => {
      log.error({ defect: error }, "a defect stops the service");
      if (stoppingSinceMs === undefined) stop(1, 0);
    };
    process.on("uncaughtException", fail);
    process.on("unhandledRejection", fail);
  });
}
