import type { OutgoingHttpHeaders, ServerResponse } from "node:http";
import type { FastifyReply } from "fastify";
import { SLOW_CLIENT_MS } from "./connection.ts";

/**
 * Streams a text in pieces. The next piece is asked for when the connection has taken the one before it, so that one of
 * them is in memory. Resolves when all of it was sent or the client has disconnected; a client that reads nothing for
 * `slowClientMs` is disconnected. Rejects with a failure of the pieces: without headers sent it can still be answered.
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

/** Resolves when the connection has taken all of a text, or is closed. */
function writeWhole(response: ServerResponse, text: string, slowClientMs: number): Promise<void> {
  // A response behind another one of its connection has no socket of its own yet, and no event tells that it is closed.
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
