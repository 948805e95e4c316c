import { mkdirSync, renameSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { afterEach, beforeEach, expect, test } from "vitest";
import { firstToken, operator } from "../support/admin.ts";
import { readExposition, sumOf } from "../support/prometheus.ts";
import { freePort, makeDirectory, type ServiceProcess, send, startProcess } from "../support/service.ts";
import { answering, startUpstream, type Upstream } from "../support/upstream.ts";

let directory: string;
let upstream: Upstream;
let service: ServiceProcess | undefined;

beforeEach(async () => {
  directory = await makeDirectory();
  upstream = await startUpstream();
  upstream.behave("x", answering({ words: ["a", "b"], usage: { prompt_tokens: 3, completion_tokens: 2 } }));
});
afterEach(async () => {
  await service?.end("SIGKILL");
  service = undefined;
  await upstream.close();
  rmSync(directory, { recursive: true });
});

const CANARY = "sk-canary-one";
const NEXT_CANARY = "sk-canary-two";
const file = (name: string) => join(directory, name);

/** A configuration with one provider, whose key is in a file, and its models. */
function configOf(models: string[] = ["m"], further: object = {}): object {
  return {
    providers: [
      {
        id: "up",
        kind: "openai-compatible",
        baseUrl: upstream.baseUrl,
        apiKey: `\${file:${file("key")}}`,
        headers: { "x-own": `\${file:${file("header")}}` },
      },
    ],
    models: models.map((id) => ({
      id,
      routes: [{ provider: "up", model: "x" }],
      price: { input: "1", output: "1" },
    })),
    ...further,
  };
}

async function start(config: object = configOf()): Promise<{ service: ServiceProcess; token: string }> {
  writeFileSync(file("key"), `${CANARY}\n`);
  writeFileSync(file("header"), "header-canary-one");
  const dataDir = file("data");
  mkdirSync(dataDir);
  const started = await startProcess({ config, dataDir, configDir: directory });
  service = started;
  return { service: started, token: firstToken(started) };
}

const change = (config: object) => writeFileSync(file("tollgate.yaml"), JSON.stringify(config));

interface Line {
  level: string;
  msg: string;
  cause?: string;
  mistake?: string;
  changes?: Record<string, string>;
  atNextStart?: Record<string, string>;
}

/** Lines of the log about reloads. */
function linesOf({ output }: ServiceProcess): Line[] {
  const lines = output().match(/^\{.*\}$/gm) ?? [];
  return lines.map((line) => JSON.parse(line) as Line).filter(({ msg }) => msg.startsWith("the configuration"));
}

/** Waits for the next line about a reload after `count` lines. */
async function lineAfter(running: ServiceProcess, count: number): Promise<Line> {
  await expect.poll(() => linesOf(running).length).toBeGreaterThan(count);
  return linesOf(running)[count] as Line;
}

const ask = (running: ServiceProcess, token: string, fields: object = {}) =>
  send(running, "/v1/chat/completions", token, {
    model: "m",
    messages: [{ role: "user", content: "Hello" }],
    ...fields,
  });

async function modelsOf(running: ServiceProcess, token: string): Promise<string[]> {
  const { data } = (await (await send(running, "/v1/models", token)).json()) as { data: { id: string }[] };
  return data.map(({ id }) => id).filter((id) => !id.includes("/"));
}

test("a key that is rotated during a stream is used by the next request, and the stream ends with the old one", async () => {
  const { service, token } = await start();
  const gate = Promise.withResolvers<void>();
  upstream.behave("x", async (request) => {
    const { response } = request;
    if (request.body.stream !== true) return answering({ words: ["later"] })(request);
    response.writeHead(200, { "content-type": "text/event-stream" });
    response.write(`data: ${JSON.stringify({ choices: [{ index: 0, delta: { content: "before" } }] })}\n\n`);
    await gate.promise;
    response.write(`data: ${JSON.stringify({ choices: [{ index: 0, delta: {}, finish_reason: "stop" }] })}\n\n`);
    response.end("data: [DONE]\n\n");
  });
  const stream = await ask(service, token, { stream: true });
  writeFileSync(file("key"), `${NEXT_CANARY}\n`);
  writeFileSync(file("header"), "header-canary-two");
  expect(await lineAfter(service, 0)).toMatchObject({
    level: "info",
    cause: "file",
    changes: { "providers[up].apiKey": "changed", "providers[up].headers.x-own": "changed" },
  });
  expect((await ask(service, token)).status).toBe(200);
  gate.resolve();
  const text = await stream.text();
  expect(text).toContain("before");
  expect(text).toContain("data: [DONE]");
  expect(upstream.requests.map(({ headers }) => headers.authorization)).toEqual([
    `Bearer ${CANARY}`,
    `Bearer ${NEXT_CANARY}`,
  ]);
  // The old pool, with the connection of the stream, is closed once the stream has ended.
  const sockets = upstream.requests.map(({ response }) => response.req.socket);
  await expect.poll(() => sockets.map(({ destroyed }) => destroyed)).toEqual([true, false]);
  for (const secret of ["canary", "header-canary"]) expect(service.output()).not.toContain(secret);
});

test("models and limits change by the file, and requests that are refused afterwards get the usual errors", async () => {
  const { service, token } = await start();
  change(configOf(["m", "n"], { limits: { requestsPerMinute: 601 }, completions: { messages: "conversation" } }));
  expect((await lineAfter(service, 0)).changes).toEqual({
    "models[n]": "added",
    "limits.requestsPerMinute": "changed",
    "completions.messages": "changed",
  });
  expect(await modelsOf(service, token)).toEqual(["m", "n"]);
  const answer = await ask(service, token, { model: "n" });
  expect(answer.headers.get("x-ratelimit-limit-requests")).toBe("601");
  expect(((await answer.json()) as { messages: unknown[] }).messages).toHaveLength(2);
  const facts = (await (await fetch(`${service.url}/admin/v1/service`)).json()) as object;
  expect(facts).toMatchObject({ default_limits: { requests_per_minute: 601 } });
  change(configOf(["n"]));
  expect((await lineAfter(service, 1)).changes).toMatchObject({ "models[m]": "removed" });
  expect((await ask(service, token)).status).toBe(404);
  expect(await modelsOf(service, token)).toEqual(["n"]);
});

test("the time for which conversations are stored changes by the file", async () => {
  const keeping = (keepDays: number) => configOf(["m"], { conversations: { keepDays } });
  const { service, token } = await start(keeping(2));
  const admin = operator(service);
  const { id } =
    (await admin.call<{ data: { id: string }[] }>("GET", "/organizations?search=default")).body.data[0] ?? {};
  await admin.call("PATCH", `/organizations/${id}`, { keeps_conversations: true });
  const accessId = (await ask(service, token)).headers.get("x-request-id");
  const daysKept = async () => {
    const { body } = await admin.call<Record<string, string>>("GET", `/requests/${accessId}/conversation`);
    return (Date.parse(body.kept_until ?? "") - Date.parse(body.ended_at ?? "")) / 86_400_000;
  };
  await expect.poll(daysKept).toBe(2);
  change(keeping(3));
  expect((await lineAfter(service, 0)).changes).toEqual({ "conversations.keepDays": "changed" });
  expect(await daysKept()).toBe(3);
});

test("a mistake changes nothing and is logged in one line", async () => {
  const { service, token } = await start();
  const both = configOf(["m", "n"]);
  const mistakes: [string | object, RegExp][] = [
    [{ ...both, limitz: {} }, /tollgate\.yaml:1: limitz is not a known setting\./],
    ["models: [", /tollgate\.yaml:1: this is not valid YAML/],
    ["\n", /tollgate\.yaml: the configuration file is empty/],
    [{ ...both, providers: [] }, /provider/],
    [{ ...both, providers: [{ id: "up", kind: "none" }] }, /kind is 'none', but must be one of/],
  ];
  let count = 0;
  for (const [mistaken, expected] of mistakes) {
    writeFileSync(file("tollgate.yaml"), typeof mistaken === "string" ? mistaken : JSON.stringify(mistaken));
    const line = await lineAfter(service, count);
    expect(line).toMatchObject({ level: "error", cause: "file", msg: expect.stringContaining("nothing was changed") });
    expect(line.mistake).toMatch(expected);
    expect(line.mistake).not.toContain("\n");
    expect(await modelsOf(service, token)).toEqual(["m"]);
    expect((await ask(service, token)).status).toBe(200);
    service.child.kill("SIGHUP");
    expect(await lineAfter(service, count + 1)).toMatchObject({ cause: "signal", mistake: line.mistake });
    count += 2;
  }
  rmSync(file("tollgate.yaml"));
  expect((await lineAfter(service, count)).mistake).toMatch(/cannot be read: there is no such file$/);
  change(both);
  expect((await lineAfter(service, count + 1)).changes).toEqual({ "models[n]": "added" });
});

test("the metrics show a mistake until it is mended, a change that needs a restart, and the hash that config check prints", async () => {
  const metrics = { port: await freePort() };
  const { service } = await start(configOf(["m"], { metrics }));
  const shown = async () => {
    const text = await (await fetch(`http://127.0.0.1:${metrics.port}/metrics`)).text();
    const values = readExposition(text);
    const gauge = (name: string) => sumOf(values, `tollgate_configuration_${name}`);
    return { hash: gauge("hash"), read: gauge("read"), restartNeeded: gauge("restart_needed") };
  };
  const { hash } = await shown();
  expect(await shown()).toEqual({ hash, read: 1, restartNeeded: 0 });
  expect((await service.tollgate<{ hash: number }>("config", "check")).hash).toBe(hash);
  writeFileSync(file("tollgate.yaml"), "models: [");
  await expect.poll(shown).toEqual({ hash, read: 0, restartNeeded: 0 });
  change(configOf(["m", "n"], { metrics, server: { maxConnections: 100 } }));
  await expect.poll(async () => (await shown()).read).toBe(1);
  const changed = await shown();
  expect(changed.restartNeeded).toBe(1);
  expect(changed.hash).not.toBe(hash);
  expect((await service.tollgate<{ hash: number }>("config", "check")).hash).toBe(changed.hash);
  writeFileSync(file("key"), NEXT_CANARY);
  await expect
    .poll(() => linesOf(service).some(({ changes }) => JSON.stringify(changes)?.includes("apiKey")))
    .toBe(true);
  expect(await shown()).toEqual(changed);
});

test("a key that takes effect at the next start is named, and the rest is applied", async () => {
  const { service, token } = await start();
  change(configOf(["m", "n"], { server: { bodyLimitBytes: 4096, drainSeconds: 3 }, ledger: { sweepSeconds: 5 } }));
  expect(await lineAfter(service, 0)).toMatchObject({
    changes: { "models[n]": "added", "server.drainSeconds": "changed" },
    atNextStart: { "server.bodyLimitBytes": "changed", "ledger.sweepSeconds": "changed" },
  });
  expect(await modelsOf(service, token)).toEqual(["m", "n"]);
  const long = await ask(service, token, { messages: [{ role: "user", content: "x".repeat(5_000) }] });
  expect(long.status).toBe(200);
  // They stay named until the next start.
  service.child.kill("SIGHUP");
  expect((await lineAfter(service, 1)).atNextStart).toMatchObject({ "ledger.sweepSeconds": "changed" });
  service.child.kill("SIGTERM");
  await expect.poll(() => service.output()).toContain('"drainMs":3000');
});

test("the level of the log changes, and the line about it is written", async () => {
  const { service } = await start();
  change(configOf(["m"], { log: { level: "error" } }));
  expect((await lineAfter(service, 0)).changes).toEqual({ "log.level": "changed" });
  change(configOf(["m", "n"], { log: { level: "error" } }));
  change(configOf(["m", "n"], { log: { level: "info" } }));
  expect((await lineAfter(service, 1)).changes).toMatchObject({ "log.level": "changed" });
});

test("a ConfigMap and a Secret of Kubernetes are read again when their links are replaced", async () => {
  const volume = (version: string, config: object, key: string) => {
    mkdirSync(file(`..${version}`));
    writeFileSync(file(`..${version}/tollgate.yaml`), JSON.stringify(config));
    writeFileSync(file(`..${version}/key`), key);
    symlinkSync(`..${version}`, file("..data_tmp"));
    renameSync(file("..data_tmp"), file("..data"));
  };
  const { service, token } = await start();
  volume("1", configOf(), CANARY);
  for (const name of ["tollgate.yaml", "key"]) {
    symlinkSync(join("..data", name), file("link"));
    renameSync(file("link"), file(name));
  }
  volume("2", configOf(["m", "n"]), NEXT_CANARY);
  rmSync(file("..1"), { recursive: true });
  expect((await lineAfter(service, 0)).changes).toEqual({ "models[n]": "added", "providers[up].apiKey": "changed" });
  expect((await ask(service, token)).status).toBe(200);
  expect(upstream.requests.at(-1)?.headers.authorization).toBe(`Bearer ${NEXT_CANARY}`);
});

test("requests during many reloads all succeed, and the pools of earlier providers are closed", async () => {
  const RELOADS = 50;
  const { service, token } = await start(configOf(["m"], { limits: { requestsPerMinute: 1_000_000 } }));
  const statuses = new Map<number, number>();
  let isReloading = true;
  const client = async () => {
    while (isReloading) {
      const answer = await ask(service, token, { stream: Math.random() < 0.5 });
      const text = await answer.text();
      statuses.set(answer.status, (statuses.get(answer.status) ?? 0) + 1);
      expect(text).not.toContain('"error"');
    }
  };
  const clients = Array.from({ length: 8 }, client);
  for (let turn = 1; turn <= RELOADS; turn += 1) {
    writeFileSync(file("key"), `${CANARY}-${turn}`);
    service.child.kill("SIGHUP");
    const isUsed = () => upstream.requests.some(({ headers }) => headers.authorization === `Bearer ${CANARY}-${turn}`);
    await expect.poll(isUsed, { interval: 5 }).toBe(true);
  }
  isReloading = false;
  await Promise.all(clients);
  expect([...statuses.keys()]).toEqual([200]);
  expect(statuses.get(200)).toBeGreaterThan(RELOADS);
  const sockets = new Set(upstream.requests.map(({ response }) => response.req.socket));
  const open = () => [...sockets].filter(({ destroyed }) => !destroyed).length;
  await expect.poll(open).toBeLessThanOrEqual(8);
  expect(sockets.size).toBeGreaterThan(RELOADS);
  expect(service.output()).not.toContain(CANARY);
});
