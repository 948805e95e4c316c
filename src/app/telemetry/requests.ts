import type { Attributes, Meter } from "@opentelemetry/api";
import { PRICE_CLASSES, TOKEN_CLASSES } from "../../api/price-classes.ts";
import type { Principal } from "../../api/principal.ts";
import { TASKS } from "../../api/tasks.ts";
import { creditsFromMicro } from "../../credits/amount.ts";
import { tokenTotals } from "../../credits/price.ts";
import type { CompletionReport } from "../../gateway/gateway.ts";
import type { RequestObserver } from "../../http/access.ts";

const SECONDS = [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300];
const TOKENS = [1, 4, 16, 64, 256, 1024, 4096, 16_384, 65_536, 262_144, 1_048_576];
const OTHER = "other";

/** The operation of requests that held no credits, by their route; the others report it. */
const OPERATIONS: Readonly<Record<string, CompletionReport["operation"]>> = {
  "/v1/chat/completions": "chat",
  "/v1/completions": "chat",
  "/v1/responses": "chat",
  "/v1/messages": "chat",
  ...Object.fromEntries(Object.values(TASKS).map(({ path, operation }) => [path, operation])),
};
/** Returns the operation of a request; undefined if no model answers it. */
export function operationOf(route: string | null, report: CompletionReport | undefined) {
  return report?.operation ?? OPERATIONS[route ?? ""];
}

const METHODS = new Set(["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"]);

export interface ModelNames {
  /** Returns the id of a model in the catalog, also by an alias of the caller's; undefined if there is none. */
  modelId(name: string, aliases: Principal["aliases"]): string | undefined;
}

/** Returns the function that records a request in metrics. No label has an id, or text that a caller or an upstream chose. */
export function createRequestMetrics(
  meter: Meter,
  { modelId, perDollar }: ModelNames & { perDollar: number },
): RequestObserver["ended"] {
  const instruments = createInstruments(meter);
  const recordAnswer = (report: CompletionReport, model: Attributes) => {
    const { calls, startedMs, firstTokenAtMs, charge, providerCost } = report;
    for (const { route, outcome, durationMs } of calls) {
      const labels = { "gen_ai.provider.name": route.providerId, "tollgate.call.outcome": outcome };
      instruments.callDuration.record(durationMs / 1000, labels);
    }
    if (firstTokenAtMs !== null) instruments.timeToFirstToken.record((firstTokenAtMs - startedMs) / 1000, model);
    if (charge === null) return;
    const { input, output } = tokenTotals(charge.tokens);
    instruments.tokenUsage.record(input, { ...model, "gen_ai.token.type": "input" });
    instruments.tokenUsage.record(output, { ...model, "gen_ai.token.type": "output" });
    for (const tokenClass of TOKEN_CLASSES) {
      const labels = { ...model, "tollgate.token.class": PRICE_CLASSES[tokenClass].name };
      if (charge.tokens[tokenClass] > 0) instruments.tokens.add(charge.tokens[tokenClass], labels);
    }
    const isCostKnown = providerCost !== null;
    const charged = creditsFromMicro(charge.amount);
    instruments.charged.add(charged, { ...model, "tollgate.cost.known": String(isCostKnown) });
    if (isCostKnown) instruments.cost.add(Number(providerCost) * perDollar, model);
  };
  return (entry, report, aliases) => {
    const { method, route, status, code, durationMs } = entry;
    const error = code ?? (status >= 400 ? String(status) : undefined);
    instruments.requestDuration.record(durationMs / 1000, {
      "http.request.method": METHODS.has(method) ? method : "_OTHER",
      ...(route !== null && { "http.route": route }),
      "http.response.status_code": status,
      ...(error !== undefined && { "error.type": error }),
    });
    const operation = operationOf(route, report);
    if (operation === undefined) return;
    const model: Attributes = {
      "gen_ai.operation.name": operation,
      ...(report && { "gen_ai.provider.name": report.route.providerId }),
      "gen_ai.request.model": report?.model ?? modelId(entry.model ?? "", aliases) ?? OTHER,
    };
    const failure = error ?? report?.code ?? undefined;
    const labels = failure === undefined ? model : { ...model, "error.type": failure };
    instruments.answerDuration.record(durationMs / 1000, labels);
    if (report !== undefined) recordAnswer(report, model);
  };
}

function createInstruments(meter: Meter) {
  const duration = (name: string, description: string) =>
    meter.createHistogram(name, { description, unit: "s", advice: { explicitBucketBoundaries: SECONDS } });
  const counter = (name: string, description: string, unit: string) => meter.createCounter(name, { description, unit });
  return {
    requestDuration: duration("http.server.request.duration", "Duration of HTTP requests, also of refused ones."),
    answerDuration: duration("gen_ai.server.request.duration", "Duration of completions and embeddings."),
    timeToFirstToken: duration("gen_ai.server.time_to_first_token", "Time until the first piece of an answer."),
    callDuration: duration("tollgate.upstream.call.duration", "Time until an upstream began to answer, or failed."),
    tokenUsage: meter.createHistogram("gen_ai.client.token.usage", {
      description: "Charged tokens of each request, of the types input and output.",
      unit: "{token}",
      advice: { explicitBucketBoundaries: TOKENS },
    }),
    tokens: counter("tollgate.tokens", "Charged tokens by the class that has a price of its own.", "{token}"),
    charged: counter("tollgate.credits.charged", "Charged credits.", "{credit}"),
    cost: counter(
      "tollgate.credits.cost",
      "Costs that providers reported, converted by credits.perDollar.",
      "{credit}",
    ),
  };
}
