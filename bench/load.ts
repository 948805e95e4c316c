/** One round of load in a process of its own. Input: the round as JSON. Prints what was measured as JSON. */
import { spawnSync } from "node:child_process";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { text } from "node:stream/consumers";
import { generate } from "./generator.ts";
import { hasWrk, type Measured, type Round } from "./round.ts";

interface Summary {
  requests: number;
  bytes: number;
  microseconds: number;
  p50: number;
  p99: number;
  status: number;
  lost: number;
}

const quote = (text: string) => `[==[${text}]==]`;

/** Requests are made before the first is sent; with several tokens each is made once, and they are sent in turn. */
function wrkScript({ method, headers, body }: Round): string {
  const tables = headers.map((one) => {
    const fields = Object.entries(one).map(([name, value]) => `[ ${quote(name)} ] = ${quote(value)}`);
    return `{ ${fields.join(", ")} }`;
  });
  const inTurn = `
local requests = {}
init = function()
  for at, headers in ipairs(tokens) do requests[at] = wrk.format(nil, nil, headers) end
end
local at = 0
request = function()
  at = at % #requests + 1
  return requests[at]
end`;
  return `
wrk.method = ${quote(method)}
${body === undefined ? "" : `wrk.body = ${quote(body)}`}
local tokens = { ${tables.join(",\n")} }
wrk.headers = tokens[1]
${tables.length > 1 ? inTurn : ""}
done = function(summary, latency)
  local e = summary.errors
  io.write(string.format('\\n{"requests":%d,"bytes":%d,"microseconds":%d,"p50":%d,"p99":%d,"status":%d,"lost":%d}\\n',
    summary.requests, summary.bytes, summary.duration, latency:percentile(50), latency:percentile(99),
    e.status, e.connect + e.read + e.write + e.timeout))
end
`;
}

/** wrk stores no answer. So answers count as complete if they have enough bytes on average. */
function withWrk(round: Round): Measured {
  const folder = mkdtempSync(join(tmpdir(), "tollgate-load-"));
  const script = join(folder, "round.lua");
  writeFileSync(script, wrkScript(round));
  const { url, connections, seconds, leastBytes } = round;
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

const round = JSON.parse(await text(process.stdin)) as Round;
console.log(JSON.stringify(round.rate === undefined && hasWrk() ? withWrk(round) : await generate(round)));
