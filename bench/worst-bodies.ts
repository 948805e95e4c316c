/**
 * `npm run bench:bodies`: sends each of the worst bodies again and again to a service of its own, several at once, and
 * prints the time of the event loop that one took, the longest wait for `/healthz` beside them, and how much the process
 * grew. Options: --times, --at-once, --only
 * a part of a body's name.
 */
import { readFileSync, writeFileSync } from "node:fs";
import { setTimeout as sleep } from "node:timers/promises";
import { parseArgs } from "node:util";
import { authorization, post, type Target } from "../test/hostile/attacks/attack.ts";
import { watchHealth } from "../test/hostile/attacks/run.ts";
import { WORST_BODIES, type WorstBody } from "../test/hostile/worst-bodies.ts";
import { makeOrganization, type ServiceProcess, startProcess } from "../test/support/service.ts";
import { answering, startUpstream } from "../test/support/upstream.ts";

const MEBIBYTE = 1024 * 1024;
const REST_MS = 300;

const { values } = parseArgs({
  options: {
    times: { type: "string", default: "10" },
    "at-once": { type: "string", default: "2" },
    only: { type: "string", default: "" },
  },
});
const times = Number(values.times);
const atOnce = Number(values["at-once"]);

/** Sets the peak of a process back to what it has now, and reads it (proc(5): clear_refs, VmHWM). */
function resetPeak({ child }: ServiceProcess): void {
  writeFileSync(`/proc/${child.pid}/clear_refs`, "5");
}

function mebibytesOf({ child }: ServiceProcess, field: "VmHWM" | "VmRSS"): number {
  const status = readFileSync(`/proc/${child.pid}/status`, "utf8");
  return (Number(new RegExp(`^${field}:\\s+(\\d+)`, "m").exec(status)?.[1]) * 1024) / MEBIBYTE;
}

/** Time for which the main thread, and so the event loop, had a processor (schedstat of proc(5)). */
function loopMs({ child }: ServiceProcess): number {
  const [nanoseconds] = readFileSync(`/proc/${child.pid}/task/${child.pid}/schedstat`, "utf8").split(" ");
  return Number(nanoseconds) / 1e6;
}

async function measure(service: ServiceProcess, target: Target, body: WorstBody, model: string): Promise<string[]> {
  const bytes = Buffer.from(body.text(model));
  const headers = { ...body.headers, ...(body.needs === "nothing" ? {} : authorization(target, body.needs)) };
  await sleep(REST_MS);
  resetPeak(service);
  const before = mebibytesOf(service, "VmRSS");
  const loopBefore = loopMs(service);
  const watch = await watchHealth(target);
  const statuses = new Set<number>();
  const send = async () => {
    for (let count = 0; count < times; count += 1) {
      const answer = await post(target, body.path, bytes, headers).catch(() => undefined);
      statuses.add(answer?.status ?? 0);
      await answer?.arrayBuffer().catch(() => undefined);
    }
  };
  await Promise.all(Array.from({ length: atOnce }, send));
  const { longestMs } = await watch.stop();
  const grown = Math.max(0, Math.round(mebibytesOf(service, "VmHWM") - before));
  const loop = Math.round((loopMs(service) - loopBefore) / (times * atOnce));
  return [body.name, body.needs, model, [...statuses].join(", "), `${loop}`, `${longestMs}`, `${grown}`];
}

const upstream = await startUpstream();
upstream.behave(
  "worst",
  answering({ words: ["done"], usage: { prompt_tokens: 1, completion_tokens: 1, total_tokens: 2 } }),
);
const service = await startProcess({
  config: {
    limits: { requestsPerMinute: 1_000_000, tokensPerMinute: 1_000_000_000, concurrentRequests: 1000 },
    providers: [{ id: "up", kind: "openai-compatible", baseUrl: upstream.baseUrl, apiKey: "k" }],
    models: [
      {
        id: "worst",
        routes: [{ provider: "up", model: "worst" }],
        price: { input: 0, output: 0 },
        contextWindow: 100_000_000,
        capabilities: ["chat", "streaming", "instructions", "tools", "structured_output", "vision"],
      },
    ],
  },
});
try {
  const { token } = await makeOrganization(service, "1000000");
  const { token: adminToken } = await service.tollgate<{ token: string }>("admin", "token");
  const target = { url: service.url, token, adminToken };
  console.log(
    "| body | the caller has | model | status | event loop, ms a request | longest wait for /healthz, ms | grown by, MiB |",
  );
  console.log("|---|---|---|---|--:|--:|--:|");
  for (const body of WORST_BODIES.filter(({ name }) => name.includes(values.only))) {
    for (const model of body.needs === "token" ? ["sandbox/echo", "worst"] : ["–"]) {
      console.log(`| ${(await measure(service, target, body, model)).join(" | ")} |`);
    }
  }
} finally {
  await service.end();
  await upstream.close();
}
