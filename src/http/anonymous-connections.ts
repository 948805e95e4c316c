import type { Server } from "node:http";
import type { Socket } from "node:net";
import { LRUCache } from "lru-cache";

/** Headers that arrive slowly take up to 17 KiB on each connection (measured): all of these together less than 40 MiB. */
const ANONYMOUS_CONNECTIONS_MAX = 2_048;

const ENTRY = Symbol("entry of an anonymous connection");
interface Entry {
  touch(): void;
  forget(): void;
}
type TrackedSocket = Socket & { [ENTRY]?: Entry | undefined };

/**
 * Bounds the connections on which no request has been authenticated yet. Above the bound the one whose last request began
 * longest ago is closed: a caller authenticates with the first request, so it is the least likely to be one.
 */
export function boundAnonymousConnections(server: Server, connectionsMax: number = ANONYMOUS_CONNECTIONS_MAX): void {
  // Keyed by numbers: a map of sockets would keep closed ones alive until the next major collection.
  const anonymous = new LRUCache<number, Socket>({
    max: connectionsMax,
    dispose: (socket, _id, reason) => {
      if (reason === "evict") socket.destroy();
    },
  });
  let lastId = 0;
  server.on("connection", (socket: TrackedSocket) => {
    lastId += 1;
    const id = lastId;
    const forget = () => {
      anonymous.delete(id);
      socket[ENTRY] = undefined;
    };
    socket[ENTRY] = { touch: () => anonymous.get(id), forget };
    socket.once("close", forget);
    anonymous.set(id, socket);
  });
}

/** Notes that a request has begun on a connection. */
export function touchAnonymous(socket: TrackedSocket): void {
  socket[ENTRY]?.touch();
}

/** Takes a connection out of the bound, because a request on it was authenticated. */
export function markAuthenticated(socket: TrackedSocket): void {
  socket[ENTRY]?.forget();
}
