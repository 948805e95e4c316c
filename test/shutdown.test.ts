import { Agent, get } from "node:http";
import { connect } from "node:net";
import { setTimeout as sleep } from "node:timers/promises";
import { afterEach, expect, test } from "vitest";
import { type RunningService, send, startService } from "./support/service.ts";

let service: RunningService | undefined;
afterEach(async () => {
  await service?.end("SIGKILL");
  service = undefined;
});

/** Starts a service; `exited` resolves with the exit code. */
async function startWith(server: object) {
  const started = await startService({ config: { server } });
  service = started;
  const exited = new Promise<number | null>((resolve) => started.child.once("exit", resolve));
  const token = /sk-tg-[0-9A-Za-z]+/.exec(started.output())?.[0] ?? "";
  return { service: started, token, exited };
}

const silenceOf = (seconds: number) => ({
  model: "sandbox/fault",
  messages: [{ role: "user", content: `silence after 5 tokens ${seconds}s` }],
  stream: true,
});
const echo = { model: "sandbox/echo", messages: [{ role: "user", content: "still here" }] };

async function statusAt(url: string): Promise<string> {
  const answer = await fetch(url);
  return `${answer.status} ${((await answer.json()) as { status: string }).status}`;
}

/** Asks for a path over one connection that is kept open. */
function askOver(agent: Agent, url: string): Promise<string> {
  return new Promise((resolve, reject) => {
    const request = get(url, { agent }, (response) => {
      let text = "";
      response.on("data", (data) => (text += data));
      response.on("end", () => resolve(`${response.statusCode} ${JSON.parse(text).status}`));
    });
    request.once("error", reject);
  });
}

function isRefused(url: string): Promise<boolean> {
  const { hostname, port } = new URL(url);
  return new Promise((resolve) => {
    const socket = connect(Number(port), hostname);
    socket.once("connect", () => {
      socket.destroy();
      resolve(false);
    });
    socket.once("error", () => resolve(true));
  });
}

test("a service with a drain delay answers /readyz with draining and completes requests; a second signal ends it", async () => {
  const { service, token, exited } = await startWith({ drainDelaySeconds: 3_600 });
  const stream = await send(service, "/v1/chat/completions", token, silenceOf(5));
  service.child.kill("SIGTERM");
  await expect.poll(() => statusAt(`${service.url}/readyz`)).toBe("503 draining");
  expect(await statusAt(`${service.url}/healthz`)).toBe("200 ok");
  const completion = await send(service, "/v1/chat/completions", token, echo);
  expect(completion.status).toBe(200);
  expect(completion.headers.get("connection")).not.toBe("close");
  await completion.text();
  // Two signals that come close together count as one.
  await sleep(300);
  expect(await isRefused(service.url)).toBe(false);
  service.child.kill("SIGTERM");
  await expect.poll(() => isRefused(service.url)).toBe(true);
  expect(await stream.text()).toContain("data: [DONE]");
  expect(await exited).toBe(0);
});

test("the listener closes when the drain delay is over, while answers still run", async () => {
  const { service, token } = await startWith({ drainDelaySeconds: 0.5 });
  const stream = await send(service, "/v1/chat/completions", token, silenceOf(60));
  service.child.kill("SIGTERM");
  await expect.poll(() => isRefused(service.url)).toBe(true);
  expect(service.child.exitCode).toBeNull();
  await stream.body?.cancel();
});

test("open connections learn of the drain until the last answer has ended", async () => {
  const { service, token, exited } = await startWith({});
  const agent = new Agent({ keepAlive: true, maxSockets: 1 });
  expect(await askOver(agent, `${service.url}/readyz`)).toBe("200 ready");
  const stream = await send(service, "/v1/chat/completions", token, silenceOf(3));
  service.child.kill("SIGTERM");
  await expect.poll(() => isRefused(service.url)).toBe(true);
  for (let round = 0; round < 5; round += 1) {
    expect(await askOver(agent, `${service.url}/readyz`)).toBe("503 draining");
    expect(await askOver(agent, `${service.url}/healthz`)).toBe("200 ok");
    await sleep(100);
  }
  expect(await stream.text()).toContain("data: [DONE]");
  expect(await exited).toBe(0);
  agent.destroy();
});

test("answers on connections of several sockets are completed, and idle connections of others do not hold a stop up", async () => {
  const { service, token, exited } = await startWith({});
  const agents = Array.from({ length: 20 }, () => new Agent({ keepAlive: true }));
  for (const agent of agents) expect(await askOver(agent, `${service.url}/healthz`)).toBe("200 ok");
  const streams = await Promise.all(
    Array.from({ length: 20 }, () => send(service, "/v1/chat/completions", token, silenceOf(2))),
  );
  service.child.kill("SIGTERM");
  await expect.poll(() => isRefused(service.url)).toBe(true);
  for (const stream of streams) expect(await stream.text()).toContain("data: [DONE]");
  expect(await exited).toBe(0);
  for (const agent of agents) agent.destroy();
});

test("a connection that has not sent its request does not hold a stop up", async () => {
  const { service, exited } = await startWith({});
  const { port } = new URL(service.url);
  const idle = connect(Number(port), "127.0.0.1");
  const closed = new Promise((resolve) => idle.once("close", resolve));
  idle.on("error", () => undefined);
  await new Promise((resolve) => idle.once("connect", resolve));
  service.child.kill("SIGTERM");
  expect(await exited).toBe(0);
  await closed;
});

test("a signal before the start has ended stops the service as one after it does", async () => {
  service = await startService({ awaits: "/healthz" });
  expect(await service.end("SIGTERM")).toBe(0);
  expect(service.output()).toContain("stopping: running answers are finished");
});
