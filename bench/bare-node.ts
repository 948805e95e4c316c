/** A proxy on `node:http` and undici that passes bytes without reading them. Arguments: the port, the upstream. */
import { createServer } from "node:http";
import { Pool } from "undici";

const [port, upstream = ""] = process.argv.slice(2);
const pool = new Pool(upstream, { connections: 1024 });

const server = createServer((request, response) => {
  const { url: path = "/", headers } = request;
  if (path === "/ready") {
    response.end("ready");
    return;
  }
  const names = ["content-type", "content-length", "authorization"];
  const passed = (from: NodeJS.Dict<string | string[]>) =>
    Object.fromEntries(names.flatMap((name) => (from[name] === undefined ? [] : [[name, from[name]]])));
  pool
    .stream({ path, method: "POST", headers: passed(headers), body: request }, (answer) =>
      response.writeHead(answer.statusCode, passed(answer.headers)),
    )
    .catch(() => response.destroy());
});
server.keepAliveTimeout = 600_000;
server.listen(Number(port), "127.0.0.1");
