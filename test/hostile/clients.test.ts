import { once } from "node:events";
import type { ServerResponse } from "node:http";
import { setTimeout as sleep } from "node:timers/promises";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { countOf } from "../support/counts.ts";
import { cutOffMs } from "../support/patience.ts";
import { makeOrganization, type Organization, type RunningService, send, startService } from "../support/service.ts";
import { answering, startUpstream, type Upstream } from "../support/upstream.ts";
import { expectEnvelope } from "./envelope.ts";
import { answersIn, closeOf, dial } from "./raw-http.ts";

/** An output token costs one credit, an input token a thousandth of it. */
const PRICE = { input: 1_000, output: 1_000_000 };
const FREE = { input: 0, output: 0 };
const usage = { prompt_tokens: 250, completion_tokens: 7, total_tokens: 257 };
const usageCost = 7.25;
/** Input tokens of the message that all requests send. */
const inputCost = 0.008;
const CUT_OFF_WITHIN_MS = 500;
const HEADERS_CUT_WITHIN_MS = 20_000;
/** Connections with slow headers. */
const SLOW = countOf("headers");

let upstream: Upstream;
let service: RunningService;
/** Bytes that the long stream has written to its socket. */
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
      providers: [upstream.provider],
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

/** Returns the credits once nothing is held. */
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

/** Returns the upstream requests for a model. */
const seen = (model: string) => upstream.requests.filter((request) => request.body.model === model);

async function untilSeen(model: string, count: number): Promise<void> {
  while (seen(model).length < count) await sleep(5);
}

describe("A client that disconnects", () => {
  test("A client that disconnects before its request is complete causes no upstream call and no charge.", async () => {
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

  test("A client that disconnects before an answer that is not streamed pays the input and an estimate within the hold, and the upstream call ends within 500 ms.", async () => {
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

  test("A client that disconnects right after the usage pays the reported usage once.", async () => {
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

  test("A hundred clients that disconnect at once pay nothing or the input.", async () => {
    const organization = await makeOrganization(service, "20000");
    const before = seen("mute").length;
    for (let count = 0; count < 100; count += 1) {
      const socket = dial(service.url);
      await once(socket, "connect");
      const seenBefore = seen("mute").length;
      socket.write(text(organization, { model: "mute", stream: true }));
      // On a busy machine none of the others may reach the upstream.
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

  test("The pipelined requests of a disconnected client do not continue.", async () => {
    const organization = await makeOrganization(service, "1000");
    const before = seen("mute").length;
    const socket = dial(service.url);
    socket.write(text(organization, { model: "mute", stream: true }).repeat(3));
    await untilSeen("mute", before + 3);
    socket.destroy();
    for (const { closed } of seen("mute").slice(before)) await closed;
    expect((await settled(organization)).creditsUsed).toBeLessThan(1);
  });

  test("A client that closes its half of the connection counts as disconnected.", async () => {
    const organization = await makeOrganization(service, "1000");
    const before = seen("mute").length;
    const socket = dial(service.url);
    socket.write(text(organization, { model: "mute" }));
    await untilSeen("mute", before + 1);
    expect(await cutOffMs(service, seen("mute")[before], () => socket.end())).toBeLessThan(CUT_OFF_WITHIN_MS);
    await settled(organization);
  });

  test("Two hundred clients that disconnect without a request do not affect others.", async () => {
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

test("Invalid HTTP after the request of a running stream is not answered within the stream.", async () => {
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

test("If a client does not read a long stream, its upstream is paused, others are served, and its disconnect ends the request.", async () => {
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
  // The buffers of four sockets fill up, and then the transfer stops.
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

test(`${SLOW} connections with slowly arriving headers are closed, and others are served meanwhile.`, async () => {
  const organization = await makeOrganization(service, "1000");
  const beganAtMs = Date.now();
  const ends = Array.from({ length: SLOW }, async (_, index) => {
    const socket = dial(service.url);
    const pieces: Buffer[] = [];
    socket.on("data", (data: Buffer) => pieces.push(data));
    // A third of them sends nothing.
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
    // On a busy machine, this request takes as long as the others.
    expect(ms).toBeLessThan(HEADERS_CUT_WITHIN_MS + slowestMs);
    if (answer !== undefined) expectEnvelope(answer.status, answer.body, 408);
  }
});
