import { lookup } from "node:dns/promises";
import type { IncomingMessage } from "node:http";
import type { AddressInfo } from "node:net";
import cors from "@fastify/cors";
import swagger from "@fastify/swagger";
import fastify, { type FastifyInstance, type FastifyRequest } from "fastify";
import { messagesErrors } from "../api/messages/errors.ts";
import { ApiError } from "../errors.ts";
import type { Gateway } from "../gateway/gateway.ts";
import { FairBudget } from "../ledger/fair-budget.ts";
import type { Log } from "../telemetry/logger.ts";
import { type AccessSources, beginAccess } from "./access.ts";
import { ADMIN_PREFIX } from "./admin/endpoint.ts";
import { type AdminServices, serveAdmin } from "./admin/index.ts";
import { authenticate, type CallerAccounts, takeQueryKey } from "./authentication.ts";
import { acceptBodies } from "./body.ts";
import {
  closeWhenUnread,
  HEADERS_TIMEOUT_MS,
  handleConnections,
  onClosed,
  parseErrorHandler,
  REQUEST_TIMEOUT_MS,
  touchConnection,
} from "./connection.ts";
import { serveConsole } from "./console.ts";
import { errorHandler, namesMessagesVersion, sendError } from "./errors.ts";
import { type HealthSources, type MetricsEndpoint, serveHealth, serveMetrics, UNRECORDED_PATHS } from "./health.ts";
import { documentationOf, documentBase, documentHandler } from "./openapi.ts";
import { type Overload, RunningWork } from "./overload.ts";
import { type PaymentReceiver, servePaymentWebhook } from "./payment-webhook.ts";
import type { EndpointServices } from "./routes/endpoint.ts";
import { endpoints, isGeminiPath, isPublicPath, requestPath, respondNoRoute } from "./routing.ts";
import { RunningRequests, type ShutdownOptions } from "./shutdown.ts";

declare module "fastify" {
  interface FastifyInstance {
    basePath: string;
  }
}

export interface ServerOptions
  extends Omit<EndpointServices, "running" | Exclude<keyof AdminServices, "gateway">>,
    HealthSources,
    CallerAccounts,
    Pick<AccessSources, "accessLog" | "refusals" | "observe"> {
  identities: CallerAccounts["identities"] & AdminServices["identities"];
  admin: Omit<AdminServices, "gateway" | "identities">;
  version: string;
  /** Trusted proxies, whose X-Forwarded headers are used: none, these addresses, or the last N. */
  trustProxy: false | number | string;
  /** Path under which a proxy publishes the service, without a trailing slash; empty for the root. */
  basePath: string;
  /** True if requests to Gemini's API may have the token in their query. */
  keyInQuery: boolean;
  bodyLimitBytes: number;
  bodiesInFlightBytes: number;
  maxConnections: number;
  overload: Pick<Overload, "refusal" | "countConnection">;
  newRequestId: () => string;
  /** Serves `/metrics` for the holder of the token; absent where it has a port of its own or is off. */
  metrics?: MetricsEndpoint | undefined;
  paymentReceiver?: PaymentReceiver | undefined;
  log: Log;
}

/** Parts of the server that a reload of the configuration replaces. */
export interface ServerSettings {
  gateway: Pick<Gateway, "catalog" | "providers" | "limitSettings" | "playground" | "completionMaxTokens">;
  completions: EndpointServices["completions"];
  facts: AdminServices["facts"];
}

export type Server = Awaited<ReturnType<typeof createServer>>;

const EXPOSED_HEADERS = [
  "x-request-id",
  "request-id",
  "x-credits-available",
  "x-credits-charged",
  "x-budget-limit",
  "x-budget-remaining",
  "x-budget-reset",
  "x-budget-warning",
  "x-tollgate-route",
  "x-tollgate-ignored",
  "x-tollgate-max-tokens",
  "x-tollgate-idempotent-replay",
  "x-ratelimit-limit-requests",
  "x-ratelimit-remaining-requests",
  "x-ratelimit-reset-requests",
  "x-ratelimit-limit-tokens",
  "x-ratelimit-remaining-tokens",
  "x-ratelimit-reset-tokens",
  "ratelimit",
  "ratelimit-policy",
  "retry-after",
  "x-should-retry",
  "www-authenticate",
  "deprecation",
  "sunset",
  "link",
].join(", ");

/** Headers by which proxies name the client; of a trusted proxy, only the first is read for its address. */
const FORWARDED = ["X-Forwarded-For", "X-Forwarded-Proto", "X-Forwarded-Host", "X-Real-IP", "Forwarded"];

/** Returns a function that warns at the first request with a forwarded header whose sender is not trusted. */
function untrustedProxyWarning({ log, trustProxy }: ServerOptions): (request: FastifyRequest) => void {
  const names = trustProxy === false ? FORWARDED : FORWARDED.slice(0, 1);
  const headers = names.map((name) => name.toLowerCase());
  let hasWarned = false;
  return (request) => {
    if (hasWarned || (request.ips?.length ?? 0) > 1) return;
    const name = names[headers.findIndex((header) => request.headers[header])];
    if (name === undefined) return;
    hasWarned = true;
    log.warn(
      { address: request.socket.remoteAddress },
      `${name} is ignored, because server.trustProxy does not name its sender: if that is your proxy, its callers share one address in limits and in the audit log, and session cookies are not Secure`,
    );
  };
}

/** The endpoints validate and serialize themselves. Without these, Fastify loads two compilers of schemas. */
const NO_COMPILERS: object = { buildValidator: () => () => () => true, buildSerializer: () => () => JSON.stringify };

function createFastify(options: ServerOptions): FastifyInstance {
  const { bodyLimitBytes, trustProxy, newRequestId } = options;
  return fastify({
    bodyLimit: bodyLimitBytes,
    // Fastify expects a function instead of a number of proxies.
    trustProxy: typeof trustProxy === "number" ? (_address: string, hop: number) => hop < trustProxy : trustProxy,
    rewriteUrl: rewriteUrlFor(options),
    genReqId: newRequestId,
    requestIdHeader: false,
    schemaController: { compilersFactory: NO_COMPILERS },
    // Clients join base URLs and paths in different ways, so trailing and repeated slashes are ignored.
    // Fastify's router would take a long id for an unknown path.
    routerOptions: { ignoreTrailingSlash: true, ignoreDuplicateSlashes: true, maxParamLength: 65_536 },
    clientErrorHandler: parseErrorHandler(newRequestId),
    requestTimeout: REQUEST_TIMEOUT_MS,
    return503OnClosing: false,
    forceCloseConnections: "idle",
    http: {
      headersTimeout: HEADERS_TIMEOUT_MS,
      connectionsCheckingInterval: HEADERS_TIMEOUT_MS / 4,
      // A hook of createServer checks it, and responds with an error envelope.
      requireHostHeader: false,
    },
    frameworkErrors: (_error, request, reply) =>
      sendError(reply.header("x-request-id", request.id), new ApiError("not_found")),
  });
}

const REQUEST_PROPERTIES = ["caller", "bodyReservation", "failure", "modelName", "observer", "settlement"] as const;
/** For requests that reached a trusted proxy over TLS: RFC 6797, section 7.2, forbids the header over plain HTTP. */
const HSTS = "max-age=31536000";

/** Creates the HTTP server with all endpoints. */
export async function createServer(options: ServerOptions) {
  const { log, bodyLimitBytes, basePath } = options;
  const server = createFastify(options);
  handleConnections(server.server, options);
  server.server.on("connection", () => options.overload.countConnection());
  const running = new RunningRequests(server);
  server.decorate("basePath", basePath);
  for (const name of REQUEST_PROPERTIES) server.decorateRequest(name, null);
  const access = { ...options, clock: options.gateway.clock, running };
  const noteForwarded = untrustedProxyWarning(options);
  server.addHook("onRequest", (request, reply, done) => {
    noteForwarded(request);
    reply.header("x-request-id", request.id);
    if (options.trustProxy !== false && request.protocol === "https") reply.header("strict-transport-security", HSTS);
    // The CORS plugin would answer the preflight of every path, but only `/v1` allows other origins.
    const isForeignPreflight = request.method === "OPTIONS" && !isPublicPath(requestPath(request));
    // Fastify makes this object anew at every access.
    const { url, config } = request.routeOptions;
    // The name that Anthropic's API has for the same header.
    if (namesMessagesVersion(request) || config.errors === messagesErrors) reply.header("request-id", request.id);
    closeWhenUnread(reply.raw);
    touchConnection(request.raw.socket);
    if (!UNRECORDED_PATHS.has(url ?? "")) {
      running.begin(reply);
      const record = beginAccess(access, reply, url);
      onClosed(reply.raw, () => {
        request.bodyReservation?.release();
        record();
        running.end();
      });
    }
    if (request.raw.httpVersion === "1.1" && request.headers.host === undefined) {
      done(new ApiError("invalid_value", "The header `Host` is missing (RFC 9112, section 3.2)."));
    } else if (request.is404 || isForeignPreflight) {
      // Responds before the body is read: the client is not authenticated.
      respondNoRoute(request, reply);
    } else done();
  });
  server.setErrorHandler(errorHandler(log));
  const budget = new FairBudget(Math.max(options.bodiesInFlightBytes, 2 * bodyLimitBytes));
  acceptBodies(server, { bodyLimitBytes, budget, turns: options.gateway.longTasks });
  server.setNotFoundHandler(respondNoRoute);
  await document(server, options.version);
  serveHealth(server, options, running);
  if (options.metrics !== undefined) serveMetrics(server, options.metrics);
  if (options.paymentReceiver !== undefined) servePaymentWebhook(server, options.paymentReceiver);
  await server.register(async (scope) => serveConsole(scope));
  const { admin, ...others } = options;
  const services = { ...others, ...admin, running };
  await server.register(async (api) => serveApi(api, services));
  await server.register(async (api) => serveAdmin(api, services));
  await server.ready();
  return {
    /** For tests. */
    instance: server,
    /** Requests without a complete response, health checks aside, and completions that are not settled. */
    runningRequests: (): number => running.count,
    /** Applies to requests that begin from now on. Resolves when every completion that is running now has ended. */
    reconfigure: ({ completions, facts, ...changed }: ServerSettings): Promise<void> => {
      // A request takes the gateway once, so that all of its steps use the same providers.
      const gateway = { ...services.gateway, ...changed.gateway };
      Object.assign(services, { gateway, completions, facts });
      return running.currentEnded();
    },
    /** Resolves with the bound address. Rejects with the errors of node:net, such as EADDRINUSE. */
    listen: (address: { host: string; port: number }) => listen(server, address),
    /** Stops accepting requests, lets running ones finish, aborts the rest, and waits until all are settled. */
    close: (closing: ShutdownOptions): Promise<void> => running.shutDown(closing),
  };
}

/** More than Node's 511: in a burst the system would drop the ends of handshakes, for which clients wait for minutes. */
const BACKLOG_CONNECTIONS = 4_096;

async function listen(server: FastifyInstance, { host, port }: { host: string; port: number }): Promise<AddressInfo> {
  // For a name with several addresses, Fastify would listen on the others by servers that have none of our limits.
  const { address } = await lookup(host, { order: "ipv4first" });
  await server.listen({ host: address, port, backlog: BACKLOG_CONNECTIONS });
  return server.server.address() as AddressInfo;
}

async function serveApi(api: FastifyInstance, options: Omit<ServerOptions, "admin"> & EndpointServices): Promise<void> {
  api.addHook("onRequest", (request, reply, done) => {
    // Only browsers read the long list of exposed headers, and they send `Origin`.
    reply.header("vary", "Origin");
    if (request.headers.origin !== undefined) reply.header("access-control-expose-headers", EXPOSED_HEADERS);
    done();
  });
  const methods = ["GET", "HEAD", "POST", "DELETE", "OPTIONS"];
  await api.register(cors, { origin: "*", methods, maxAge: 86_400, strictPreflight: false });
  const work = new RunningWork(options.overload);
  for (const endpoint of endpoints) {
    // Those that a model answers, and counting tokens, are refused while the service is overloaded.
    const startsWork = endpoint.method === "POST" && endpoint.scope === "chat.completions:write";
    api.route({
      method: endpoint.method,
      url: endpoint.path,
      config: { errors: endpoint.errors, isForm: endpoint.isForm },
      schema: documentationOf(endpoint, { ...options.completions, maxTokens: options.gateway.completionMaxTokens }),
      onRequest: authenticate(options, options, endpoint.scope, startsWork ? work : undefined),
      handler: (request, reply) => endpoint.handle(options, request, reply),
    });
  }
}

async function document(server: FastifyInstance, version: string): Promise<void> {
  await server.register(swagger, {
    openapi: documentBase(version, server.basePath),
    transform: ({ schema, url, route }) => {
      const endpoint = endpoints.find(({ path, method }) => path === url && method === route.method);
      const isApi = endpoint !== undefined || route.url.startsWith(ADMIN_PREFIX);
      return {
        schema: { ...schema, hide: !isApi || undefined },
        url: url.replace("*", `:${endpoint?.wildcard?.name}`),
      };
    },
  });
  const sendDocument = documentHandler(server, "json");
  server.get("/openapi.json", sendDocument);
  server.get("/docs/json", sendDocument);
  server.get("/docs/yaml", documentHandler(server, "yaml"));
}

/** The version of Google's API that `@google/genai` can be set to; its methods are those of `v1beta`. */
const VERSION_ALPHA = /^\/+v1alpha\//;
/** Begins a call by the name of a model with a slash, before which Google's clients write no `models/`. */
const MODEL_ALONE = /^\/v1beta\/(?!models\/)(?=[^?]+:\w+(?:\?|$))/;

/** Returns Fastify's `rewriteUrl`: it removes the base path from URLs that have it, and tokens from those of Gemini's API. */
function rewriteUrlFor({ basePath, keyInQuery }: Pick<ServerOptions, "basePath" | "keyInQuery">) {
  const path = new RegExp(`^${RegExp.escape(basePath)}(?:/|(?=\\?|$))`);
  return (request: IncomingMessage & { originalUrl?: string }) => {
    const { url: sent = "/" } = request;
    const url = basePath === "" ? sent : sent.replace(path, "/");
    // Most URLs are of other APIs, and are read no further.
    if (!url.includes("/v1alpha/") && !url.includes("/v1beta/")) return url;
    if (!isGeminiPath(requestPath({ url }))) return url;
    const keyless = takeQueryKey(request, url, keyInQuery);
    const stripped = keyless.replace(VERSION_ALPHA, "/v1beta/").replace(MODEL_ALONE, "$&models/");
    // Fastify keeps it for its log.
    request.originalUrl = stripped;
    return stripped;
  };
}
