/** A proxy on Fastify and undici that passes bytes without reading them. Arguments: the port, the upstream. */
import Fastify from "fastify";
import { Pool } from "undici";

const [port, upstream = ""] = process.argv.slice(2);
const pool = new Pool(upstream, { connections: 1024 });
const server = Fastify({ logger: false });

server.removeAllContentTypeParsers();
server.addContentTypeParser("*", { parseAs: "buffer" }, (_request, body, done) => done(null, body));
server.get("/ready", () => "ready");
server.post("/*", async (request, reply) => {
  const { "content-type": contentType = "application/json", authorization = "" } = request.headers;
  const answer = await pool.request({
    path: request.url,
    method: "POST",
    headers: { "content-type": contentType, authorization },
    body: request.body as Buffer,
  });
  reply.code(answer.statusCode);
  for (const name of ["content-type", "content-length"]) {
    const value = answer.headers[name];
    if (value !== undefined) reply.header(name, value);
  }
  return answer.body;
});
await server.listen({ host: "127.0.0.1", port: Number(port) });
