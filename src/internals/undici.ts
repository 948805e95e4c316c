import { createRequire } from "node:module";
import type { Dispatcher, Agent as UndiciAgent } from "undici";

type Undici = typeof import("undici");

/**
 * Loads parts of undici. Its index would also load fetch, WebSockets, caches and mocks, which nothing here uses: 3 MiB, and a
 * sixth of the processor time of `tollgate config check`.
 */
const load = createRequire(import.meta.url);

export const Pool: Undici["Pool"] = load("undici/lib/dispatcher/pool.js");
export const Agent: Undici["Agent"] = load("undici/lib/dispatcher/agent.js");
export type Agent = UndiciAgent;
export const errors: Undici["errors"] = load("undici/lib/core/errors.js");

/** Loads the class of connections through the proxies of the environment. It needs methods that the index adds. */
export function loadEnvHttpProxyAgent(): Undici["EnvHttpProxyAgent"] {
  return (load("undici") as Undici).EnvHttpProxyAgent;
}

const send: Dispatcher["request"] = load("undici/lib/api/api-request.js");

/** Sends a request on a dispatcher. */
export function request(
  dispatcher: Dispatcher,
  url: URL,
  options: Omit<Dispatcher.RequestOptions, "origin" | "path">,
): Promise<Dispatcher.ResponseData<unknown>> {
  return send.call(dispatcher, { ...options, origin: url.origin, path: `${url.pathname}${url.search}` });
}
