/** The upstream where nginx is not at hand: answers at once, a stream where the path says so. Argument: the port. */
import { createServer } from "node:http";
import { EMBEDDING_ANSWER, EMBEDDING_BASE64_ANSWER, STREAMED_EVENTS, UNSTREAMED_ANSWER } from "./payload.ts";

const answer = Buffer.from(UNSTREAMED_ANSWER);
const embeddings: Record<string, Buffer> = {
  "/v1/embeddings": Buffer.from(EMBEDDING_ANSWER),
  "/base64/v1/embeddings": Buffer.from(EMBEDDING_BASE64_ANSWER),
};
const events = STREAMED_EVENTS.map((event) => Buffer.from(event));

const server = createServer((request, response) => {
  request.resume();
  request.on("end", () => {
    if (request.url?.startsWith("/streamed/")) {
      response.writeHead(200, { "content-type": "text/event-stream" });
      for (const event of events) response.write(event);
      response.end();
    } else {
      const body = embeddings[request.url ?? ""] ?? answer;
      response.writeHead(200, { "content-type": "application/json", "content-length": body.length });
      response.end(body);
    }
  });
});
server.keepAliveTimeout = 600_000;
server.listen(Number(process.argv[2]), "127.0.0.1");
