import { readFileSync } from "node:fs";
import { type LimitKey, type LimitState, limitStateOf, WINDOW_SECONDS, type WindowUse } from "../limits.ts";

/** Amounts that are counted together, all or nothing. */
export interface Step {
  uses: readonly WindowUse[];
  concurrent: readonly LimitKey[];
  /** True: the step is left out if the one before it was refused. */
  followsPrevious: boolean;
}

/** The outcome of a step. */
export interface StepOutcome {
  /** Index among the uses, then the concurrent requests; undefined if nothing was refused. */
  refused: number | undefined;
  /** One for each use. */
  windows: readonly { used: number; leftMs: number; endsAtMs: number; state: LimitState }[];
}

/** Unused tokens. */
export interface Return extends Pick<WindowUse, "kind" | "key" | "amount"> {
  /** The window that they were taken from, by its end in Redis's time. */
  endsAtMs: number;
}

/**
 * Everything that a node sends in one round trip. Redis ignores messages of an earlier connection of the node, which it may
 * read late.
 */
export interface Message {
  node: string;
  connection: number;
  /** Time after its last sign of life for which a node's concurrent requests are counted. */
  leaseMs: number;
  /** `join` registers a node, `beat` keeps it registered, `leave` removes it. */
  purpose: "count" | "join" | "beat" | "leave";
  steps: readonly Step[];
  returns: readonly Return[];
  /** Changes of the node's concurrent requests, by key; all of them for `join`. */
  running: ReadonlyMap<string, number>;
  /** Keys whose concurrent requests have to be kept. */
  kept: Iterable<string>;
}

/** The answer of Redis to a message. */
export interface Reply {
  nodes: number;
  outcomes: StepOutcome[];
}

/** Every key has the same hash tag, so that the script also runs where keys are spread over several servers. */
const PREFIX = "{tollgate}:";

/** Returns the arguments of EVAL after the script. */
export function encode({ steps, returns, running, kept, ...sender }: Message): string[] {
  const keys = new Map<string, number>();
  const indexOf = (kind: string, key: string) => {
    const name = `${PREFIX}${kind}:${key}`;
    const known = keys.get(name);
    if (known !== undefined) return known;
    // KEYS[1] are the nodes.
    keys.set(name, keys.size + 2);
    return keys.size + 1;
  };
  const message = {
    ...sender,
    steps: steps.map(({ uses, concurrent, followsPrevious }) => ({
      follows: followsPrevious,
      uses: uses.map(({ kind, key, limit, amount }) => [
        indexOf(kind, key),
        limit,
        amount,
        WINDOW_SECONDS[kind] * 1000,
      ]),
      concurrent: concurrent.map(({ key, limit }) => [indexOf("running", key), limit]),
    })),
    returns: returns.map(({ kind, key, amount, endsAtMs }) => [indexOf(kind, key), amount, endsAtMs]),
    running: [...running].map(([key, change]) => [indexOf("running", key), change]),
    kept: [...kept].map((key) => indexOf("running", key)),
  };
  return [String(keys.size + 1), `${PREFIX}nodes`, ...keys.keys(), JSON.stringify(message)];
}

/** Reads a reply of the script. Returns undefined if Redis does not know the connection. */
export function decode(reply: unknown, steps: readonly Step[]): Reply | undefined {
  const [isKnown, nowMs, nodes, results] = reply as [number, number, number, number[][]];
  if (isKnown !== 1) return undefined;
  const outcomes = steps.map(({ uses }, index): StepOutcome => {
    const [refused = 0, ...numbers] = results[index] ?? [];
    const windows = uses.map((use, position) => {
      const used = numbers[2 * position] ?? 0;
      const endsAtMs = numbers[2 * position + 1] ?? 0;
      const leftMs = endsAtMs - nowMs;
      return { used, leftMs, endsAtMs, state: limitStateOf(use, used, leftMs) };
    });
    return { refused: refused === 0 ? undefined : refused - 1, windows };
  });
  return { nodes, outcomes };
}

/** Counts in one atomic step of Redis. */
export const SCRIPT = readFileSync(new URL("./script.lua", import.meta.url), "utf8");
