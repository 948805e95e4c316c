import { EventEmitter, once } from "node:events";
import { createServer, IncomingMessage, type Server, ServerResponse } from "node:http";
import { type AddressInfo, connect, Socket } from "node:net";
import fc from "fast-check";
import type { FastifyReply } from "fastify";
import { afterEach, describe, expect, test } from "vitest";
import { clientAddressKey, limitConnectionShares, onClosed, ownConnection, streamText } from "./connection.ts";

const SLOW_CLIENT_MS = 100;
const PIECE = "x".repeat(1024 * 1024);

test("The functions of a closed response share one listener, and are called once, in their order.", () => {
  const response = new ServerResponse(new IncomingMessage(new Socket()));
  const calls: string[] = [];
  onClosed(response, () => calls.push("first"));
  onClosed(response, () => calls.push("second"));
  expect(response.listenerCount("close")).toBe(1);
  response.emit("close");
  response.emit("close");
  expect(calls).toEqual(["first", "second"]);
});

test("A function is called at once if the client has disconnected before.", async () => {
  const server = createServer();
  await once(server.listen(0, "127.0.0.1"), "listening");
  const client = connect((server.address() as AddressInfo).port, "127.0.0.1");
  client.write("GET / HTTP/1.1\r\nHost: x\r\n\r\n");
  const [, response] = (await once(server, "request")) as [IncomingMessage, ServerResponse];
  client.destroy();
  await once(response, "close");
  let calls = 0;
  onClosed(response, () => {
    calls += 1;
  });
  expect(calls).toBe(1);
  expect(response.listenerCount("close")).toBe(0);
  server.close();
});

describe("streamText", () => {
  let server: Server;
  let client: Socket;
  afterEach(() => {
    client.destroy();
    server.close();
  });

  /** Returns the response to a client that does not read. */
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

  test("A long pause between two pieces does not disconnect the client.", async () => {
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

  test("A text without pieces is an empty response.", async () => {
    const response = await respond();
    let received = "";
    client.on("data", (data) => (received += data)).resume();
    await streamText(replyOf(response), {}, (async function* () {})());
    await once(client, "end");
    expect(received).toMatch(/^HTTP\/1.1 200 OK\r\n/);
  });
});

describe("limitConnectionShares", () => {
  /** Accepts connections in one turn of the event loop. */
  function accept(count: number, connectionsMax: number): Socket[] {
    const server = new EventEmitter();
    limitConnectionShares(server as Server, connectionsMax);
    const sockets = Array.from({ length: count }, () => new Socket());
    for (const socket of sockets) server.emit("connection", socket);
    return sockets;
  }
  const isRefused = (socket: Socket, owner: string) => {
    try {
      ownConnection(socket, owner);
      return false;
    } catch (error) {
      expect(error).toMatchObject({ code: "rate_limit_exceeded", headers: { connection: "close" } });
      return true;
    }
  };

  test("Connections above the limit that send nothing are closed, the oldest first.", () => {
    const sockets = accept(5, 16);
    expect(sockets.map(({ destroyed }) => destroyed)).toEqual([true, true, true, false, false]);
  });

  test("An organization uses three quarters of the connections at most, and others use the rest.", () => {
    const sockets = accept(16, 16);
    expect(sockets.slice(0, 12).some((socket) => isRefused(socket, "org_1"))).toBe(false);
    expect(isRefused(sockets[12] as Socket, "org_1")).toBe(true);
    expect(sockets.slice(12).some((socket) => isRefused(socket, "org_2"))).toBe(false);
  });

  test("A connection counts for the organization of its newest request, until it is closed.", async () => {
    const [first, second, third] = accept(3, 2) as [Socket, Socket, Socket];
    for (const socket of [first, second]) expect(isRefused(socket, "org_1")).toBe(false);
    expect(isRefused(third, "org_1")).toBe(true);
    expect(isRefused(first, "org_2")).toBe(true);
    second.destroy();
    await once(second, "close");
    for (const owner of ["org_2", "org_2", "org_1"]) expect(isRefused(first, owner)).toBe(false);
    expect(isRefused(third, "org_1")).toBe(false);
  });
});

describe("clientAddressKey", () => {
  test.each([
    ["192.0.2.1", "192.0.2.1"],
    ["192.0.2.1:443", "192.0.2.1"],
    ["::ffff:192.0.2.1", "192.0.2.1"],
    ["::FFFF:c000:201", "192.0.2.1"],
    ["0:0:0:0:0:ffff:192.0.2.1", "192.0.2.1"],
    ["[::ffff:192.0.2.1]:443", "192.0.2.1"],
    ["2001:db8:1:2::1", "2001:db8:1:2::/64"],
    ["2001:0DB8:0001:0002:ffff:ffff:ffff:ffff", "2001:db8:1:2::/64"],
    ["[2001:db8:1:2::9]:8080", "2001:db8:1:2::/64"],
    ["2001:db8::1", "2001:db8:0:0::/64"],
    ["::1", "0:0:0:0::/64"],
    ["fe80::1%eth0", "fe80:0:0:0::/64"],
    ["unknown", "unknown"],
    ["", ""],
  ])("The key of %s is %s.", (address, key) => {
    expect(clientAddressKey(address)).toBe(key);
  });

  test("Two IPv6 addresses have the same key exactly when their first 64 bits are equal.", () => {
    const group = fc.integer({ min: 0, max: 0xffff }).map((value) => value.toString(16));
    const half = fc.array(group, { minLength: 4, maxLength: 4 });
    fc.assert(
      fc.property(half, half, half, (network, one, other) => {
        const key = clientAddressKey([...network, ...one].join(":"));
        // ::ffff:0:0/96 is IPv4.
        fc.pre(key.includes(":"));
        expect(clientAddressKey([...network, ...other].join(":"))).toBe(key);
        const isSame = network.join(":") === other.join(":");
        expect(clientAddressKey([...other, ...one].join(":")) === key).toBe(isSame);
      }),
    );
  });

  test("The key of text that is not an address is short.", () => {
    expect(clientAddressKey("x".repeat(10_000))).toHaveLength(64);
  });
});
