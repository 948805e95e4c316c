import { createServer } from "node:net";
import { PROVIDER_KINDS } from "../../src/providers/index.ts";
import { freePort } from "../support/service.ts";
import { listen, startWire } from "../support/wire.ts";
import { FIXTURES } from "../wires/fixtures.ts";
import { createServerWithoutCertificate } from "./scripts.ts";
import { casesOf, OWN_KIND } from "./wire-cases.ts";

const ASKS_FOR_A_STREAM = /"stream": ?true|:streamGenerateContent|\/converse-stream/;

/** The wires that packages speak. */
const PACKAGED = new Set(PROVIDER_KINDS.flatMap(({ kind, wire }) => (wire === undefined ? [] : [kind])));
export const OTHER_WIRES = FIXTURES.filter(({ kind }) => PACKAGED.has(kind));

/** The provider of a kind for what is reached at one of the addresses of the cases. */
export function providerAt(kind: string, at = "wire"): string {
  return `${kind}-at-${at}`;
}

/** The model of a case, for callers and for the upstream that plays it. */
export const modelOf = (kind: string, index: number): string => `case-${index}-of-${kind}`;

/** Timeout of silent upstreams; undici checks its timeouts twice a second. */
export const TIMEOUT_MS = 900;
/** Timeout of all others, which a busy machine does not reach. */
const PATIENT_MS = 60_000;

interface Servers {
  /** As the configuration lists them: of each kind one for each address. */
  providers: { id: string; kind: string; baseUrl: string }[];
  /** By all open connections. */
  sentBytes(): number;
  end(): Promise<void>;
}

/** The upstreams: one that plays the scripts, and the ways in which none can be reached. */
export async function startServers(): Promise<Servers> {
  const wire = await startWire((socket, request) => {
    const [, index, kind = ""] = /case-(\d+)-of-([a-z-]+)/.exec(request) ?? [];
    const script = casesOf(kind)[Number(index)]?.script;
    const mode = ASKS_FOR_A_STREAM.test(request) ? "streamed" : "unstreamed";
    (typeof script === "function" ? script : script?.[mode])?.(socket);
  });
  const plain = createServer((socket) => {
    socket.on("error", () => {}).resume();
    socket.end("HTTP/1.1 400 Bad Request\r\n\r\n");
  });
  const mute = createServer((socket) => void socket.on("error", () => {}).resume());
  const bare = createServerWithoutCertificate();
  const at = async (scheme: string, server: Parameters<typeof listen>[0]) =>
    `${scheme}://127.0.0.1:${await listen(server)}`;
  const addresses: Record<string, string> = {
    wire: `http://127.0.0.1:${wire.port}`,
    silent: `http://127.0.0.1:${wire.port}`,
    "silent-later": `http://127.0.0.1:${wire.port}`,
    unused: `http://127.0.0.1:${await freePort()}`,
    "no-such-name": "http://upstream.invalid",
    "no-tls": await at("https", plain),
    "no-certificate": await at("https", bare),
    "silent-tls": await at("https", mute),
  };
  const end = async () => {
    await wire.end();
    await Promise.all([plain, bare, mute].map((server) => new Promise((resolve) => server.close(resolve))));
  };
  const timeoutsAt = (at: string) => {
    const beginsMs = ["silent", "silent-tls"].includes(at) ? TIMEOUT_MS : PATIENT_MS;
    return { connectMs: beginsMs, firstByteMs: beginsMs, idleMs: at === "silent-later" ? TIMEOUT_MS : PATIENT_MS };
  };
  const compatible = { kind: OWN_KIND, settings: { apiKey: "k" }, basePath: "/v1" };
  const providers = [compatible, ...OTHER_WIRES].flatMap(({ kind, settings, basePath }) =>
    Object.entries(addresses).map(([at, origin]) => {
      const id = providerAt(kind, at);
      return { ...settings, id, kind, baseUrl: `${origin}${basePath}`, timeouts: timeoutsAt(at) };
    }),
  );
  return { providers, sentBytes: wire.sentBytes, end };
}
