/** One round of load in a process of its own. Argument: the round as JSON. Prints what was measured as JSON. */
import { spawnSync } from "node:child_process";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { createRequire } from "node:module";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createHistogram } from "node:perf_hooks";
import { loadGenerator, type Measured, type Round } from "./round.ts";

interface Run extends Promise<{ errors: number; timeouts: number; duration: number }> {
  on(
    event: "response",
    listener: (client: unknown, status: number, bytes: number, milliseconds: number) => void,
  ): unknown;
}
type Autocannon = (options: object) => Run;

/** autocannon counts whole milliseconds, so the times are taken from its events, in microseconds. */
async function withAutocannon(round: Round): Promise<Measured> {
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

interface Summary {
  requests: number;
  bytes: number;
  microseconds: number;
  p50: number;
  p99: number;
  status: number;
  lost: number;
}

/** wrk stores no answer. So answers count as complete if they have enough bytes on average. */
function withWrk({ url, headers, body, connections, seconds, leastBytes }: Round): Measured {
  const folder = mkdtempSync(join(tmpdir(), "tollgate-load-"));
  const script = join(folder, "round.lua");
  const quote = (text: string) => `[==[${text}]==]`;
  const lines = Object.entries(headers).map(([name, value]) => `wrk.headers[ ${quote(name)} ] = ${quote(value)}`);
  writeFileSync(
    script,
    `wrk.method = "POST"
wrk.body = ${quote(body)}
${lines.join("\n")}
done = function(summary, latency)
  local e = summary.errors
  io.write(string.format('\\n{"requests":%d,"bytes":%d,"microseconds":%d,"p50":%d,"p99":%d,"status":%d,"lost":%d}\\n',
    summary.requests, summary.bytes, summary.duration, latency:percentile(50), latency:percentile(99),
    e.status, e.connect + e.read + e.write + e.timeout))
end
`,
  );
  const words = ["-t1", `-c${connections}`, `-d${seconds}`, "--timeout", "30", "-s", script, url];
  const { stdout, stderr, status } = spawnSync("wrk", words, { encoding: "utf8" });
  rmSync(folder, { recursive: true });
  const line = stdout.trim().split("\n").at(-1) ?? "";
  if (status !== 0 || !line.startsWith("{")) throw new Error(`wrk failed: ${stdout}${stderr}`);
  const summary = JSON.parse(line) as Summary;
  const answers = summary.requests - summary.status;
  const isWhole = summary.bytes / summary.requests >= leastBytes;
  return {
    answers,
    requestsPerSecond: (answers * 1e6) / summary.microseconds,
    p50Ms: summary.p50 / 1000,
    p99Ms: summary.p99 / 1000,
    failures: summary.status + summary.lost + (isWhole ? 0 : answers),
    statuses: { "200": answers, other: summary.status },
  };
}

const round = JSON.parse(process.argv[2] ?? "{}") as Round;
console.log(JSON.stringify(loadGenerator() === "wrk" ? withWrk(round) : await withAutocannon(round)));
