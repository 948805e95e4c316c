/**
 * `node bench/telemetry.ts --requests 4000 --rounds 5`: the processor time of a request with metrics and traces off, with
 * metrics, and with both. Three services answer `sandbox/echo` in turns; prints the median of the rounds.
 */
import { readFileSync } from "node:fs";
import { Agent, request } from "node:http";
import { parseArgs } from "node:util";
import { startCollector } from "../test/support/collector.ts";
import { freePort, makeOrganization, type ServiceProcess, startProcess } from "../test/support/service.ts";

const { values } = parseArgs({
  options: { requests: { type: "string", default: "4000" }, rounds: { type: "string", default: "5" } },
});
const CONNECTIONS = 32;
/** Unit of the times in /proc/PID/stat. */
const TICK_MS = 10;
const MANY = { requestsPerMinute: 1_000_000_000, tokensPerMinute: 1_000_000_000 };
const BODY = JSON.stringify({ model: "sandbox/echo", messages: [{ role: "user", content: "Hello, Tollgate!" }] });

interface Entrant {
  name: string;
  service: ServiceProcess;
  token: string;
  microseconds: number[];
}

const collector = await startCollector();
const settings = {
  off: {},
  metrics: { metrics: { port: await freePort() } },
  "metrics and traces": { metrics: { port: await freePort() }, telemetry: { endpoint: collector.url } },
};
const entrants: Entrant[] = [];
for (const [name, config] of Object.entries(settings)) {
  const service = await startProcess({ config: { limits: MANY, log: { level: "silent" }, ...config } });
  const { token } = await makeOrganization(service, "1000000");
  entrants.push({ name, service, token, microseconds: [] });
}

/** Returns the processor time of a service since its start: its own threads, in user and kernel mode. */
function processorMs({ child }: ServiceProcess): number {
  const fields = readFileSync(`/proc/${child.pid}/stat`, "utf8").split(") ")[1]?.split(" ") ?? [];
  return (Number(fields[11]) + Number(fields[12])) * TICK_MS;
}

function complete({ service, token }: Entrant, agent: Agent): Promise<void> {
  const headers = { authorization: `Bearer ${token}`, "content-type": "application/json" };
  return new Promise((resolve, reject) => {
    const sent = request(`${service.baseUrl}/chat/completions`, { method: "POST", agent, headers }, (answer) => {
      if (answer.statusCode !== 200) reject(new Error(`The service answered ${answer.statusCode}`));
      answer.resume().once("end", resolve);
    });
    sent.once("error", reject).end(BODY);
  });
}

async function load(entrant: Entrant, requests: number): Promise<void> {
  const agent = new Agent({ keepAlive: true, maxSockets: CONNECTIONS });
  let left = requests;
  const line = async () => {
    while (left-- > 0) await complete(entrant, agent);
  };
  await Promise.all(Array.from({ length: CONNECTIONS }, line));
  agent.destroy();
}

const requests = Number(values.requests);
for (const entrant of entrants) await load(entrant, requests);
for (let round = 0; round < Number(values.rounds); round += 1) {
  for (const entrant of entrants) {
    const before = processorMs(entrant.service);
    await load(entrant, requests);
    entrant.microseconds.push(((processorMs(entrant.service) - before) * 1000) / requests);
  }
}
console.log("| | µs of processor time a request | range |\n|---|--:|--:|");
for (const { name, microseconds } of entrants) {
  const [least = 0, median = 0, most = 0] = [0, 0.5, 1].map(
    (part) => microseconds.sort((a, b) => a - b)[Math.round(part * (microseconds.length - 1))] ?? 0,
  );
  console.log(`| ${name} | ${median.toFixed(0)} | ${least.toFixed(0)} to ${most.toFixed(0)} |`);
}
for (const { service } of entrants) await service.end();
await collector.close();
