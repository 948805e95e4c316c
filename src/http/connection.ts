import type { IncomingMessage, OutgoingHttpHeaders, Server, ServerResponse } from "node:http";
import { isIP, type Socket } from "node:net";
import type { Duplex } from "node:stream";
import type { FastifyReply } from "fastify";
import ipaddr from "ipaddr.js";
import { LRUCache } from "lru-cache";
import { toErrorEnvelope } from "../api/chat/encode.ts";
import { ApiError } from "../errors.ts";
import { fullError } from "../gateway/limits.ts";
import { dropSentHeader, isBeingAnswered } from "../internals/response.ts";
import { FairBudget } from "../ledger/fair-budget.ts";
import type { Log } from "../telemetry/logger.ts";

/** Time limit for the headers of a request; Node checks it four times in this period. */
export const HEADERS_TIMEOUT_MS = 10_000;
export const REQUEST_TIMEOUT_MS = 120_000;
/** A client that reads nothing for this time is disconnected. */
export const SLOW_CLIENT_MS = 60_000;
/** Time for a client to read an error response and to close the connection. */
const LINGER_MS = 5_000;

/** Returns the handler for invalid HTTP: it responds with an error envelope and closes the connection. */
export function parseErrorHandler(newRequestId: () => string) {
  return (error: Error & { code?: string }, socket: Socket) => {
    if (error.code === "ECONNRESET" || !socket.writable || isBeingAnswered(socket)) socket.destroy();
    else respondAndClose(socket, PARSE_ERRORS[error.code ?? ""] ?? OTHER_ERROR, newRequestId());
  };
}

/**
 * Handles unknown expectations, CONNECT and socket errors, and limits the connections. Every socket gets an error handler:
 * Node removes its own from that of a CONNECT request, and an `error` event without a handler ends the process.
 */
export function handleConnections(
  server: Server,
  { newRequestId, maxConnections, log }: { newRequestId: () => string; maxConnections: number; log: Log },
): void {
  // In a cluster, a full worker would otherwise pass the connection on, and full ones would pass it around.
  Object.assign(server, { maxConnections, dropMaxConnection: true });
  server.on("drop", () =>
    log.warn({ connectionsMax: maxConnections }, "a new connection was closed: too many are open"),
  );
  limitConnectionShares(server, maxConnections);
  server.on("connection", (socket: Socket) => socket.on("error", () => socket.destroy()));
  // An expectation other than 100-continue may be ignored (RFC 9110, section 10.1.1).
  server.on("checkExpectation", (request: IncomingMessage, response: ServerResponse) => {
    server.emit("request", request, response);
  });
  server.on("connect", (_request: IncomingMessage, stream: Duplex) => {
    const socket = stream as Socket;
    if (!socket.writable || isBeingAnswered(socket)) socket.destroy();
    else respondAndClose(socket, CONNECT_ERROR, newRequestId());
  });
}

/** A status with its phrase, and a message. A value of node:http would load Node's own client, of 12 MiB. */
type RawError = readonly [status: string, message: string];

const CONNECT_ERROR: RawError = [
  "400 Bad Request",
  "The method CONNECT is not supported: this service is not a proxy.",
];
const OTHER_ERROR: RawError = ["400 Bad Request", "The request is not valid HTTP."];
const PARSE_ERRORS: Record<string, RawError> = {
  HPE_HEADER_OVERFLOW: ["431 Request Header Fields Too Large", "The request's headers are too large."],
  ERR_HTTP_REQUEST_TIMEOUT: ["408 Request Timeout", "The request did not arrive in time."],
};

function respondAndClose(socket: Socket, [status, message]: RawError, requestId: string): void {
  const body = JSON.stringify(toErrorEnvelope(new ApiError("invalid_value", message)));
  const lines = [
    `HTTP/1.1 ${status}`,
    `x-request-id: ${requestId}`,
    "content-type: application/json; charset=utf-8",
    `content-length: ${Buffer.byteLength(body)}`,
    "connection: close",
  ];
  socket.end(`${lines.join("\r\n")}\r\n\r\n${body}`);
  // Closing with unread bytes in the receive buffer resets the connection, and the client loses the response.
  socket.resume();
  // The server's time limits and its close do not apply to the socket of a CONNECT request.
  const timer = setTimeout(() => socket.destroy(), LINGER_MS);
  socket.once("close", () => clearTimeout(timer));
  socket.once("end", () => socket.destroySoon());
}

const CLOSED = Symbol("listeners of a closed response");
type TrackedResponse = ServerResponse & { [CLOSED]?: (() => void) | undefined };

/**
 * Calls a function when a response is closed, at once if it is already, and lets go of it then: V8 keeps tables of listeners of
 * long-lived sockets until its next full collection, and with them whole requests.
 */
export function onClosed(response: TrackedResponse, listener: () => void): void {
  if (response.closed) {
    listener();
    return;
  }
  const earlier = response[CLOSED];
  if (earlier === undefined) response.on("close", callListeners);
  response[CLOSED] =
    earlier === undefined
      ? listener
      : () => {
          earlier();
          listener();
        };
}

function callListeners(this: TrackedResponse): void {
  const listener = this[CLOSED];
  this[CLOSED] = undefined;
  dropSentHeader(this);
  listener?.();
}

/** Closes the connection if the client reads nothing of a finished response for `afterMs`. */
export function closeWhenUnread(response: ServerResponse, afterMs: number = SLOW_CLIENT_MS): void {
  response.on("prefinish", () => {
    const { socket } = response;
    if (socket === null || socket.writableLength === 0) return;
    socket.setTimeout(afterMs);
    response.once("finish", () => {
      // Keeps a limit that Node has set for idle connections since.
      if (socket.timeout === afterMs) socket.setTimeout(0);
    });
  });
}

/**
 * Streams a text, one piece in memory at a time. Resolves when everything is sent or the client has disconnected, also because
 * it read nothing for `slowClientMs`. Rejects when a piece cannot be read.
 */
export async function streamText(
  reply: FastifyReply,
  headers: OutgoingHttpHeaders,
  pieces: Iterable<string> | AsyncIterable<string>,
  slowClientMs: number = SLOW_CLIENT_MS,
): Promise<void> {
  const { request, raw: response, statusCode } = reply;
  const begin = () => response.writeHead(statusCode, { ...(reply.getHeaders() as OutgoingHttpHeaders), ...headers });
  if (request.method === "HEAD") {
    begin().end();
    return;
  }
  for await (const piece of pieces) {
    if (isClosed(response)) return;
    if (piece === "") continue;
    if (!response.headersSent) begin();
    await writeWhole(response, piece, slowClientMs);
    if (isClosed(response)) return;
  }
  if (!response.headersSent) begin();
  response.end();
}

function isClosed({ destroyed, req }: ServerResponse): boolean {
  return destroyed || req.socket.destroyed;
}

function writeWhole(response: ServerResponse, text: string, slowClientMs: number): Promise<void> {
  // A pipelined response has no socket until the previous response has ended, and emits no event when it is closed.
  const { socket } = response.req;
  const limit = () => socket.setTimeout(slowClientMs);
  if (response.socket === null) response.once("socket", limit);
  else limit();
  return new Promise((resolve) => {
    const settle = () => {
      socket.off("close", settle);
      response.off("socket", limit);
      socket.setTimeout(0);
      resolve();
    };
    socket.once("close", settle);
    response.write(text, settle);
  });
}

/** Slowly arriving headers take up to 17 KiB per connection (measured), so less than 40 MiB once they count. */
const ANONYMOUS_CONNECTIONS_MAX = 2_048;
const ANONYMOUS_SHARE_MAX = 1 / 8;
/** Largest part of the connections that one organization may use. */
const OWNER_SHARE_MAX = 3 / 4;

const ENTRY = Symbol("entry of a connection");
type TrackedSocket = Socket & { [ENTRY]?: { touch(): void; own(owner: string): void } };

/**
 * Divides the connections: an organization may use three quarters of them. Of those without an authenticated request, the one
 * with the oldest last request is closed above a limit, because callers authenticate with their first request.
 */
export function limitConnectionShares(server: Server, connectionsMax: number): void {
  const ownedMax = Math.ceil(connectionsMax * OWNER_SHARE_MAX);
  const owned = new FairBudget(connectionsMax);
  const anonymous = new LRUCache<Socket, true>({
    max: Math.min(ANONYMOUS_CONNECTIONS_MAX, Math.ceil(connectionsMax * ANONYMOUS_SHARE_MAX)),
    dispose: (_value, socket, reason) => {
      if (reason === "evict") socket.destroy();
    },
  });
  server.on("connection", (socket: TrackedSocket) => {
    let owner: string | undefined;
    const leave = () => {
      anonymous.delete(socket);
      if (owner !== undefined) owned.putBack(owner, 1);
    };
    const own = (next: string) => {
      if (next === owner) return;
      if (!owned.take(next, 1, ownedMax / connectionsMax)) throw tooManyConnections(ownedMax);
      leave();
      owner = next;
    };
    socket[ENTRY] = { touch: () => anonymous.get(socket), own };
    anonymous.set(socket, true);
    socket.on("close", leave);
  });
}

function tooManyConnections(limit: number): ApiError {
  const { code, message, headers } = fullError("connections of this organization", { limit });
  return new ApiError(code, message, { headers: { ...headers, connection: "close" } });
}

/** Records that a request has begun on a connection. */
export function touchConnection(socket: TrackedSocket): void {
  socket[ENTRY]?.touch();
}

/** Counts a connection for the owner of its newest request: an organization or an operator. Throws rate_limit_exceeded. */
export function ownConnection(socket: TrackedSocket, owner: string): void {
  socket[ENTRY]?.own(owner);
}

const IPV4_WITH_PORT = /^(\d+\.\d+\.\d+\.\d+)(?::\d+)?$/;
const IPV6_WITH_PORT = /^\[([^\]]+)\](?::\d+)?$/;
const OTHER_TEXT_LENGTH_MAX = 64;

/**
 * Returns the key under which requests of a client address are counted: of IPv6 the /64 that a subscriber has at least (RFC
 * 6177). An IPv4-mapped address is its IPv4 address, a port is ignored, and other text is its own key.
 */
export function clientAddressKey(address: string): string {
  const text = IPV4_WITH_PORT.exec(address)?.[1] ?? IPV6_WITH_PORT.exec(address)?.[1] ?? address;
  const [withoutZone = ""] = text.split("%");
  if (isIP(withoutZone) !== 6) return text.slice(0, OTHER_TEXT_LENGTH_MAX);
  const parsed = ipaddr.process(withoutZone);
  if (!("parts" in parsed)) return parsed.toString();
  const network = parsed.parts.slice(0, 4).map((part) => part.toString(16));
  return `${network.join(":")}::/64`;
}
