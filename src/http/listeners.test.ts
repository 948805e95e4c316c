import { lookup } from "node:dns/promises";
import { once } from "node:events";
import { readFileSync } from "node:fs";
import { createServer, type Server } from "node:http";
import { connect, type ListenOptions, Server as NetServer, type Socket } from "node:net";
import { networkInterfaces } from "node:os";
import { afterEach, describe, expect, test } from "vitest";
import { keepLog } from "../../test/support/log.ts";
import { limitConnections } from "./connection.ts";
import { Listeners, type ListenersOptions } from "./listeners.ts";

const CLIENTS = 40;
/** Other systems may have no SO_REUSEPORT that spreads connections, and only one address of 127.0.0.0/8. */
const isLinux = process.platform === "linux";
const [linkLocal] = Object.entries(networkInterfaces()).flatMap(([name, addresses = []]) =>
  addresses.filter(({ address }) => address.startsWith("fe80:")).map(({ address }) => `${address}%${name}`),
);

const closing: (() => void)[] = [];
afterEach(() => {
  for (const close of closing.splice(0).reverse()) close();
});

interface Opened {
  listeners: Listeners;
  server: Server;
  /** The further sockets. */
  further: NetServer[];
  port: number;
  /** The options with which the HTTP server was asked to listen. */
  asked: ListenOptions[];
}

/** Listens at `host`. Each request is answered with the local address of its connection. */
async function open(options: Partial<ListenersOptions> = {}, host = "127.0.0.1", port = 0): Promise<Opened> {
  const server = createServer((request, response) => response.end(request.socket.localAddress));
  const further: NetServer[] = [];
  const asked: ListenOptions[] = [];
  const listeners = new Listeners({
    server,
    listen: (address) => {
      asked.push(address);
      return listenWith(server, address);
    },
    limit: (listener) => further.push(listener),
    ...options,
  });
  closing.push(() => {
    listeners.close();
    server.closeAllConnections();
  });
  const bound = await listeners.listen({ host, port });
  return { listeners, server, further, port: bound.port, asked };
}

function listenWith(server: NetServer, address: ListenOptions): Promise<unknown> {
  return once(server.listen(address), "listening");
}

/** Sends a request on a new connection, and resolves with the response. */
function ask(port: number, host = "127.0.0.1"): Promise<{ socket: Socket; text: string }> {
  return new Promise((resolve, reject) => {
    const socket = connect(port, host);
    closing.push(() => socket.destroy());
    socket.on("error", reject).on("close", () => reject(new Error("The connection was closed.")));
    socket.once("data", (data) => resolve({ socket, text: data.toString() }));
    socket.write("GET / HTTP/1.1\r\nHost: x\r\n\r\n");
  });
}

function connectionsOf(server: NetServer): Promise<number> {
  return new Promise((resolve) => server.getConnections((_error, count) => resolve(count)));
}

async function totalOf(servers: NetServer[]): Promise<number> {
  const counts = await Promise.all(servers.map(connectionsOf));
  return counts.reduce((sum, count) => sum + count, 0);
}

test.skipIf(!isLinux)("Several sockets accept connections, and the HTTP server answers all of them.", async () => {
  const { further, server, port } = await open();
  const answers = await Promise.all(Array.from({ length: CLIENTS }, () => ask(port)));
  expect(answers.every(({ text }) => text.startsWith("HTTP/1.1 200 OK"))).toBe(true);
  const counts = await Promise.all([server, ...further].map(connectionsOf));
  expect(counts.reduce((sum, count) => sum + count, 0)).toBe(CLIENTS);
  expect(counts.filter((count) => count > 0).length).toBeGreaterThan(1);
});

test.skipIf(!isLinux)("The guide states the number of sockets.", async () => {
  const { further } = await open();
  const guide = readFileSync(new URL("../../docs/guide.md", import.meta.url), "utf8");
  expect(guide).toContain(`A process listens with ${further.length + 1} sockets on its port`);
});

test.skipIf(!isLinux)("A further socket has the options of the HTTP server.", async () => {
  const { further, server } = await open();
  const options = ["allowHalfOpen", "pauseOnConnect", "noDelay", "keepAlive", "keepAliveInitialDelay", "highWaterMark"];
  const optionsOf = (one: object) => options.map((name) => Reflect.get(one, name));
  expect(optionsOf(further[0] ?? {})).toEqual(optionsOf(server));
  expect(optionsOf(server)).not.toContain(undefined);
});

test.skipIf(!isLinux)(
  "After close no socket listens, open connections are served, and idle ones are closed.",
  async () => {
    const { listeners, server, further, port } = await open();
    const clients = await Promise.all(Array.from({ length: CLIENTS }, () => ask(port)));
    listeners.close();
    await expect(ask(port)).rejects.toThrow("ECONNREFUSED");
    let areClosed = false;
    const closed = listeners.furtherClosed().then(() => {
      areClosed = true;
    });
    for (const { socket } of clients) {
      socket.write("GET / HTTP/1.1\r\nHost: x\r\n\r\n");
      const [answer] = await once(socket, "data");
      expect(answer.toString()).toMatch(/^HTTP\/1.1 200 OK/);
    }
    expect(await totalOf(further)).toBeGreaterThan(0);
    expect(areClosed).toBe(false);
    const ended = Promise.all(clients.map(({ socket }) => once(socket, "close")));
    server.closeIdleConnections();
    await closed;
    await ended;
    expect(await totalOf([server, ...further])).toBe(0);
  },
);

describe("A port that is taken is reported", () => {
  test.each([false, isLinux])("when the other socket has SO_REUSEPORT: %s", async (reusePort) => {
    const other = new NetServer();
    closing.push(() => other.close());
    await listenWith(other, { host: "127.0.0.1", port: 0, reusePort });
    const address = other.address();
    const port = typeof address === "object" ? (address?.port ?? 0) : 0;
    await expect(open({}, "127.0.0.1", port)).rejects.toMatchObject({ code: "EADDRINUSE", port });
  });

  test("when another service listens on it", async () => {
    const { port } = await open();
    await expect(open({}, "127.0.0.1", port)).rejects.toMatchObject({ code: "EADDRINUSE", port });
  });

  test.skipIf(!isLinux)("when it is taken on another address of localhost", async () => {
    const { port } = await open({}, "127.0.0.2");
    const localAddresses = async () => ["127.0.0.1", "127.0.0.2"];
    await expect(open({ localAddresses }, "localhost", port)).rejects.toMatchObject({ code: "EADDRINUSE", port });
  });
});

test("An address that the machine does not have and a host that does not exist are reported.", async () => {
  await expect(open({}, "192.0.2.1")).rejects.toMatchObject({ code: "EADDRNOTAVAIL" });
  await expect(open({}, "host.invalid")).rejects.toMatchObject({ syscall: "getaddrinfo" });
});

test.skipIf(linkLocal === undefined)("A link-local address is served with its zone.", async () => {
  const { port } = await open({}, linkLocal);
  const answers = await Promise.all(Array.from({ length: CLIENTS }, () => ask(port, linkLocal)));
  expect(answers.every(({ text }) => text.startsWith("HTTP/1.1 200 OK"))).toBe(true);
});

test("Where sockets cannot share a port, one socket listens.", async () => {
  const server = createServer((_request, response) => response.end("served"));
  closing.push(() => server.closeAllConnections());
  const listen = (address: ListenOptions) => {
    if (address.reusePort === true) return Promise.reject(Object.assign(new Error("listen"), { code: "ENOTSUP" }));
    return listenWith(server, address);
  };
  const { further, port } = await open({ server, listen });
  expect(further).toEqual([]);
  const { text } = await ask(port);
  expect(text).toContain("served");
});

test("A worker of a cluster listens on one socket, which it does not bind itself.", async () => {
  const { further, asked } = await open({ isWorker: true });
  expect(further).toEqual([]);
  expect(asked).toMatchObject([{ host: "127.0.0.1", port: 0 }]);
  expect(asked[0]).not.toHaveProperty("reusePort");
});

describe.skipIf(!isLinux)("localhost", () => {
  test.each([
    ["several sockets for each address", false],
    ["one socket for each address in a worker", true],
  ])("has %s.", async (_title, isWorker) => {
    const localAddresses = async () => ["127.0.0.1", "127.0.0.2"];
    const { further, port } = await open({ localAddresses, isWorker }, "localhost");
    expect((await ask(port, "127.0.0.1")).text).toMatch(/\r\n\r\n127\.0\.0\.1$/);
    expect((await ask(port, "127.0.0.2")).text).toMatch(/\r\n\r\n127\.0\.0\.2$/);
    expect(further.length > 1).toBe(!isWorker);
  });

  test("has one limit of connections for all its addresses.", async () => {
    const server = createServer((_request, response) => response.end());
    const limit = limitConnections(server, 2, keepLog());
    const localAddresses = async () => ["127.0.0.1", "127.0.0.2"];
    const { port } = await open(
      { server, listen: (address) => listenWith(server, address), limit, localAddresses },
      "localhost",
    );
    await ask(port, "127.0.0.1");
    const { socket } = await ask(port, "127.0.0.2");
    for (const host of ["127.0.0.1", "127.0.0.2"])
      await once(
        connect(port, host).on("error", () => undefined),
        "close",
      );
    socket.destroy();
    await expect
      .poll(() =>
        ask(port, "127.0.0.2").then(
          ({ text }) => text,
          () => "",
        ),
      )
      .toContain("200 OK");
  });

  test("is served where the machine lacks one of its addresses.", async () => {
    const { port } = await open({ localAddresses: async () => ["127.0.0.1", "192.0.2.1"] }, "localhost");
    expect((await ask(port)).text).toMatch(/\r\n\r\n127\.0\.0\.1$/);
  });
});

test("localhost is served on each of its addresses.", async () => {
  const { port, server } = await open({}, "localhost");
  const addresses = await lookup("localhost", { all: true });
  expect(server.address()).toMatchObject({ address: addresses[0]?.address });
  for (const { address } of addresses) expect((await ask(port, address)).text).toContain(address);
});
