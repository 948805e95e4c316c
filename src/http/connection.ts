import type { IncomingMessage, Server, ServerResponse } from "node:http";
import type { Socket } from "node:net";
import type { Duplex } from "node:stream";
import { ApiError } from "../errors.ts";

/** Headers must arrive within this time; Node checks it every quarter of it. */
export const HEADERS_TIMEOUT_MS = 10_000;
/** A whole request, with its body, must arrive within this time. */
export const REQUEST_TIMEOUT_MS = 120_000;
/** A client that reads nothing for this long counts as disconnected. */
export const SLOW_CLIENT_MS = 60_000;
/** After an error answer the client has this long to read it and to close; then the connection is destroyed. */
const LINGER_MS = 5_000;

type ParseErrorHandler = (error: Error & { code?: string }, socket: Socket) => void;

/** Returns the handler for bytes that Node cannot parse as HTTP: it answers with the error envelope and closes. */
export function parseErrorHandler(newRequestId: () => string): ParseErrorHandler {
  return (error, socket) => {
    if (error.code === "ECONNRESET" || !socket.writable || isBeingAnswered(socket)) socket.destroy();
    else answerAndClose(socket, refusalFor(error.code), newRequestId());
  };
}

/**
 * Handles what Node would leave to a default: expectations that it does not know, CONNECT, and the errors of sockets.
 * Node removes its own error handler from a socket that it hands over, and an `error` event without a handler ends the
 * process; so every socket gets a handler of its own, for its whole life.
 */
export function handleConnections(server: Server, newRequestId: () => string): void {
  server.on("connection", (socket: Socket) => socket.on("error", () => socket.destroy()));
  // An expectation other than 100-continue may be ignored (RFC 9110, section 10.1.1).
  server.on("checkExpectation", (request: IncomingMessage, response: ServerResponse) => {
    server.emit("request", request, response);
  });
  server.on("connect", (_request: IncomingMessage, stream: Duplex) => {
    const socket = stream as Socket;
    if (!socket.writable || isBeingAnswered(socket)) socket.destroy();
    else answerAndClose(socket, CONNECT_REFUSAL, newRequestId());
  });
}

/** Whether an earlier request of the connection is still being answered: a client would take this answer for that one. */
function isBeingAnswered(socket: Socket & { _httpMessage?: ServerResponse | null }): boolean {
  const response = socket._httpMessage ?? undefined;
  return response !== undefined && (response.headersSent || response.req.complete);
}

interface Refusal {
  status: number;
  phrase: string;
  message: string;
}

const CONNECT_REFUSAL = {
  status: 400,
  phrase: "Bad Request",
  message: "The method CONNECT is not supported: this service is not a proxy.",
};

function refusalFor(parserCode: string | undefined): Refusal {
  if (parserCode === "HPE_HEADER_OVERFLOW") {
    return { status: 431, phrase: "Request Header Fields Too Large", message: "The request's headers are too large." };
  }
  if (parserCode === "ERR_HTTP_REQUEST_TIMEOUT") {
    return { status: 408, phrase: "Request Timeout", message: "The request did not arrive in time." };
  }
  return { status: 400, phrase: "Bad Request", message: "The request is not valid HTTP." };
}

function answerAndClose(socket: Socket, { status, phrase, message }: Refusal, requestId: string): void {
  const body = JSON.stringify(new ApiError("invalid_value", message).toEnvelope());
  const lines = [
    `HTTP/1.1 ${status} ${phrase}`,
    `x-request-id: ${requestId}`,
    "content-type: application/json; charset=utf-8",
    `content-length: ${Buffer.byteLength(body)}`,
    "connection: close",
  ];
  socket.end(`${lines.join("\r\n")}\r\n\r\n${body}`);
  // Closing with unread bytes in the receive buffer resets the connection, and the client loses the answer.
  socket.resume();
  // Neither the server's time limits nor its close know of a socket that Node has handed over.
  const timer = setTimeout(() => socket.destroy(), LINGER_MS);
  socket.once("close", () => clearTimeout(timer));
  socket.once("end", () => socket.destroySoon());
}

/** Closes the connection of a client that reads nothing of a finished answer for `afterMs`. */
export function closeWhenUnread(response: ServerResponse, afterMs: number = SLOW_CLIENT_MS): void {
  response.once("prefinish", () => {
    const { socket } = response;
    if (socket === null || socket.writableLength === 0) return;
    socket.setTimeout(afterMs);
    response.once("finish", () => {
      // An idle connection has a limit of its own by now; otherwise the next answer may take as long as it needs.
      if (socket.timeout === afterMs) socket.setTimeout(0);
    });
  });
}
