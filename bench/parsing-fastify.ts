/**
 * A proxy that reads what it forwards: Fastify in front, undici behind; it parses requests and answers, each event of a
 * stream too, and serializes them again. It shows what these libraries need for the work, without any of the service's.
 * Arguments: the port, the upstream.
 */
import { Readable } from "node:stream";
import Fastify from "fastify";
import { Pool } from "undici";

const [port, upstream = ""] = process.argv.slice(2);
const pool = new Pool(upstream, { connections: 1024 });
const server = Fastify({ logger: false });

server.get("/ready", () => "ready");
server.post("/*", async (request, reply) => {
  const { authorization = "" } = request.headers;
  const answer = await pool.request({
    path: request.url,
    method: "POST",
    headers: { "content-type": "application/json", authorization },
    body: JSON.stringify(request.body),
  });
  reply.code(answer.statusCode);
  if (answer.headers["content-type"] !== "text/event-stream") return answer.body.json();
  reply.header("content-type", "text/event-stream");
  return Readable.from(serialized(answer.body));
});
await server.listen({ host: "127.0.0.1", port: Number(port) });

/** Parses each event of a stream and writes it again. */
async function* serialized(bytes: AsyncIterable<Buffer>): AsyncGenerator<string> {
  let rest = "";
  for await (const chunk of bytes) {
    const events = (rest + chunk.toString()).split("\n\n");
    rest = events.pop() ?? "";
    for (const event of events) {
      const data = event.slice("data: ".length);
      yield data === "[DONE]" ? `${event}\n\n` : `data: ${JSON.stringify(JSON.parse(data))}\n\n`;
    }
  }
}
