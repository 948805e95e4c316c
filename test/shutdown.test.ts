import { Agent, get } from "node:http";
import { connect } from "node:net";
import { join } from "node:path";
import { DatabaseSync } from "node:sqlite";
import { setTimeout as sleep } from "node:timers/promises";
import { afterEach, expect, test } from "vitest";
import { firstToken } from "./support/admin.ts";
import { makeDirectory, makeOrganization, type ServiceProcess, send, startProcess } from "./support/service.ts";
import { answering, startUpstream } from "./support/upstream.ts";

let service: ServiceProcess | undefined;
afterEach(async () => {
  await service?.end("SIGKILL");
  service = undefined;
});

/** Starts a service; `exited` resolves with the exit code. */
async function startWith(server: object, dataDir?: string) {
  const started = await startProcess({ config: { server }, ...(dataDir !== undefined && { dataDir }) });
  service = started;
  const exited = new Promise<number | null>((resolve) => started.child.once("exit", resolve));
  const token = firstToken(started);
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

test("answers on many connections are completed, and idle connections do not hold a stop up", async () => {
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

/** The log line with a message; undefined before it is written. */
function lineOf(of: ServiceProcess, message: string): Record<string, unknown> | undefined {
  return linesOf(of, message)[0];
}

function linesOf({ output }: ServiceProcess, message: string): Record<string, unknown>[] {
  const lines = output().split("\n");
  const found = lines.filter((one) => one.startsWith("{") && one.includes(`"msg":"${message}"`));
  return found.map((line) => JSON.parse(line));
}

/** Returns the data of each server-sent event that is a JSON document. */
function eventsIn(text: string): unknown[] {
  const lines = text.split("\n").filter((line) => line.startsWith("data: {"));
  return lines.map((line) => JSON.parse(line.slice("data: ".length)));
}

/** Returns the credits that are charged or held, of all organizations or of one. */
async function spentIn({ tollgate }: ServiceProcess, organizationId?: string): Promise<number> {
  const all = await tollgate<{ id: string; creditsTotal: number; creditsAvailable: number }[]>("org", "list");
  const chosen = all.filter(({ id }) => organizationId === undefined || id === organizationId);
  return chosen.reduce((sum, { creditsTotal, creditsAvailable }) => sum + creditsTotal - creditsAvailable, 0);
}

const said = "silence after 5 tokens 60s";
const stopping = "The service is stopping. Send the request again.";
const messages = [{ role: "user", content: said }];
const GEMINI = "/v1beta/models/sandbox%2Ffault:streamGenerateContent?alt=sse";
/** Streams of each wire, and the event that each ends with. */
const CUT_STREAMS: [path: string, body: object, last: object][] = [
  ["/v1/chat/completions", { messages }, { error: { code: "overloaded", message: stopping } }],
  ["/v1/completions", { prompt: said }, { error: { code: "overloaded", message: stopping } }],
  [
    GEMINI,
    { contents: [{ role: "user", parts: [{ text: said }] }] },
    { error: { code: 503, status: "UNAVAILABLE", message: stopping } },
  ],
  [
    "/v1/responses",
    { input: said },
    { type: "response.failed", response: { status: "failed", error: { code: "server_error", message: stopping } } },
  ],
  [
    "/v1/messages",
    { messages, max_tokens: 100 },
    { type: "error", error: { type: "overloaded_error", message: stopping } },
  ],
];

test("a stream of each wire past server.drainSeconds ends with an error event, and is charged for what was sent", async () => {
  const { service, exited } = await startWith({ drainSeconds: 0.5 });
  const begun = await Promise.all(
    CUT_STREAMS.map(async ([path, body, last]) => {
      const { id, token } = await makeOrganization(service, "50");
      const common = path === GEMINI ? {} : { model: "sandbox/fault", stream: true };
      return { path, last, id, stream: await send(service, path, token, { ...common, ...body }) };
    }),
  );
  service.child.kill("SIGTERM");
  const ended = await Promise.all(begun.map(async (one) => ({ ...one, events: eventsIn(await one.stream.text()) })));
  expect(await exited).toBe(0);
  const requests = linesOf(service, "request");
  for (const { path, last, id, events } of ended) {
    expect(events.at(-1), path).toMatchObject(last);
    const route = path === GEMINI ? "/v1beta/models/*" : path;
    expect(requests).toContainEqual(expect.objectContaining({ route, status: 200, code: "overloaded" }));
    expect(await spentIn(service, id), path).toBeGreaterThan(0);
  }
  const failed = { code: "overloaded", end: "service_failed", attempts: [{ outcome: "answered" }] };
  expect(linesOf(service, "a request failed")).toMatchObject(CUT_STREAMS.map(() => failed));
  const count = CUT_STREAMS.length;
  expect(await service.tollgate("ledger", "verify")).toMatchObject({ ok: true, holds: count, events: count });
});

test("a completion that is not streamed gets 503 past server.drainSeconds, and is not charged", async () => {
  const { service, token, exited } = await startWith({ drainSeconds: 0.5 });
  const asked = send(service, "/v1/chat/completions", token, { ...silenceOf(60), stream: false });
  await expect.poll(() => spentIn(service)).toBeGreaterThan(0);
  service.child.kill("SIGTERM");
  const answer = await asked;
  expect([answer.status, await answer.json()]).toMatchObject([
    503,
    { error: { code: "overloaded", message: stopping } },
  ]);
  expect(await exited).toBe(0);
  expect(lineOf(service, "request")).toMatchObject({ status: 503, code: "overloaded" });
  expect(await spentIn(service)).toBe(0);
});

test("a completion gets its 503 although the store takes longer than its clients have to read it", async () => {
  const dataDir = await makeDirectory();
  const { service, token, exited } = await startWith({ drainSeconds: 0.5 }, dataDir);
  const asked = send(service, "/v1/chat/completions", token, { ...silenceOf(60), stream: false });
  await expect.poll(() => spentIn(service)).toBeGreaterThan(0);
  const database = new DatabaseSync(join(dataDir, "tollgate.db"));
  database.exec("BEGIN IMMEDIATE");
  service.child.kill("SIGTERM");
  await sleep(5_000);
  database.exec("ROLLBACK");
  database.close();
  expect((await asked).status).toBe(503);
  expect(await exited).toBe(0);
  expect(await spentIn(service)).toBe(0);
});

test("a client that reads nothing of its stream does not hold a stop up", async () => {
  const upstream = await startUpstream();
  try {
    upstream.behave("flood", answering({ words: Array<string>(4_000).fill(" word".repeat(2_000)) }));
    const models = [{ id: "flood", price: { input: 1, output: 1 }, routes: [{ provider: "up", model: "flood" }] }];
    const config = { server: { drainSeconds: 0.5 }, providers: [upstream.provider], models };
    service = await startProcess({ config, dataDir: await makeDirectory() });
    const { token } = await makeOrganization(service, "1000");
    const body = JSON.stringify({ model: "flood", messages: echo.messages, stream: true });
    const stalled = connect(Number(new URL(service.url).port), "127.0.0.1");
    stalled.on("error", () => undefined);
    const head = `POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer ${token}`;
    stalled.write(`${head}\r\nContent-Type: application/json\r\nContent-Length: ${body.length}\r\n\r\n${body}`);
    await expect.poll(() => upstream.requests.length).toBe(1);
    expect(await service.end("SIGTERM")).toBe(0);
    stalled.destroy();
    expect(await service.tollgate("ledger", "verify")).toMatchObject({ ok: true, events: 1 });
  } finally {
    await upstream.close();
  }
});

test("a signal before the start has ended stops the service as one after it does", async () => {
  service = await startProcess({ awaits: "/healthz" });
  expect(await service.end("SIGTERM")).toBe(0);
  expect(service.output()).toContain("stopping: new requests are accepted for delayMs");
});
