import { createServer, type ServerResponse } from "node:http";
import { type AddressInfo, connect, type Socket } from "node:net";
import { setImmediate as nextTurn, setTimeout as sleep } from "node:timers/promises";
import type { FastifyReply } from "fastify";
import { afterEach, describe, expect, test, vi } from "vitest";
import { type AnswerPiece, ChoicesProgress } from "../api/answer.ts";
import { ChatEventEncoder } from "../api/chat/encode.ts";
import type { DecodedCompletion } from "../api/wire.ts";
import { closeWhenUnread } from "./connection.ts";
import { EventStreamSink } from "./event-stream-sink.ts";

/** For clients that are disconnected. */
const SLOW_CLIENT_MS = 200;
/** For clients that are not disconnected, also on a busy machine. */
const LONG_MS = 1_500;
const MEBIBYTE = 1024 * 1024;
const HEAD = { id: "a", created: 1, model: "m", organizationId: "org_a", headers: {} };
const PIECE = [{ delta: { content: "x".repeat(16 * 1024) } }];

const closings: (() => void)[] = [];
afterEach(() => {
  vi.useRealTimers();
  for (const close of closings.splice(0)) close();
});

/** Returns the response to a real client, whose socket is paused. */
async function respond(request = "GET / HTTP/1.1\r\nHost: x\r\n\r\n") {
  const responses: ServerResponse[] = [];
  const server = createServer((_request, response) => responses.push(response));
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const socket = connect((server.address() as AddressInfo).port, "127.0.0.1").on("error", () => {});
  socket.pause();
  socket.write(request);
  closings.push(() => {
    socket.destroy();
    server.closeAllConnections();
    server.close();
  });
  while (responses.length === 0) await sleep(5);
  return { socket, responses, response: responses[0] as ServerResponse };
}

function sinkOn(response: ServerResponse, slowClientMs = SLOW_CLIENT_MS) {
  let stalls = 0;
  const reply = { raw: response, request: {}, getHeaders: () => ({}) } as unknown as FastifyReply;
  const events: DecodedCompletion["events"] = (head, add) =>
    new ChatEventEncoder(head, add, { includeUsage: false, isLegacy: false });
  const abort = () => {
    stalls += 1;
  };
  const { signal } = new AbortController();
  const sink = new EventStreamSink(reply, { events }, { signal, abort, slowClientMs });
  return { sink, stalls: () => stalls };
}

/** Pushes until the client does not keep up. Returns the promise of the last push and the pushed text. */
function fill(sink: EventStreamSink): { drained: Promise<void>; bytes: number } {
  for (let bytes = PIECE[0]?.delta.content.length ?? 0; ; bytes += 16 * 1024) {
    const drained = sink.push(PIECE, false);
    if (drained !== undefined) return { drained, bytes };
  }
}

async function countAll(socket: Socket): Promise<number> {
  let bytes = 0;
  for await (const data of socket) bytes += (data as Buffer).length;
  return bytes;
}

describe("A client that does not read a stream", () => {
  test("A client that does not read is disconnected after the limit, and little is buffered until then.", async () => {
    const { response } = await respond();
    const { sink, stalls } = sinkOn(response);
    sink.open(HEAD);
    let pushed = 0;
    while (stalls() === 0) {
      const { drained, bytes } = fill(sink);
      pushed += bytes;
      expect(response.socket?.writableLength ?? 0).toBeLessThan(256 * 1024);
      await drained;
    }
    expect(stalls()).toBe(1);
    expect(pushed).toBeLessThan(64 * MEBIBYTE);
    expect(response.destroyed).toBe(true);
    expect(sink.push(PIECE, false)).toBeUndefined();
  });

  test("A client that reads again in time receives the rest.", async () => {
    const { socket, response } = await respond();
    const { sink, stalls } = sinkOn(response, 100 * SLOW_CLIENT_MS);
    sink.open(HEAD);
    let drained = fill(sink).drained;
    const stuck = () => Promise.race([drained.then(() => false), sleep(SLOW_CLIENT_MS / 4).then(() => true)]);
    while (!(await stuck())) drained = fill(sink).drained;
    socket.resume();
    await drained;
    expect(stalls()).toBe(0);
  });

  test("A client that disconnects ends the wait.", async () => {
    const { socket, response } = await respond();
    const { sink } = sinkOn(response);
    sink.open(HEAD);
    const { drained } = fill(sink);
    socket.resetAndDestroy();
    await drained;
  });
});

describe("A client that does not read a finished response", () => {
  test("A client that does not read a finished response is disconnected.", async () => {
    const { response } = await respond();
    closeWhenUnread(response, SLOW_CLIENT_MS);
    const closed = new Promise((resolve) => response.once("close", resolve));
    response.end(Buffer.alloc(64 * MEBIBYTE));
    await closed;
    expect(response.writableFinished).toBe(false);
  });

  test("A slow client receives the whole response, however long that takes.", async () => {
    const { socket, response } = await respond();
    closeWhenUnread(response, LONG_MS);
    response.end(Buffer.alloc(32 * MEBIBYTE));
    const beganAtMs = performance.now();
    let bytes = 0;
    socket.on("data", (data: Buffer) => {
      bytes += data.length;
      if (performance.now() - beganAtMs > LONG_MS) return;
      socket.pause();
      setTimeout(() => socket.resume(), 10);
    });
    socket.resume();
    while (bytes < 32 * MEBIBYTE && !socket.destroyed) await sleep(20);
    expect(bytes).toBeGreaterThan(32 * MEBIBYTE);
    expect(performance.now() - beganAtMs).toBeGreaterThan(LONG_MS);
  });

  test("The limit does not apply to the next response of the connection.", async () => {
    const request = "GET / HTTP/1.1\r\nHost: x\r\n\r\n";
    const { socket, responses, response } = await respond(request + request);
    while (responses.length < 2) await sleep(5);
    closeWhenUnread(response, LONG_MS);
    const closed = countAll(socket);
    await new Promise<void>((resolve) => response.end(Buffer.alloc(16 * MEBIBYTE), resolve));
    await sleep(LONG_MS + SLOW_CLIENT_MS);
    responses[1]?.setHeader("connection", "close").end("second");
    expect(await closed).toBeGreaterThan(16 * MEBIBYTE);
    expect(responses[1]?.writableFinished).toBe(true);
  });
});

test.each(["1.0", "1.1"])("Every text arrives unchanged, whatever is written with it: HTTP/%s.", async (version) => {
  const texts = ["plain", "Gr\u00fc\u00dfe", "plain again", "\u4f60\u597d \u{1F642}", "\ud83d", "end"];
  const { socket, response } = await respond(`GET / HTTP/${version}\r\nHost: x\r\nConnection: close\r\n\r\n`);
  const { sink } = sinkOn(response);
  sink.open(HEAD);
  // Some are sent together, some alone.
  for (const [index, content] of texts.entries()) {
    sink.push([{ delta: { content } }], false);
    if (index % 2 === 0) await sleep(5);
  }
  sink.close({
    finishReason: "stop",
    usage: { prompt_tokens: 1, completion_tokens: 1, total_tokens: 2, cost: 0 },
    headers: {},
  });
  const received: Buffer[] = [];
  for await (const data of socket) received.push(data);
  const events = bodyOf(Buffer.concat(received), version)
    .split("\n\n")
    .filter((event) => event.includes('"content":"'));
  const contents = events.map((event) => JSON.parse(event.slice(event.indexOf("{"))).choices[0].delta.content);
  expect(contents).toEqual(texts);
});

/** Returns the body of a response and checks the lengths of its chunks (RFC 9112, section 7.1). */
function bodyOf(answer: Buffer, version: string): string {
  let rest = answer.subarray(answer.indexOf("\r\n\r\n") + 4);
  if (version === "1.0") return rest.toString();
  let body = "";
  for (;;) {
    const start = rest.indexOf("\r\n") + 2;
    const end = start + Number.parseInt(rest.toString("latin1", 0, start), 16);
    expect(rest.toString("latin1", end, end + 2)).toBe("\r\n");
    if (end === start) return body;
    body += rest.toString("utf8", start, end);
    rest = rest.subarray(end + 2);
  }
}

describe("The last content of an answer", () => {
  const usage = { prompt_tokens: 1, completion_tokens: 1, total_tokens: 2, cost: 0 };

  test("The last content is sent with the end of the answer, in one write.", async () => {
    const { socket, response } = await respond();
    const write = vi.spyOn(response, "write");
    // On a busy machine the end may come after the wait.
    vi.useFakeTimers({ toFake: ["setTimeout"] });
    const { sink } = sinkOn(response);
    sink.open(HEAD);
    sink.push([{ delta: { content: "all of it" } }, { finish_reason: "stop" }], true);
    await nextTurn();
    sink.push([{ usage: {} }], true);
    await nextTurn();
    sink.close({ finishReason: "stop", usage, headers: {} });
    let received = "";
    for await (const data of socket.setEncoding("utf8")) {
      received += data;
      if (received.endsWith("0\r\n\r\n")) break;
    }
    expect(received).toContain("all of it");
    expect(received).toContain("data: [DONE]");
    expect(write).not.toHaveBeenCalled();
  });

  test("The content of a choice does not wait after another one has finished.", async () => {
    const { response } = await respond();
    const write = vi.spyOn(response, "write");
    vi.useFakeTimers({ toFake: ["setTimeout"] });
    const { sink } = sinkOn(response);
    const progress = new ChoicesProgress();
    const sent = async (pieces: AnswerPiece[]) => {
      write.mockClear();
      for (const piece of pieces) progress.add(piece);
      sink.push(pieces, progress.hasFinished(1));
      await nextTurn();
      return write.mock.calls.length;
    };
    sink.open(HEAD);
    const both = [0, 1].map((index) => ({ index, delta: { content: "a" } }));
    expect(await sent(both)).toBe(1);
    await sent([{ index: 0, finish_reason: "stop" }]);
    expect(await sent([{ index: 1, delta: { content: "b" } }])).toBe(1);
    expect(await sent([{ index: 1, finish_reason: "stop" }])).toBe(0);
  });

  test("The last content does not wait for an end that comes late.", async () => {
    const { socket, response } = await respond();
    const { sink } = sinkOn(response);
    sink.open(HEAD);
    sink.push([{ delta: { content: "all of it" }, finish_reason: "stop" }], true);
    let received = "";
    for await (const data of socket.setEncoding("utf8")) {
      received += data;
      if (received.includes("all of it")) break;
    }
    expect(received).not.toContain("[DONE]");
  });
});
