import { createServer } from "node:net";
import { freePort } from "../support/service.ts";
import { listen, startWire } from "../support/wire.ts";
import { CASES } from "./cases.ts";
import { createServerWithoutCertificate } from "./scripts.ts";

/** Every timeout of the providers. */
export const TIMEOUT_MS = 500;

interface Servers {
  /** As the configuration lists them; a case names its own by `at`, or is played by `wire`. */
  providers: { id: string; baseUrl: string }[];
  end(): Promise<void>;
}

/** The upstreams: one that plays the scripts, and the ways in which none can be reached. */
export async function startServers(): Promise<Servers> {
  const wire = await startWire((socket, request) => {
    const body = JSON.parse(request.slice(request.indexOf("\r\n\r\n"))) as { model: string; stream?: boolean };
    const script = CASES[Number(body.model.slice("case-".length))]?.script;
    if (typeof script === "function") script(socket);
    else if (script !== undefined) script[body.stream === true ? "streamed" : "unstreamed"](socket);
  });
  const plain = createServer((socket) => {
    socket.on("error", () => {}).resume();
    socket.end("HTTP/1.1 400 Bad Request\r\n\r\n");
  });
  const mute = createServer((socket) => void socket.on("error", () => {}).resume());
  const bare = createServerWithoutCertificate();
  const at = async (scheme: string, server: Parameters<typeof listen>[0]) =>
    `${scheme}://127.0.0.1:${await listen(server)}/v1`;
  const addresses: Record<string, string> = {
    wire: wire.baseUrl,
    nobody: `http://127.0.0.1:${await freePort()}/v1`,
    "no-such-name": "http://upstream.invalid/v1",
    "no-tls": await at("https", plain),
    "no-certificate": await at("https", bare),
    "silent-tls": await at("https", mute),
  };
  const end = async () => {
    await wire.end();
    await Promise.all([plain, bare, mute].map((server) => new Promise((resolve) => server.close(resolve))));
  };
  const timeouts = { connectMs: TIMEOUT_MS, firstByteMs: TIMEOUT_MS, idleMs: TIMEOUT_MS };
  const common = { kind: "openai-compatible", apiKey: "k", timeouts };
  return { providers: Object.entries(addresses).map(([id, baseUrl]) => ({ id, baseUrl, ...common })), end };
}
