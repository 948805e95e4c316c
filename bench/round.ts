import { spawnSync } from "node:child_process";

/** One round of load on one contender. */
export interface Round {
  url: string;
  headers: Record<string, string>;
  body: string;
  connections: number;
  seconds: number;
  /** An answer with fewer bytes than this is not whole. */
  leastBytes: number;
}

/** The figures of one round, with the processor time that the gateway used for each answer, where the system says. */
export interface MeasuredRound extends Measured {
  processorMicrosecondsPerAnswer: number | undefined;
}

export interface Measured {
  answers: number;
  requestsPerSecond: number;
  p50Ms: number;
  p99Ms: number;
  /** Answers other than 200 or not whole, and connections that failed. */
  failures: number;
  statuses: Record<string, number>;
}

/** Returns the load generator: wrk if it is installed, because it needs less of the machine. */
export function loadGenerator(): "wrk" | "autocannon" {
  return spawnSync("wrk", ["--version"]).error === undefined ? "wrk" : "autocannon";
}
