import type { Tokens } from "./books.ts";
import type { Record } from "./records.ts";

/** The lifetimes that the service was configured with, and what the machine is allowed beside them. */
export interface Limits {
  holdLifeMs: number;
  renewEveryMs: number;
  /** For how long after its life a hold is left alone by nodes that know nothing of its owner. */
  recoveryMs: number;
  /** Between an event and its mark in a log or in the store; Infinity: nothing is judged by the clock. */
  slackMs: number;
}

/** Facts about one trial for the checker. */
export interface Doings {
  records: Map<string, Record>;
  /** The requests that were sent once more with the same key. */
  repeated: Map<string, Record>;
  /** When the service that served it was killed; undefined where it lived. */
  killedAt: number | undefined;
  /** All that was delivered by then was found in the books while its holds were open; undefined where nobody looked. */
  bookedAt: number | undefined;
  /** True if requests can have got 503 because the store was unreachable. */
  storeWasAway: boolean;
  /** True where the service was suspended while it received requests: it may answer that they took too long. */
  wasSuspended: boolean;
  /** True where requests may have been refused because credits were gone, or held by others. */
  lacksCredits: boolean;
}

/** The tokens of several events together. */
export function sumOfTokens(events: readonly Tokens[]): Tokens {
  const total = (name: keyof Tokens) => sum(events.map((event) => event[name]));
  return {
    input_tokens: total("input_tokens"),
    cached_input_tokens: total("cached_input_tokens"),
    cache_write_tokens: total("cache_write_tokens"),
    output_tokens: total("output_tokens"),
    reasoning_tokens: total("reasoning_tokens"),
  };
}

export function sum(values: bigint[]): bigint {
  return values.reduce((total, value) => total + value, 0n);
}
