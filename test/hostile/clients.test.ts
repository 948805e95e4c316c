import { once } from "node:events";
import type { ServerResponse } from "node:http";
import { setTimeout as sleep } from "node:timers/promises";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { cutOffMs } from "../support/patience.ts";
import { makeOrganization, type Organization, type RunningService, send, startService } from "../support/service.ts";
import { answering, startUpstream, type Upstream } from "../support/upstream.ts";
import { expectEnvelope } from "./envelope.ts";
import { answersIn, closeOf, dial } from "./raw-http.ts";

/** A credit a token of output; the input costs a thousandth of it. */
const PRICE = { input: 1_000, output: 1_000_000 };
const FREE = { input: 0, output: 0 };
const usage = { prompt_tokens: 250, completion_tokens: 7, total_tokens: 257 };
const usageCost = 7.25;
/** Of the one message that all of them send. */
const inputCost = 0.008;
const CUT_OFF_WITHIN_MS = 500;
const HEADERS_CUT_WITHIN_MS = 20_000;

let upstream: Upstream;
let service: RunningService;
/** Bytes that the flood has handed to its socket. */
let flooded = 0;

beforeAll(async () => {
  upstream = await startUpstream();
  upstream.behave("mute", () => {});
  upstream.behave("slow", answering({ words: Array(100).fill(" word"), usage, pauseMs: 20 }));
  upstream.behave("quick", answering({ words: ["a", " b"], usage }));
  upstream.behave("lingering", ({ response }) => {
    response.writeHead(200, { "content-type": "text/event-stream" });
    const choice = (fields: object) => ({ choices: [{ index: 0, ...fields }] });
    const events = [
      choice({ delta: { content: "a " } }),
      choice({ delta: {}, finish_reason: "stop" }),
      { choices: [], usage },
    ];
    for (const event of events) response.write(`data: ${JSON.stringify(event)}\n\n`);
  });
  upstream.behave("flood", async ({ response }) => {
    response.writeHead(200, { "content-type": "text/event-stream" });
    const delta = { content: "x".repeat(4000) };
    const event = `data: ${JSON.stringify({ choices: [{ index: 0, delta }] })}\n\n`;
    while (!response.destroyed) {
      flooded += event.length;
      if (!response.write(event)) await drainedOrClosed(response);
    }
  });
  const models = ["mute", "slow", "quick", "lingering"].map((id) => ({ id, price: PRICE }));
  service = await startService({
    config: {
      limits: { requestsPerMinute: 100_000, tokensPerMinute: 1_000_000_000, concurrentRequests: 1000 },
      providers: [{ id: "up", kind: "openai-compatible", baseUrl: upstream.baseUrl, apiKey: "k" }],
      models: [...models, { id: "flood", price: FREE }].map((model) => ({
        ...model,
        routes: [{ provider: "up", model: model.id }],
      })),
    },
  });
});

afterAll(async () => {
  await service?.end();
  await upstream?.close();
});

interface Books {
  creditsUsed: number;
  creditsHeld: number;
}
function drainedOrClosed(response: ServerResponse): Promise<void> {
  return new Promise((resolve) => {
    const done = () => {
      response.off("drain", done).off("close", done);
      resolve();
    };
    response.on("drain", done).on("close", done);
  });
}

/** The books once nothing is held any more. */
async function settled(organization: Organization): Promise<Books> {
  for (;;) {
    const books = (await (await send(service, "/v1/usage", organization.token)).json()) as Books;
    if (books.creditsHeld === 0) return books;
    await sleep(50);
  }
}

const text = (organization: Organization, fields: object) => {
  const body = JSON.stringify({ messages: [{ role: "user", content: "go" }], max_tokens: 100, ...fields });
  return [
    "POST /v1/chat/completions HTTP/1.1",
    "Host: x",
    `Authorization: Bearer ${organization.token}`,
    "Content-Type: application/json",
    `Content-Length: ${body.length}`,
    "",
    body,
  ].join("\r\n");
};

/** The requests for a model that have reached the upstream. */
const seen = (model: string) => upstream.requests.filter((request) => request.body.model === model);

async function untilSeen(model: string, count: number): Promise<void> {
  while (seen(model).length < count) await sleep(5);
}

describe("a client that leaves", () => {
  test("before its request is complete: no upstream is called, and nothing charged", async () => {
    const organization = await makeOrganization(service, "1000");
    const before = upstream.requests.length;
    const whole = text(organization, { model: "quick" });
    for (const length of [10, 60, whole.length - 30, whole.length - 1]) {
      const socket = dial(service.url);
      socket.write(whole.slice(0, length));
      await sleep(20);
      socket.destroy();
    }
    await sleep(100);
    expect(upstream.requests.length).toBe(before);
    expect(await settled(organization)).toMatchObject({ creditsUsed: 0 });
    expect(service.output()).not.toContain('"level":"error"');
  });

  test("unstreamed, before the answer: pays the input and an estimate within the hold, and the upstream is cut off within 500 ms", async () => {
    const organization = await makeOrganization(service, "1000");
    const before = seen("mute").length;
    const socket = dial(service.url);
    socket.write(text(organization, { model: "mute" }));
    await untilSeen("mute", before + 1);
    expect(await cutOffMs(service, seen("mute")[before], () => socket.destroy())).toBeLessThan(CUT_OFF_WITHIN_MS);
    const { creditsUsed } = await settled(organization);
    expect(creditsUsed).toBeGreaterThanOrEqual(inputCost);
    expect(creditsUsed).toBeLessThanOrEqual(100 + inputCost);
  });

  test("right after the usage: pays what was reported, once", async () => {
    const organization = await makeOrganization(service, "1000");
    const before = seen("lingering").length;
    const socket = dial(service.url);
    socket.write(text(organization, { model: "lingering", stream: true }));
    let received = "";
    for await (const data of socket) {
      received += data;
      if (received.includes("a ")) break;
    }
    expect(await cutOffMs(service, seen("lingering")[before], () => socket.destroy())).toBeLessThan(CUT_OFF_WITHIN_MS);
    expect(await settled(organization)).toMatchObject({ creditsUsed: usageCost });
  });

  test("at once, a hundred times: each is charged nothing, or the input", async () => {
    const organization = await makeOrganization(service, "20000");
    const before = seen("mute").length;
    for (let count = 0; count < 100; count += 1) {
      const socket = dial(service.url);
      await once(socket, "connect");
      const seenBefore = seen("mute").length;
      socket.write(text(organization, { model: "mute", stream: true }));
      // How far the others come is for the machine to say: a busy one may call no upstream for any of them.
      if (count % 10 === 0) await untilSeen("mute", seenBefore + 1);
      else await sleep(count % 10);
      socket.destroy();
    }
    const called = seen("mute").slice(before);
    await Promise.all(called.map(({ closed }) => closed));
    const { creditsUsed } = await settled(organization);
    const charged = Math.round(creditsUsed * 1e6) / (inputCost * 1e6);
    expect(Number.isInteger(charged)).toBe(true);
    expect(called.length).toBeGreaterThanOrEqual(10);
    expect(charged).toBeGreaterThanOrEqual(called.length);
    expect(charged).toBeLessThanOrEqual(100);
    expect(await service.tollgate("ledger", "verify")).toMatchObject({ ok: true });
  });

  test("with requests in line behind the one that runs: none runs on", async () => {
    const organization = await makeOrganization(service, "1000");
    const before = seen("mute").length;
    const socket = dial(service.url);
    socket.write(text(organization, { model: "mute", stream: true }).repeat(3));
    await untilSeen("mute", before + 3);
    socket.destroy();
    for (const { closed } of seen("mute").slice(before)) await closed;
    expect((await settled(organization)).creditsUsed).toBeLessThan(1);
  });

  test("by closing its half of the connection: no leaving client says more", async () => {
    const organization = await makeOrganization(service, "1000");
    const before = seen("mute").length;
    const socket = dial(service.url);
    socket.write(text(organization, { model: "mute" }));
    await untilSeen("mute", before + 1);
    expect(await cutOffMs(service, seen("mute")[before], () => socket.end())).toBeLessThan(CUT_OFF_WITHIN_MS);
    await settled(organization);
  });

  test("two hundred times without a word: others are served", async () => {
    const organization = await makeOrganization(service, "1000");
    const sockets = await Promise.all(
      Array.from({ length: 200 }, async () => {
        const socket = dial(service.url);
        await once(socket, "connect");
        return socket;
      }),
    );
    for (const [index, socket] of sockets.entries()) index % 2 === 0 ? socket.resetAndDestroy() : socket.end();
    const answer = await send(service, "/v1/chat/completions", organization.token, {
      model: "quick",
      messages: [{ role: "user", content: "go" }],
    });
    expect(answer.status).toBe(200);
    expect(service.output()).not.toContain('"level":"error"');
  });
});

test("what follows a running stream and is no HTTP is not answered into it", async () => {
  const organization = await makeOrganization(service, "1000");
  const socket = dial(service.url);
  let received = "";
  let isSpoilt = false;
  socket.write(text(organization, { model: "slow", stream: true }));
  for await (const data of socket) {
    received += data;
    if (!isSpoilt && received.includes("word")) {
      isSpoilt = true;
      socket.write("\0\0 nonsense\r\n\r\n");
    }
  }
  expect(isSpoilt).toBe(true);
  expect(received.match(/HTTP\/1\.1/g)).toHaveLength(1);
  expect((await settled(organization)).creditsUsed).toBeGreaterThan(0);
});

test("a client that reads nothing of a flood: its upstream is paused, others are served, and its leaving ends it", async () => {
  const organization = await makeOrganization(service, "1000");
  const before = seen("flood").length;
  const socket = dial(service.url).pause();
  socket.write(text(organization, { model: "flood", stream: true }));
  await untilSeen("flood", before + 1);
  const messages = [{ role: "user", content: "go" }];
  let answered = 0;
  const serveOthers = async () => {
    const body = { model: "quick", messages, max_tokens: 10 };
    const answer = await send(service, "/v1/chat/completions", organization.token, body);
    await answer.arrayBuffer();
    expect(answer.status).toBe(200);
    answered += 1;
  };
  // The buffers of four sockets between them fill up; then nothing moves any more, though everything has its turn.
  for (let last = -1; flooded !== last; ) {
    last = flooded;
    for (let count = 0; count < 10; count += 1) await serveOthers();
    await sleep(200);
  }
  const stopped = flooded;
  expect(stopped).toBeGreaterThan(0);
  expect(stopped).toBeLessThan(64 * 1024 * 1024);
  await serveOthers();
  expect(flooded).toBe(stopped);
  expect(await cutOffMs(service, seen("flood")[before], () => socket.destroy())).toBeLessThan(CUT_OFF_WITHIN_MS);
  expect(await settled(organization)).toMatchObject({ creditsUsed: answered * usageCost });
});

test("headers that dribble in from 300 sockets: all are cut off, and others are served meanwhile", async () => {
  const organization = await makeOrganization(service, "1000");
  const beganAtMs = Date.now();
  const ends = Array.from({ length: 300 }, async (_, index) => {
    const socket = dial(service.url);
    const pieces: Buffer[] = [];
    socket.on("data", (data: Buffer) => pieces.push(data));
    // A third of them says nothing at all.
    if (index % 3 > 0) socket.write("GET /v1/models HTTP/1.1\r\nHost: x\r\n");
    const dribbling = setInterval(() => index % 3 > 0 && socket.write("x-a: b\r\n"), 500);
    await closeOf(socket);
    clearInterval(dribbling);
    return { ms: Date.now() - beganAtMs, answer: answersIn(Buffer.concat(pieces))[0] };
  });
  const all = Promise.all(ends);
  let areOpen = true;
  void all.then(() => {
    areOpen = false;
  });
  let served = 0;
  let slowestMs = 0;
  while (areOpen) {
    const askedAtMs = Date.now();
    const answer = await send(service, "/v1/models", organization.token);
    expect(answer.status).toBe(200);
    await answer.arrayBuffer();
    slowestMs = Math.max(slowestMs, Date.now() - askedAtMs);
    served += 1;
    await sleep(100);
  }
  expect(served).toBeGreaterThan(2);
  for (const { ms, answer } of await all) {
    // What a busy machine takes for an answer, it takes for a look at the others as well.
    expect(ms).toBeLessThan(HEADERS_CUT_WITHIN_MS + slowestMs);
    if (answer !== undefined) expectEnvelope(answer.status, answer.body, 408);
  }
});
