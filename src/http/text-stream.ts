import type { OutgoingHttpHeaders, ServerResponse } from "node:http";
import type { FastifyReply } from "fastify";
import { SLOW_CLIENT_MS } from "./connection.ts";

/**
 * Streams a text in pieces. Requests the next piece only when the operating system has taken the whole previous one, so at
 * most one piece is in memory. Resolves when everything was sent or the client has disconnected; disconnects a client that
 * reads nothing for `slowClientMs`. Rejects when reading a piece fails: the error handler then answers, or resets the
 * connection where headers were sent.
 */
export async function streamText(
  reply: FastifyReply,
  headers: OutgoingHttpHeaders,
  pieces: AsyncIterable<string>,
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

/** Resolves when the operating system has taken the whole text, or the connection is closed. */
function writeWhole(response: ServerResponse, text: string, slowClientMs: number): Promise<void> {
  // A pipelined response has no socket until the response before it has ended, and no event tells that it was closed.
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
