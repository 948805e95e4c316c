import type { Attributes, Context, Span, Tracer } from "@opentelemetry/api";
import { creditsFromMicro } from "../../credits/amount.ts";
import { tokenTotals } from "../../credits/price.ts";
import type { CompletionReport } from "../../gateway/gateway.ts";
import type { BegunRequest, RequestObserver } from "../../http/access.ts";
import type { AccessEntry } from "../../telemetry/logger.ts";
import { type ModelNames, operationOf } from "./requests.ts";

type OpenTelemetryApi = typeof import("@opentelemetry/api");

export interface SpanOptions extends ModelNames {
  api: OpenTelemetryApi;
  tracer: Tracer;
}

/** Begins the span of a request of the API, in the trace that its client names. Returns undefined for other routes. */
export function beginSpan(options: SpanOptions, begun: BegunRequest): RequestObserver | undefined {
  const { api, tracer } = options;
  const { method, route, startedMs } = begun;
  if (route === null || !route.startsWith("/v1/")) return undefined;
  const parent = parentOf(api, begun);
  const kind = api.SpanKind.SERVER;
  const span = tracer.startSpan(`${method} ${route}`, { kind, startTime: new Date(startedMs) }, parent);
  const { traceId, spanId, traceFlags } = span.spanContext();
  const traceparent = `00-${traceId}-${spanId}-${traceFlags.toString(16).padStart(2, "0")}`;
  if (!span.isRecording()) return { traceId: undefined, traceparent, ended: () => {} };
  return {
    traceId,
    traceparent,
    ended: (entry, report, aliases) => {
      const model = report?.model ?? options.modelId(entry.model ?? "", aliases);
      describeSpan(options, span, { entry, report, model });
      if (report !== undefined) addParts(options, api.trace.setSpan(parent, span), report);
      span.end(new Date(startedMs + entry.durationMs));
    },
  };
}

/** Returns the context that the client sent; an empty one if there is none. */
function parentOf(api: OpenTelemetryApi, { traceparent, tracestate }: BegunRequest): Context {
  const [, traceId, spanId, flags] = traceparent?.split("-") ?? [];
  if (traceId === undefined || spanId === undefined || flags === undefined) return api.ROOT_CONTEXT;
  return api.trace.setSpanContext(api.ROOT_CONTEXT, {
    traceId,
    spanId,
    traceFlags: Number.parseInt(flags, 16) & api.TraceFlags.SAMPLED,
    isRemote: true,
    ...(tracestate !== undefined && { traceState: api.createTraceState(tracestate) }),
  });
}

function describeSpan(
  { api }: SpanOptions,
  span: Span,
  { entry, report, model }: { entry: AccessEntry; report: CompletionReport | undefined; model: string | undefined },
): void {
  const { requestId, method, route, status } = entry;
  const error = entry.code ?? report?.code ?? (status >= 400 ? String(status) : null);
  span.setAttributes({
    "http.request.method": method,
    "http.route": route ?? "",
    "http.response.status_code": status,
    "tollgate.request.id": requestId,
    ...(error !== null && { "error.type": error }),
  });
  // A request that the service refuses is no error of the service.
  if (error !== null && (status < 400 || status >= 500)) span.setStatus({ code: api.SpanStatusCode.ERROR });
  const operation = operationOf(route, report);
  if (operation !== undefined && model !== undefined) {
    span.updateName(`${operation} ${model}`);
    span.setAttributes({ "gen_ai.operation.name": operation, "gen_ai.request.model": model });
  }
  if (report !== undefined) span.setAttributes(answerAttributes(report));
}

function answerAttributes({ route, finishReasons, charge }: CompletionReport): Attributes {
  return {
    "gen_ai.provider.name": route.providerId,
    "gen_ai.response.model": route.model,
    ...(finishReasons.length > 0 && { "gen_ai.response.finish_reasons": finishReasons }),
    ...(charge !== null && {
      "gen_ai.usage.input_tokens": tokenTotals(charge.tokens).input,
      "gen_ai.usage.output_tokens": tokenTotals(charge.tokens).output,
      "gen_ai.usage.cache_read.input_tokens": charge.tokens.cachedInput,
      "gen_ai.usage.cache_creation.input_tokens": charge.tokens.cacheWrite,
      "tollgate.credits.charged": creditsFromMicro(charge.amount),
    }),
  };
}

function addParts({ api, tracer }: SpanOptions, parent: Context, report: CompletionReport): void {
  const { operation, calls, startedMs, admittedMs, deliveredMs, settledMs } = report;
  tracer.startSpan("admission", { startTime: new Date(startedMs) }, parent).end(new Date(admittedMs));
  for (const [index, call] of calls.entries()) {
    const { providerId: provider, model } = call.route;
    const isAnswered = call.outcome === "answered";
    const attributes = {
      "gen_ai.operation.name": operation,
      "gen_ai.provider.name": provider,
      "gen_ai.request.model": model,
      "tollgate.call.number": index + 1,
      "tollgate.call.outcome": call.outcome,
      ...(!isAnswered && { "error.type": call.outcome }),
    };
    const kind = api.SpanKind.CLIENT;
    const span = tracer.startSpan(
      `${operation} ${model}`,
      { kind, startTime: new Date(call.startedMs), attributes },
      parent,
    );
    if (!isAnswered) span.setStatus({ code: api.SpanStatusCode.ERROR });
    // The call that answered lasts until its answer has been read.
    span.end(new Date(isAnswered ? deliveredMs : call.startedMs + call.durationMs));
  }
  tracer.startSpan("settlement", { startTime: new Date(deliveredMs) }, parent).end(new Date(settledMs));
}
