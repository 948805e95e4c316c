import { createHash, timingSafeEqual } from "node:crypto";
import fastify, { type FastifyInstance } from "fastify";
import { ApiError, OperatorError } from "../errors.ts";
import type { LimitsStatus } from "../gateway/limits.ts";
import type { LedgerStatus } from "../ledger/ledger.ts";

export interface HealthSources {
  /** Rejects when the store does not answer or accepts no writes. */
  ping(): Promise<void>;
  ledgerStatus(): Promise<LedgerStatus>;
  /** Absent if the configuration names no Redis. */
  limitsStatus?: () => LimitsStatus;
}

/** Paths that report the state of the process. Their requests are neither counted nor logged. */
export const UNRECORDED_PATHS: ReadonlySet<string> = new Set(["/healthz", "/health", "/readyz", "/metrics"]);

/** A check writes to the store and needs no authentication, so its result is reused for this time. */
const CHECK_REUSED_MS = 100;

/** Serves `/healthz` (the process runs; other gateways call it `/health`) and `/readyz` (it accepts requests, the store answers). */
export function serveHealth(
  server: FastifyInstance,
  { ping, ledgerStatus, limitsStatus }: HealthSources,
  running: { readonly isDraining: boolean },
): void {
  let found: Promise<boolean> | undefined;
  const forgetLater = () => {
    setTimeout(() => {
      found = undefined;
    }, CHECK_REUSED_MS).unref();
  };
  const isStoreUp = () => {
    found ??= ping()
      .then(() => true)
      .catch(() => false)
      .finally(forgetLater);
    return found;
  };
  for (const path of ["/healthz", "/health"]) server.get(path, async () => ({ status: "ok" }));
  server.get("/readyz", async (_request, reply) => {
    const { isDraining } = running;
    const isUp = isDraining || (await isStoreUp());
    const status = isDraining ? "draining" : isUp ? "ready" : "store_unavailable";
    const limits = limitsStatus && { limits: limitsStatus().mode };
    const { spool, deadLetters } = await ledgerStatus();
    return reply.code(status === "ready" ? 200 : 503).send({ status, ...limits, spool, dead_letters: deadLetters });
  });
}

export interface MetricsEndpoint {
  /** Undefined: no token is needed, which only a port of its own allows. */
  token: string | undefined;
  read(): Promise<string>;
}

const METRICS_REQUEST_TIMEOUT_MS = 30_000;
const METRICS_TYPE = "text/plain; version=0.0.4; charset=utf-8";

/** Serves `/metrics`, for the holder of the token if there is one. */
export function serveMetrics(server: FastifyInstance, { token, read }: MetricsEndpoint): void {
  server.get("/metrics", async (request, reply) => {
    if (token !== undefined && !isBearer(request.headers.authorization, token)) {
      throw new ApiError("invalid_token", undefined, { headers: { "www-authenticate": 'Bearer realm="metrics"' } });
    }
    return reply.header("content-type", METRICS_TYPE).send(await read());
  });
}

/** Serves `/metrics` on a port of its own. Returns the function that ends it. Rejects with OperatorError if it cannot listen. */
export async function listenForMetrics({ host, port }: { host: string; port: number }, endpoint: MetricsEndpoint) {
  const server = fastify({ forceCloseConnections: true, requestTimeout: METRICS_REQUEST_TIMEOUT_MS });
  serveMetrics(server, endpoint);
  server.setErrorHandler(async (error, _request, reply) => {
    const [status, headers] = error instanceof ApiError ? [error.status, error.headers] : [500, {}];
    return reply.code(status).headers(headers).send();
  });
  try {
    await server.listen({ host, port });
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException;
    const message = `cannot listen on port ${port} of ${host} for metrics: ${code}; change metrics.port or metrics.host`;
    throw new OperatorError(message, { cause: error });
  }
  return () => server.close();
}

/** Compares in constant time. */
function isBearer(header: string | undefined, token: string): boolean {
  const digest = (text: string) => createHash("sha256").update(text).digest();
  const sent = /^bearer +(\S+) *$/i.exec(header ?? "")?.[1] ?? "";
  return timingSafeEqual(digest(sent), digest(token));
}
