import { BlockList, isIP } from "node:net";
import { type Dispatcher, EnvHttpProxyAgent, Pool } from "undici";
import type { Environment, ProviderTimeouts } from "../settings.ts";

/**
 * Connections to one origin, kept alive and as many as there are requests at once, each with one request at a time.
 * They go through a proxy where HTTPS_PROXY or HTTP_PROXY name one and neither NO_PROXY nor a loopback address says
 * otherwise (a pool alone would ignore all three); small letters count as well, and first, as with other tools.
 * A socket reads up to 128 KiB ahead of its reader, or nothing: then each read costs about a microsecond more.
 */
export function createDispatcher(
  origin: URL,
  timeouts: ProviderTimeouts,
  environment: Environment,
  { readsAhead = true }: { readsAhead?: boolean } = {},
): Dispatcher {
  const options = {
    ...(!readsAhead && { connect: WITHOUT_READING_AHEAD, proxyTls: WITHOUT_READING_AHEAD }),
    connectTimeout: timeouts.connectMs,
    headersTimeout: timeouts.firstByteMs,
    bodyTimeout: timeouts.idleMs,
    pipelining: 1,
    // One connection a request is what makes an abort end the connection and nothing else.
    allowH2: false,
  };
  const httpProxy = environment.http_proxy || environment.HTTP_PROXY || "";
  const httpsProxy = environment.https_proxy || environment.HTTPS_PROXY || "";
  const isProxied = httpProxy !== "" || (httpsProxy !== "" && origin.protocol === "https:");
  if (!isProxied || isLoopback(origin.hostname)) return new Pool(origin.origin, options);
  return new EnvHttpProxyAgent({
    ...options,
    httpProxy,
    httpsProxy,
    noProxy: environment.no_proxy || environment.NO_PROXY || "",
    // A proxy that accepts a connection and never opens the tunnel counts as one that cannot be reached.
    clientFactory: (proxy, proxyOptions) => new Pool(proxy, { ...proxyOptions, headersTimeout: timeouts.connectMs }),
  });
}

/** A stream's own option, which is passed on to the socket and has no type among those of a connection. */
const WITHOUT_READING_AHEAD: object = { highWaterMark: 0 };

const loopback = new BlockList();
loopback.addSubnet("127.0.0.0", 8, "ipv4");
loopback.addAddress("::1", "ipv6");

function isLoopback(hostname: string): boolean {
  const host = hostname.replace(/^\[(.*)\]$/, "$1");
  const family = isIP(host);
  if (family === 0) return host === "localhost" || host.endsWith(".localhost");
  return loopback.check(host, family === 4 ? "ipv4" : "ipv6");
}
