import type { Tokens } from "./books.ts";
import type { Record } from "./records.ts";

/** Lifetimes in the service's configuration, and the delay that the machine may add. */
export interface Limits {
  holdLifeMs: number;
  renewEveryMs: number;
  /** Time past its expiry for which a hold is left open by nodes that do not know its owner. */
  recoveryMs: number;
  /** Maximum delay between an event and its record in a log or the store; Infinity to check nothing by the clock. */
  slackMs: number;
}

/** Actions of a trial that the checker must know. */
export interface TrialActions {
  records: Map<string, Record>;
  /** Requests that were repeated with the same key. */
  repeated: Map<string, Record>;
  /** When the service was killed; undefined if it was not. */
  killedAt: number | undefined;
  /** When the books were last seen to contain all delivered tokens of the open holds; undefined if never. */
  bookedAt: number | undefined;
  /** True if requests may have been answered 503 because the store was unavailable. */
  storeWasUnavailable: boolean;
  /** True if the service was suspended while it received requests: it may answer with a timeout. */
  wasSuspended: boolean;
  /** True if requests may have been refused because credits were spent or held by others. */
  lacksCredits: boolean;
}

/** Sums up the tokens of several events. */
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
