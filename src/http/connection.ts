import type { Socket } from "node:net";
import { ApiError } from "../errors.ts";

/** Headers that dribble in are cut off: this, and a check every quarter of it. */
export const HEADERS_TIMEOUT_MS = 10_000;
/** For a whole request to arrive, its body too. */
export const REQUEST_TIMEOUT_MS = 120_000;

/** Answers what could not be read as HTTP at all, in the same envelope; Node's own parser gives the reason. */
export function answerUnreadable(error: Error & { code?: string }, socket: Socket): void {
  if (error.code === "ECONNRESET" || !socket.writable) {
    socket.destroy();
    return;
  }
  const { status, phrase, message } = reasonOf(error.code);
  const envelope = new ApiError("invalid_value", message).toEnvelope();
  const body = JSON.stringify(envelope);
  socket.end(
    `HTTP/1.1 ${status} ${phrase}\r\ncontent-type: application/json; charset=utf-8\r\ncontent-length: ${Buffer.byteLength(body)}\r\nconnection: close\r\n\r\n${body}`,
  );
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
