import type { AddressInfo } from "node:net";
import cors from "@fastify/cors";
import swagger from "@fastify/swagger";
import swaggerUi from "@fastify/swagger-ui";
import fastify, { type FastifyInstance, type FastifyReply, type FastifyRequest } from "fastify";
import { ApiError } from "../errors.ts";
import type { LedgerStanding } from "../ledger/ledger.ts";
import type { Log } from "../telemetry/logger.ts";
import { type AccessSources, decorateForAccess, recordAccess } from "./access.ts";
import type { AdminServices } from "./admin/endpoint.ts";
import { ADMIN_PREFIX, serveAdmin } from "./admin/index.ts";
import { boundAnonymousConnections, touchAnonymous } from "./anonymous-connections.ts";
import { gatekeeper, type TokenAuthenticator } from "./authentication.ts";
import { rewriteUrlFor, sendStrictTransportSecurity } from "./base-path.ts";
import { acceptJsonBodies } from "./body.ts";
import { BodyBudget } from "./body-budget.ts";
import {
  closeWhenUnread,
  HEADERS_TIMEOUT_MS,
  handleConnections,
  parseErrorHandler,
  REQUEST_TIMEOUT_MS,
} from "./connection.ts";
import { serveConsole } from "./console.ts";
import { errorHandler, sendError } from "./errors.ts";
import { HEALTH_PATHS, serveHealth } from "./health.ts";
import { documentationOf, documentBase, documentHandler } from "./openapi.ts";
import type { EndpointServices } from "./routes/endpoint.ts";
import { endpoints } from "./routes/index.ts";
import { RunningCompletions } from "./running-completions.ts";
import { type RequestCounts, Shutdown, type ShutdownOptions } from "./shutdown.ts";
import { answerUnknown, isPublicPath, pathOf } from "./unknown-route.ts";

export interface ServerOptions extends Omit<EndpointServices, "running"> {
  authenticator: TokenAuthenticator;
  admin: Omit<AdminServices, "gateway">;
  version: string;
  /** Proxies whose X-Forwarded headers are believed: none, those at these addresses, or the last N. */
  trustProxy: false | number | string;
  /** Path under which a proxy publishes the service, without a slash at its end; empty: the root. */
  basePath: string;
  bodyLimitBytes: number;
  /** Bytes of all request bodies that are held at once. */
  bodiesInFlightBytes: number;
  /** Rejects when the store does not answer. */
  ping(): Promise<void>;
  /** What waits to be booked, and what cannot be; told at `/readyz`. */
  standing(): Promise<LedgerStanding>;
  newRequestId: () => string;
  accessLog: AccessSources["accessLog"];
  refusals: AccessSources["refusals"];
  log: Log;
}

export interface Server {
  /** Resolves with the address that it listens on; rejects as node:net does (EADDRINUSE …). */
  listen(options: { host: string; port: number }): Promise<AddressInfo>;
  /** Stops taking requests, lets the running ones finish and settle, cuts what is left, and waits for its settlement. */
  close(options: ShutdownOptions): Promise<void>;
  requests(): RequestCounts;
  /** For tests: requests without a socket, and the document. */
  readonly instance: FastifyInstance;
}

const EXPOSED_HEADERS = [
  "x-request-id",
  "x-credits-available",
  "x-credits-charged",
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
];

/** The proxies as Fastify takes them: it would believe none of a number of them, whose addresses are not known. */
function believedProxies(trustProxy: ServerOptions["trustProxy"]) {
  if (typeof trustProxy !== "number") return trustProxy;
  return (_address: string, hop: number) => hop < trustProxy;
}

/** The HTTP server over all endpoints. */
export async function createServer(options: ServerOptions): Promise<Server> {
  const { log, bodyLimitBytes, basePath } = options;
  const running = new RunningCompletions();
  const server = fastify({
    bodyLimit: bodyLimitBytes,
    trustProxy: believedProxies(options.trustProxy),
    rewriteUrl: rewriteUrlFor(basePath),
    genReqId: options.newRequestId,
    requestIdHeader: false,
    // Clients join base URLs and paths in many ways: a trailing or a doubled slash makes no difference.
    routerOptions: { ignoreTrailingSlash: true, ignoreDuplicateSlashes: true },
    clientErrorHandler: parseErrorHandler(options.newRequestId),
    requestTimeout: REQUEST_TIMEOUT_MS,
    return503OnClosing: false,
    forceCloseConnections: "idle",
    http: {
      headersTimeout: HEADERS_TIMEOUT_MS,
      connectionsCheckingInterval: HEADERS_TIMEOUT_MS / 4,
      // Asked for below, in the answer's own envelope.
      requireHostHeader: false,
    },
    frameworkErrors: (_error, request, reply) =>
      sendError(reply.header("x-request-id", request.id), new ApiError("not_found")),
  });
  const shutdown = new Shutdown(server, running);
  handleConnections(server.server, options.newRequestId);
  boundAnonymousConnections(server.server);
  server.decorate("basePath", basePath);
  if (options.trustProxy !== false) sendStrictTransportSecurity(server);
  server.decorateRequest("caller", null);
  decorateForAccess(server);
  const access = { ...options, clock: options.gateway.clock, isCut: () => running.isCut };
  server.addHook("onRequest", (request, reply, done) => {
    reply.header("x-request-id", request.id);
    closeWhenUnread(reply.raw);
    touchAnonymous(request.raw.socket);
    if (!HEALTH_PATHS.has(request.routeOptions.url ?? "")) follow(request, reply, { shutdown, access });
    if (request.raw.httpVersion === "1.1" && request.headers.host === undefined) {
      done(new ApiError("invalid_value", "A request needs the header `Host` (RFC 9112, section 3.2)."));
    } else if (request.is404 || isForeignPreflight(request)) {
      // Before the body is read: nobody is known yet who could send one.
      answerUnknown(request, reply);
    } else done();
  });
  server.setErrorHandler(errorHandler(log));
  server.setValidatorCompiler(() => () => true);
  server.setSerializerCompiler(() => JSON.stringify);
  const budget = new BodyBudget(Math.max(options.bodiesInFlightBytes, 2 * bodyLimitBytes));
  acceptJsonBodies(server, { bodyLimitBytes, budget });
  server.setNotFoundHandler(answerUnknown);
  await document(server, options.version);
  const health = serveHealth(server, options);
  await server.register(async (scope) => serveConsole(scope));
  await server.register(async (api) => serveApi(api, { ...options, running }));
  await server.register(async (api) => serveAdmin(api, { ...options.admin, gateway: options.gateway }));
  await server.ready();
  return {
    instance: server,
    requests: () => shutdown.requests,
    async listen(address) {
      await server.listen(address);
      return server.server.address() as AddressInfo;
    },
    close: (closing) => shutdown.run(health, closing),
  };
}

/** Follows a request to the end of its response. */
function follow(
  request: FastifyRequest,
  reply: FastifyReply,
  { shutdown, access }: { shutdown: Shutdown; access: AccessSources },
): void {
  const startedMs = access.clock();
  shutdown.begin(reply);
  reply.raw.once("close", () => {
    request.bodyReservation?.release();
    recordAccess(access, request, reply, startedMs);
    shutdown.end();
  });
}

async function serveApi(api: FastifyInstance, options: ServerOptions & EndpointServices): Promise<void> {
  const allowed = { origin: "*", methods: ["GET", "HEAD", "POST", "OPTIONS"], maxAge: 86_400, strictPreflight: false };
  const exposing = { ...allowed, exposedHeaders: EXPOSED_HEADERS };
  // Only a browser, which names its origin, reads the long list of what is exposed.
  await api.register(cors, {
    delegator: (request, done) => done(null, request.headers.origin === undefined ? allowed : exposing),
  });
  for (const endpoint of endpoints) {
    api.route({
      method: endpoint.method,
      url: endpoint.path,
      schema: documentationOf(endpoint, options.gateway.completionMaxTokens),
      onRequest: gatekeeper(options.gateway, options.authenticator, endpoint.scope),
      handler: (request, reply) => endpoint.handle(options, request, reply),
    });
  }
}

/** The plugin answers a preflight of every path, but only `/v1` may be called from elsewhere. */
function isForeignPreflight(request: FastifyRequest): boolean {
  return request.method === "OPTIONS" && !isPublicPath(pathOf(request));
}

async function document(server: FastifyInstance, version: string): Promise<void> {
  await server.register(swagger, {
    openapi: documentBase(version, server.basePath),
    transform: ({ schema, url, route }) => {
      const wildcard = endpoints.find((endpoint) => endpoint.path === url)?.wildcard;
      const isApi = route.url.startsWith("/v1/") || route.url.startsWith(ADMIN_PREFIX);
      return { schema: { ...schema, hide: !isApi || undefined }, url: url.replace("*", `:${wildcard?.name}`) };
    },
  });
  const sendDocument = documentHandler(server, "json");
  const sendYaml = documentHandler(server, "yaml");
  await server.register(swaggerUi, {
    routePrefix: "/docs",
    indexPrefix: server.basePath,
    staticCSP: true,
    // Over plain HTTP the page would ask for its own parts over TLS.
    transformStaticCSP: (header) => header.replace(" upgrade-insecure-requests;", ""),
    uiConfig: { validatorUrl: null, persistAuthorization: false },
    uiHooks: {
      // The plugin would serialize the document for every request.
      onRequest: async (request, reply) => {
        if (request.routeOptions.url?.endsWith("/docs/json")) return sendDocument(request, reply);
        if (request.routeOptions.url?.endsWith("/docs/yaml")) return sendYaml(request, reply);
      },
    },
  });
  server.get("/openapi.json", sendDocument);
}
