import { spawnSync } from "node:child_process";

/** A request that is sent again and again, and how its answers are recognized as whole. */
export interface Target {
  method: "GET" | "POST";
  url: string;
  /** Sets of headers, used in turn: one for each token. */
  headers: Record<string, string>[];
  body?: string | undefined;
  /** An answer with fewer bytes than this is not whole. */
  leastBytes: number;
  /** Text of the last event of a streamed answer, and a pattern of its first piece of text. */
  stream?: { last: string; firstToken: string } | undefined;
}

/** The load of a round: so many connections at once, each with one request after the other; or a rate, if there is one. */
export interface Load {
  connections: number;
  /** Requests a second, whatever the answers take, on as many connections as they need. */
  rate?: number;
}

/** One round of load on one contender. */
export interface Round extends Target, Load {
  seconds: number;
}

export interface Measured {
  /** Whole answers; those of the first second of an open loop too, which are not in the times. */
  answers: number;
  requestsPerSecond: number;
  /** From the time at which a request was to be sent. */
  p50Ms: number;
  p99Ms: number;
  /** Median time to the first piece of text of streamed answers; wrk does not measure it. */
  firstTokenMs?: number | undefined;
  /** Answers other than 200 or not whole, and connections that failed. */
  failures: number;
  statuses: Record<string, number>;
}

/** Figures that are undefined where the system or the contender does not say. */
export interface MeasuredRound extends Measured {
  /** Processor time of the gateway for each answer. */
  processorMicroseconds?: number | undefined;
  /** Memory that its main thread allocated for each answer. */
  allocatedKiB?: number | undefined;
}

/** Reports whether wrk is installed, which sends a closed loop with less of the machine than the project's own generator. */
export function hasWrk(): boolean {
  return spawnSync("wrk", ["--version"]).error === undefined;
}
