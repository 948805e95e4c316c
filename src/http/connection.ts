import type { IncomingMessage, Server, ServerResponse } from "node:http";
import type { Socket } from "node:net";
import { ApiError } from "../errors.ts";

/** Headers that dribble in are cut off: this, and a check every quarter of it. */
export const HEADERS_TIMEOUT_MS = 10_000;
/** For a whole request to arrive, its body too. */
export const REQUEST_TIMEOUT_MS = 120_000;
/** A client that reads nothing for this long is taken to have left. */
export const SLOW_CLIENT_MS = 60_000;

type UnreadableAnswerer = (error: Error & { code?: string }, socket: Socket) => void;

/** Answers what could not be read as HTTP at all, in the same envelope; Node's own parser gives the reason. */
export function answererOfUnreadable(newRequestId: () => string): UnreadableAnswerer {
  return (error, socket) => {
    if (error.code === "ECONNRESET" || !socket.writable || isBeingAnswered(socket)) {
      socket.destroy();
      return;
    }
    const { status, phrase, message } = reasonOf(error.code);
    const body = JSON.stringify(new ApiError("invalid_value", message).toEnvelope());
    const lines = [
      `HTTP/1.1 ${status} ${phrase}`,
      `x-request-id: ${newRequestId()}`,
      "content-type: application/json; charset=utf-8",
      `content-length: ${Buffer.byteLength(body)}`,
      "connection: close",
    ];
    socket.end(`${lines.join("\r\n")}\r\n\r\n${body}`);
  };
}

/**
 * Whether an earlier request of the connection is still being answered: what followed it cannot be, because whoever
 * reads would take it for the answer to the first.
 */
function isBeingAnswered(socket: Socket & { _httpMessage?: ServerResponse | null }): boolean {
  const response = socket._httpMessage ?? undefined;
  return response !== undefined && (response.headersSent || response.req.complete);
}

function reasonOf(code: string | undefined): { status: number; phrase: string; message: string } {
  if (code === "HPE_HEADER_OVERFLOW") {
    return { status: 431, phrase: "Request Header Fields Too Large", message: "The request's headers are too large." };
  }
  if (code === "ERR_HTTP_REQUEST_TIMEOUT") {
    return { status: 408, phrase: "Request Timeout", message: "The request did not arrive in time." };
  }
  return { status: 400, phrase: "Bad Request", message: "The request is not valid HTTP." };
}

/** What Node would answer itself, and without the envelope: an expectation that it does not know, and CONNECT. */
export function takeOddRequests(server: Server, answerUnreadable: UnreadableAnswerer): void {
  // An expectation other than 100-continue may be ignored (RFC 9110, section 10.1.1).
  server.on("checkExpectation", (request: IncomingMessage, response: ServerResponse) => {
    server.emit("request", request, response);
  });
  server.on("connect", (_request, socket) => answerUnreadable(new Error("There is no proxy here"), socket as Socket));
}

/** Cuts the connection of a client that reads nothing of a finished answer for `afterMs`: it would wait forever. */
export function closeWhenUnread(response: ServerResponse, afterMs: number = SLOW_CLIENT_MS): void {
  response.once("prefinish", () => {
    const { socket } = response;
    if (socket === null || socket.writableLength === 0) return;
    socket.setTimeout(afterMs);
    response.once("finish", () => {
      // Unless the connection is idle now and has a time limit for that, the next answer may take as long as it likes.
      if (socket.timeout === afterMs) socket.setTimeout(0);
    });
  });
}
