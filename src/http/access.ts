import type { FastifyReply, FastifyRequest } from "fastify";
import type { Principal } from "../api/principal.ts";
import { printable } from "../api/wording.ts";
import { upstreamOf } from "../catalog/model.ts";
import { formatCredits } from "../credits/amount.ts";
import { tokenTotals } from "../credits/price.ts";
import type { ApiError } from "../errors.ts";
import type { CompletionReport } from "../gateway/gateway.ts";
import type { Refusal } from "../reports/refusal-log.ts";
import type { AccessEntry, AccessLog } from "../telemetry/logger.ts";
import { callerNamesOf } from "./authentication.ts";

declare module "fastify" {
  interface FastifyRequest {
    /** The error that the client received; `isReset` if the service reset the connection in the middle of the response. */
    failure: { error: ApiError; isReset?: true } | null;
    modelName: string | null;
    observer: RequestObserver | null;
    /** Null until credits are held. Resolves with the report of the completion; with undefined after a defect. */
    settlement: Promise<CompletionReport | undefined> | null;
  }
}

export interface BegunRequest {
  method: string;
  /** Pattern of the matched route; null if no route matched. */
  route: string | null;
  /** The trace context that the client sent; undefined if there is no valid one. */
  traceparent: string | undefined;
  tracestate: string | undefined;
  startedMs: number;
}

export interface RequestObserver {
  /** Id of the recorded trace; undefined for a request that is not traced. */
  readonly traceId: string | undefined;
  /** The trace that upstreams may continue; undefined where requests are not traced. */
  readonly traceparent: string | undefined;
  /** Its response is closed and its completion settled. `report` is undefined for a request that held no credits. */
  ended(entry: AccessEntry, report: CompletionReport | undefined, aliases: Principal["aliases"]): void;
}

export interface AccessSources {
  accessLog: AccessLog;
  refusals: { note(refusal: Refusal): void };
  observe?: ((begun: BegunRequest) => RequestObserver) | undefined;
  clock: () => number;
  running: { readonly isCut: boolean };
}

/** W3C Trace Context, section 3.2. Later versions may append fields. Ids of zeros alone are invalid. */
const TRACEPARENT = /^(?!ff)[0-9a-f]{2}(-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2})(?:-.*)?$/;

function sentTraceparent({ headers: { traceparent } }: FastifyRequest): string | undefined {
  const [, context] = TRACEPARENT.exec(typeof traceparent === "string" ? traceparent.trim() : "") ?? [];
  return context && `00${context}`;
}

/** Returns the trace that upstreams may continue: that of the request's own span, or the client's if there is no span. */
export function traceparentOf(request: FastifyRequest): string | undefined {
  return request.observer?.traceparent ?? sentTraceparent(request);
}

const MODEL_CHARACTERS_MAX = 200;
const CLIENT_ID_CHARACTERS_MAX = 128;
const MESSAGE_CHARACTERS_MAX = 500;

/** Pattern of the route for paths that no other route has. */
export const UNKNOWN_PATH = "/*";

/** Begins to observe a request of the route `url`. Returns the function to call when the response is closed, which logs it. */
export function beginAccess(sources: AccessSources, reply: FastifyReply, url: string | undefined): () => void {
  const { request } = reply;
  const startedMs = sources.clock();
  const route = request.is404 || url === undefined || url === UNKNOWN_PATH ? null : url;
  if (sources.observe !== undefined) {
    const { tracestate } = request.headers;
    request.observer = sources.observe({
      method: request.method,
      route,
      startedMs,
      traceparent: sentTraceparent(request),
      tracestate: typeof tracestate === "string" ? tracestate : undefined,
    });
  }
  return () => recordAccess(sources, request, entryOf(sources, reply, { route, startedMs }));
}

function recordAccess(sources: AccessSources, request: FastifyRequest, entry: AccessEntry): void {
  const { failure, caller, settlement, observer } = request;
  const record = (report: CompletionReport | undefined) => {
    const traceId = observer?.traceId;
    const fields = report === undefined ? { traceId } : loggedFields(report, request.modelName, traceId);
    sources.accessLog.record(entry, fields);
    observer?.ended(entry, report, caller?.principal?.aliases ?? null);
  };
  if (settlement !== null) void settlement.then(record);
  else record(undefined);
  const error = failure?.error;
  if (error === undefined || settlement !== null || error.status >= 500 || entry.status < 400) return;
  if (caller?.principal === undefined) return;
  sources.refusals.note({
    organizationId: caller.principal.organizationId,
    tokenId: caller.principal.tokenId,
    requestId: entry.requestId,
    endpoint: `${entry.method} ${entry.route}`,
    model: entry.model,
    status: error.status,
    code: error.code,
    message: printable(error.loggedMessage, MESSAGE_CHARACTERS_MAX),
    durationMs: entry.durationMs,
  });
}

/** Returns the fields of a completion in the access log. Those that do not apply are undefined, which JSON omits. */
function loggedFields(
  { model, route, calls, startedMs, firstTokenAtMs, charge }: CompletionReport,
  modelName: string | null,
  traceId: string | undefined,
): object {
  const tokens = charge === null ? undefined : tokenTotals(charge.tokens);
  return {
    // The model that an alias names.
    usedModel: model === modelName ? undefined : model,
    upstream: calls.length === 0 ? undefined : upstreamOf(route),
    promptTokens: tokens?.input,
    completionTokens: tokens?.output,
    credits: charge === null ? undefined : formatCredits(charge.amount),
    timeToFirstTokenMs: firstTokenAtMs === null ? undefined : firstTokenAtMs - startedMs,
    traceId,
  };
}

function entryOf(
  { clock, running }: AccessSources,
  { request, raw }: FastifyReply,
  { route, startedMs }: Pick<BegunRequest, "route" | "startedMs">,
): AccessEntry {
  const { modelName } = request;
  const { "x-request-id": clientRequestId } = request.headers;
  const hasClientId = typeof clientRequestId === "string" && clientRequestId !== "";
  const { status, code } = resultOf(request, raw, running.isCut);
  const { organizationId, tokenId } = callerNamesOf(request.caller);
  return {
    requestId: request.id,
    clientRequestId: hasClientId ? printable(clientRequestId, CLIENT_ID_CHARACTERS_MAX) : undefined,
    method: request.method,
    route,
    status,
    code,
    organizationId,
    tokenId,
    model: modelName === null ? null : printable(modelName, MODEL_CHARACTERS_MAX),
    durationMs: clock() - startedMs,
  };
}

function resultOf({ failure }: FastifyRequest, raw: FastifyReply["raw"], isCut: boolean) {
  const { writableFinished, headersSent, statusCode } = raw;
  const code = failure?.error.code;
  if (writableFinished || failure?.isReset) return { status: statusCode, code: code ?? null };
  if (!isCut) return { status: 499, code: "client_disconnected" };
  return { status: headersSent ? statusCode : 503, code: code ?? "overloaded" };
}

/** Returns the model of a body before its validation, null if it has none. */
export function modelIn(body: unknown): string | null {
  const model = typeof body === "object" && body !== null && "model" in body ? body.model : null;
  return typeof model === "string" ? model.slice(0, MODEL_CHARACTERS_MAX + 1) : null;
}
