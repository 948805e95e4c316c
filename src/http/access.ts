import type { FastifyInstance, FastifyReply, FastifyRequest } from "fastify";
import type { Principal } from "../api/principal.ts";
import { printable } from "../api/wording.ts";
import type { ApiError } from "../errors.ts";
import type { CompletionReport } from "../gateway/report.ts";
import type { Refusal } from "../reports/refusal-log.ts";
import type { AccessEntry, AccessLog } from "../telemetry/logger.ts";

declare module "fastify" {
  interface FastifyRequest {
    /** Principal of the token, from authentication on, also if the request is rejected later. */
    principal: Principal | null;
    /** The error that the client received. */
    failure: ApiError | null;
    /** True if the service reset the connection in the middle of the response because of `failure`. */
    isReset: boolean;
    /** Model of a completion request. */
    modelName: string | null;
    /** True after credits were held: the request log then has an entry of its own. */
    isHeld: boolean;
    observer: RequestObserver | null;
  }
}

/** The beginning of a request, for its observer. */
export interface BegunRequest {
  method: string;
  /** Pattern of the matched route; null if no route matched. */
  route: string | null;
  /** Header of W3C Trace Context, as the client sent it. */
  traceparent: string | undefined;
  tracestate: string | undefined;
  /** Milliseconds since 1970. */
  startedMs: number;
}

/** Observes one request, for metrics and traces. The two calls come in any order. */
export interface RequestObserver {
  /** Its completion is settled. Called only for a request that held credits. */
  settled(report: CompletionReport): void;
  /** Its response is closed. */
  closed(entry: AccessEntry, isHeld: boolean): void;
}

export interface AccessSources {
  accessLog: AccessLog;
  refusals: { note(refusal: Refusal): void };
  /** Begins to observe a request; absent where nothing observes requests. */
  observe?: ((begun: BegunRequest) => RequestObserver) | undefined;
  clock: () => number;
  /** True when the shutdown closes connections. */
  isCut(): boolean;
}

const MODEL_CHARACTERS_MAX = 200;
const MESSAGE_CHARACTERS_MAX = 500;

export function decorateForAccess(server: FastifyInstance): void {
  server.decorateRequest("principal", null);
  server.decorateRequest("failure", null);
  server.decorateRequest("isReset", false);
  server.decorateRequest("modelName", null);
  server.decorateRequest("isHeld", false);
  server.decorateRequest("observer", null);
}

/** Begins to observe a request. `startedMs` is in milliseconds since 1970. */
export function beginAccess({ observe }: AccessSources, request: FastifyRequest, startedMs: number): void {
  if (observe === undefined) return;
  const { traceparent, tracestate } = request.headers;
  request.observer = observe({
    method: request.method,
    route: routeOf(request),
    traceparent: typeof traceparent === "string" ? traceparent : undefined,
    tracestate: typeof tracestate === "string" ? tracestate : undefined,
    startedMs,
  });
}

/** Returns what a completion reports its end to; undefined where nothing observes the request. */
export function onSettledOf({ observer }: FastifyRequest): ((report: CompletionReport) => void) | undefined {
  return observer === null ? undefined : (report) => observer.settled(report);
}

function routeOf(request: FastifyRequest): string | null {
  return request.is404 ? null : (request.routeOptions.url ?? null);
}

/**
 * Records a request with a closed response in the access log, and in the refusal log if it was rejected and its
 * organization is known. `startedMs` is the time at which the request began, in milliseconds since 1970.
 */
export function recordAccess(
  sources: AccessSources,
  request: FastifyRequest,
  reply: FastifyReply,
  startedMs: number,
): void {
  const entry = entryOf(request, reply, { isCut: sources.isCut(), durationMs: sources.clock() - startedMs });
  sources.accessLog.record(entry);
  request.observer?.closed(entry, request.isHeld);
  const { failure, principal, isHeld } = request;
  if (failure === null || principal === null || isHeld || entry.status < 400 || entry.status >= 500) return;
  sources.refusals.note({
    organizationId: principal.organizationId,
    tokenId: principal.tokenId,
    requestId: entry.requestId,
    endpoint: `${entry.method} ${entry.route}`,
    model: entry.model,
    status: failure.status,
    code: failure.code,
    message: printable(failure.loggedMessage, MESSAGE_CHARACTERS_MAX),
    durationMs: entry.durationMs,
  });
}

function entryOf(
  request: FastifyRequest,
  { raw }: FastifyReply,
  { isCut, durationMs }: { isCut: boolean; durationMs: number },
): AccessEntry {
  const { failure, isReset, modelName } = request;
  const isComplete = raw.writableFinished || isReset || isCut;
  const caller = request.principal ?? administratorOf(request);
  return {
    requestId: request.id,
    method: request.method,
    route: routeOf(request),
    status: isComplete ? raw.statusCode : 499,
    code: isComplete ? (failure?.code ?? null) : "client_disconnected",
    organizationId: caller?.organizationId ?? null,
    tokenId: caller?.tokenId ?? null,
    model: modelName === null ? null : printable(modelName, MODEL_CHARACTERS_MAX),
    durationMs,
  };
}

function administratorOf({ administrator: who }: FastifyRequest) {
  if (who === null || who === undefined) return null;
  if (who.role === "operator") return { organizationId: null, tokenId: who.adminToken.id };
  return { organizationId: who.token.organizationId, tokenId: who.token.id };
}

/** Returns the model of a body before its validation, null if it has none. */
export function modelIn(body: unknown): string | null {
  const model = typeof body === "object" && body !== null && "model" in body ? body.model : null;
  return typeof model === "string" ? model.slice(0, MODEL_CHARACTERS_MAX + 1) : null;
}
