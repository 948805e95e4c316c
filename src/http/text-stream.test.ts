import { once } from "node:events";
import { createServer, type Server, type ServerResponse } from "node:http";
import { type AddressInfo, connect, type Socket } from "node:net";
import type { FastifyReply } from "fastify";
import { afterEach, expect, test } from "vitest";
import { streamText } from "./text-stream.ts";

const SLOW_CLIENT_MS = 100;
const PIECE = "x".repeat(1024 * 1024);

let server: Server;
let client: Socket;
afterEach(() => {
  client.destroy();
  server.close();
});

/** A response to a client that reads nothing yet. */
async function respond(): Promise<ServerResponse> {
  server = createServer();
  await once(server.listen(0, "127.0.0.1"), "listening");
  client = connect((server.address() as AddressInfo).port, "127.0.0.1").pause();
  client.on("error", () => {});
  const requested = once(server, "request");
  client.write("GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
  const [, response] = await requested;
  return response as ServerResponse;
}

function replyOf(raw: ServerResponse): FastifyReply {
  const reply = { raw, statusCode: 200, request: { method: "GET" }, getHeaders: () => ({}) };
  return reply as unknown as FastifyReply;
}

async function* endless(): AsyncGenerator<string> {
  for (;;) yield PIECE;
}

test("A client that reads nothing of a text is disconnected.", async () => {
  const response = await respond();
  await streamText(replyOf(response), {}, endless(), SLOW_CLIENT_MS);
  expect([response.req.socket.destroyed, response.writableFinished]).toEqual([true, false]);
});

test("A pause between two pieces, however long, disconnects nobody.", async () => {
  const response = await respond();
  async function* slow(): AsyncGenerator<string> {
    yield "first,";
    await new Promise((resolve) => setTimeout(resolve, 3 * SLOW_CLIENT_MS));
    yield "";
    yield "last";
  }
  let received = "";
  client.on("data", (data) => (received += data)).resume();
  await streamText(replyOf(response), { "x-kind": "text" }, slow(), SLOW_CLIENT_MS);
  await once(client, "end");
  expect(received).toContain("x-kind: text");
  expect(received).toMatch(/first,\r\n4\r\nlast\r\n0\r\n\r\n$/);
});

test("A text without pieces is an empty answer.", async () => {
  const response = await respond();
  let received = "";
  client.on("data", (data) => (received += data)).resume();
  await streamText(replyOf(response), {}, (async function* () {})());
  await once(client, "end");
  expect(received).toMatch(/^HTTP\/1.1 200 OK\r\n/);
});
