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

interface RunningOutage {
  sinceMs: number;
  failures: number;
  failuresThisMinute: number;
  ending: NodeJS.Timeout | undefined;
}

/** Returns what logs a repeating failure: one line when it begins, one a minute with a count, and one when it is over. */
export function createOutage({ log, level, texts, clock }: OutageOptions) {
  let running: RunningOutage | undefined;
  let everyMinute: NodeJS.Timeout | undefined;
  const logMinute = () => {
    const failures = running?.failuresThisMinute ?? 0;
    if (running !== undefined) running.failuresThisMinute = 0;
    if (failures > 0) log[level]({ failures, seconds: EVERY_MS / 1000 }, texts.lasts);
  };
  const begin = (fields: object): RunningOutage => {
    log[level](fields, texts.begins);
    everyMinute = setInterval(logMinute, EVERY_MS).unref();
    return { sinceMs: clock(), failures: 0, failuresThisMinute: 0, ending: undefined };
  };
  const end = (durationMs: number, failures: number) => {
    clearInterval(everyMinute);
    running = undefined;
    log.info({ failures, durationMs }, texts.ends);
  };
  return {
    failed(fields: object): void {
      running ??= begin(fields);
      clearTimeout(running.ending);
      running.ending = undefined;
      running.failures += 1;
      running.failuresThisMinute += 1;
    },
    succeeded(): void {
      if (running === undefined || running.ending !== undefined) return;
      running.ending = setTimeout(end, QUIET_MS, clock() - running.sinceMs, running.failures).unref();
    },
  };
}
