/**
 * One round of load in a process of its own. Argument: the round as JSON. Prints what was measured as JSON.
 * autocannon counts whole milliseconds, so the times are taken from its events, in microseconds.
 */
import { createRequire } from "node:module";
import { createHistogram } from "node:perf_hooks";

export interface Round {
  url: string;
  headers: Record<string, string>;
  body: string;
  connections: number;
  seconds: number;
  /** An answer with fewer bytes than this is not whole. */
  leastBytes: number;
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

interface Run extends Promise<{ errors: number; timeouts: number; duration: number }> {
  on(
    event: "response",
    listener: (client: unknown, status: number, bytes: number, milliseconds: number) => void,
  ): unknown;
}
type Autocannon = (options: object) => Run;

async function measure(round: Round): Promise<Measured> {
  const autocannon: Autocannon = createRequire(import.meta.url)("autocannon");
  const times = createHistogram({ figures: 3 });
  const statuses: Record<string, number> = {};
  let answers = 0;
  let failures = 0;
  const startedAtMs = performance.now();
  let lastAtMs = startedAtMs;
  const { url, headers, body, connections, seconds } = round;
  const run = autocannon({ url, headers, body, connections, duration: seconds, method: "POST", timeout: 30 });
  run.on("response", (_client, status, bytes, milliseconds) => {
    statuses[status] = (statuses[status] ?? 0) + 1;
    if (status !== 200 || bytes < round.leastBytes) failures += 1;
    else answers += 1;
    times.record(Math.max(1, Math.round(milliseconds * 1000)));
    lastAtMs = performance.now();
  });
  const result = await run;
  failures += result.errors + result.timeouts;
  return {
    answers,
    requestsPerSecond: (answers * 1000) / (lastAtMs - startedAtMs),
    p50Ms: times.percentile(50) / 1000,
    p99Ms: times.percentile(99) / 1000,
    failures,
    statuses,
  };
}

console.log(JSON.stringify(await measure(JSON.parse(process.argv[2] ?? "{}"))));
