/**
 * The upstream where nginx is not installed, or where events are apart: answers a stream where the path says so. Arguments:
 * the port, the number of events of a stream, and the milliseconds between two of them.
 */
import { createServer, type ServerResponse } from "node:http";
import { EMBEDDING_ANSWER, EMBEDDING_BASE64_ANSWER, streamedEvents, UNSTREAMED_ANSWER } from "./payload.ts";

const answer = Buffer.from(UNSTREAMED_ANSWER);
const embeddings: Record<string, Buffer> = {
  "/v1/embeddings": Buffer.from(EMBEDDING_ANSWER),
  "/base64/v1/embeddings": Buffer.from(EMBEDDING_BASE64_ANSWER),
};
const [port, count, apartMs] = process.argv.slice(2).map(Number) as [number, number, number];
const events = streamedEvents(count).map((event) => Buffer.from(event));

const server = createServer((request, response) => {
  request.resume();
  request.on("end", () => {
    if (request.url?.startsWith("/streamed/")) {
      response.writeHead(200, { "content-type": "text/event-stream" });
      if (apartMs > 0) writeApart(response);
      else {
        for (const event of events) response.write(event);
        response.end();
      }
    } else {
      const body = embeddings[request.url ?? ""] ?? answer;
      response.writeHead(200, { "content-type": "application/json", "content-length": body.length });
      response.end(body);
    }
  });
});
function writeApart(response: ServerResponse): void {
  let written = 0;
  const timer = setInterval(() => {
    const event = events[written];
    written += 1;
    if (event !== undefined) response.write(event);
    if (written < events.length) return;
    clearInterval(timer);
    response.end();
  }, apartMs);
  response.on("close", () => clearInterval(timer));
}

server.keepAliveTimeout = 600_000;
server.listen(port, "127.0.0.1");
