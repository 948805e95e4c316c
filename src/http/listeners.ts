import cluster from "node:cluster";
import { lookup } from "node:dns/promises";
import { once } from "node:events";
import type { Server as HttpServer } from "node:http";
import { type AddressInfo, type ListenOptions, Server as NetServer } from "node:net";

/**
 * Sockets of each address. An overloaded process asks the system ten to twenty times a second for what is ready, and each
 * time accepts one connection of each socket. With 32 sockets, connections still waited for more than ten seconds at three
 * times the peak; with 128, so many were accepted at once that `/healthz` took seconds.
 */
const SOCKETS_PER_ADDRESS = 64;

/**
 * New connections that the system keeps for the only socket of an address until the process accepts them; Linux allows
 * 4,096 by default (net.core.somaxconn). Node's own 511 are too few for a burst: the system then drops the last packet of a
 * handshake, the client takes the connection for open, and waits for minutes.
 */
const BACKLOG_CONNECTIONS = 4_096;
/** The same for each of several sockets. Together they keep 32,768, twice the default limit of open connections. */
const SHARED_BACKLOG_CONNECTIONS = 512;

export interface ListenersOptions {
  /** The HTTP server, which listens on the first socket and serves the connections of all sockets. */
  server: HttpServer;
  /** Lets the HTTP server listen. */
  listen(options: ListenOptions): Promise<unknown>;
  /** Applies the limit of connections to a further socket. */
  limit(listener: NetServer): void;
  /** True where a supervisor accepts the connections. */
  isWorker?: boolean;
  /** Returns the addresses of `localhost`. */
  localAddresses?: () => Promise<string[]>;
}

/**
 * Listens on several sockets per address. Node accepts one new connection per socket in a turn of the event loop, so with
 * one socket an overloaded process accepts few connections, and all others wait in the system, where nothing refuses them.
 * The sockets share the port through SO_REUSEPORT; the system spreads new connections over them.
 */
export class Listeners {
  readonly #options: ListenersOptions;
  readonly #isWorker: boolean;
  readonly #further: NetServer[] = [];
  #furtherClosed: Promise<unknown> = Promise.resolve();

  constructor(options: ListenersOptions) {
    this.#options = options;
    this.#isWorker = options.isWorker ?? cluster.isWorker;
  }

  /** Resolves with the address of the first socket. Rejects with the errors of node:net, such as EADDRINUSE. */
  async listen({ host, port }: { host: string; port: number }): Promise<AddressInfo> {
    const { server, localAddresses = addressesOfLocalhost } = this.#options;
    // Fastify would listen on the other addresses of `localhost` by servers that have no limits and no handlers of ours.
    const [first = host, ...others] = host === "localhost" ? await localAddresses() : [host];
    const isShared = await this.#listenFirst(first, port);
    const bound = server.address() as AddressInfo;
    const count = isShared ? SOCKETS_PER_ADDRESS : 1;
    await this.#listenFurther(bound, count - 1, isShared);
    for (const other of others) await this.#listenOther({ address: other, port: bound.port }, count, isShared);
    return bound;
  }

  /** Closes the sockets, but no connection. */
  close(): void {
    // http.Server.close would also close idle connections, which health checks still use.
    NetServer.prototype.close.call(this.#options.server);
    const closing = this.#further.map((listener) => new Promise((resolve) => listener.close(resolve)));
    this.#furtherClosed = Promise.all(closing);
  }

  /** Resolves after `close`, when the connections of all further sockets are closed. The HTTP server knows only its own. */
  async furtherClosed(): Promise<void> {
    await this.#furtherClosed;
  }

  /** Listens with the HTTP server. Returns false if its socket cannot share the port. */
  async #listenFirst(host: string, port: number): Promise<boolean> {
    const plain = { host, port, backlog: BACKLOG_CONNECTIONS };
    if (this.#isWorker) {
      await this.#options.listen(plain);
      return false;
    }
    const free = { ...plain, ...(await findFree(host, port)) };
    try {
      await this.#options.listen({ ...free, backlog: SHARED_BACKLOG_CONNECTIONS, reusePort: true });
      return true;
    } catch {
      // The platform or the container does not support it. Other errors occur again.
      await this.#options.listen(free);
      return false;
    }
  }

  async #listenFurther({ address, port }: Bound, count: number, reusePort: boolean): Promise<void> {
    const { server, limit } = this.#options;
    const backlog = reusePort ? SHARED_BACKLOG_CONNECTIONS : BACKLOG_CONNECTIONS;
    for (let index = 0; index < count; index += 1) {
      // The options of http.Server.
      const listener = new NetServer({ allowHalfOpen: true, noDelay: true });
      limit(listener);
      listener.on("connection", (socket) => server.emit("connection", socket));
      await once(listener.listen({ host: address, port, backlog, reusePort }), "listening");
      listener.on("error", (error) => server.emit("error", error));
      this.#further.push(listener);
    }
  }

  /** Listens on another address of `localhost`, unless the machine has no such address. */
  async #listenOther({ address, port }: Bound, count: number, isShared: boolean): Promise<void> {
    try {
      if (isShared) await findFree(address, port);
      await this.#listenFurther({ address, port }, count, isShared);
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code === "EADDRINUSE") throw error;
    }
  }
}

type Bound = Pick<AddressInfo, "address" | "port">;

/**
 * Rejects if another program listens on the port. A socket with SO_REUSEPORT would share the port with another one of the
 * same user that has it too, so a plain socket listens first. Two services that start within the same few milliseconds can
 * still share a port. Returns the address, and a free port for port 0.
 */
async function findFree(host: string, port: number): Promise<{ host: string; port: number }> {
  const probe = new NetServer();
  await once(probe.listen({ host, port }), "listening");
  const bound = probe.address() as AddressInfo;
  probe.close();
  return { host: bound.address, port: bound.port };
}

/** Returns the addresses of `localhost` in the order of the system. */
async function addressesOfLocalhost(): Promise<string[]> {
  const found = await lookup("localhost", { all: true });
  return [...new Set(found.map(({ address }) => address))];
}
