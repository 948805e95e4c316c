import { creditsFromMicro } from "../../credits/amount.ts";
import { TOKEN_CLASSES, type TokenClass, tokenTotals } from "../../credits/price.ts";
import type { CompletionReport } from "../../gateway/report.ts";
import { type Instruments, LabelSets } from "../../telemetry/instruments.ts";
import type { AccessEntry } from "../../telemetry/logger.ts";
import type { LabelsOf } from "../../telemetry/metrics.ts";

/** Label of a model that is not in the catalog. */
const OTHER = "other";
/** Label sets of one metric that are remembered. */
const LABEL_SETS_MAX = 1_000;

/** The operation of each route that answers with a model. */
export const OPERATIONS: Readonly<Record<string, CompletionReport["operation"]>> = {
  "/v1/chat/completions": "chat",
  "/v1/responses": "chat",
  "/v1/messages": "chat",
  "/v1/embeddings": "embeddings",
};
const METHODS = new Set(["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"]);
const CLASS_LABELS: Record<TokenClass, string> = {
  input: "input",
  cachedInput: "cached_input",
  cacheWrite: "cache_write",
  output: "output",
  reasoning: "reasoning",
};

type RequestLabels = LabelsOf<"http.server.request.duration">;
type ModelLabels = LabelsOf<"gen_ai.server.time_to_first_token">;
type CallLabels = LabelsOf<"tollgate.upstream.call.duration">;

/** The label sets of a model's metrics on one provider. */
interface ModelSets {
  model: ModelLabels;
  input: LabelsOf<"gen_ai.client.token.usage">;
  output: LabelsOf<"gen_ai.client.token.usage">;
  classes: Record<TokenClass, LabelsOf<"tollgate.tokens">>;
  charged: LabelsOf<"tollgate.credits.charged">;
  chargedAtKnownCost: LabelsOf<"tollgate.credits.charged">;
}

export interface RequestMetricsOptions {
  /** Returns the id of a model in the catalog; undefined if there is none. */
  modelId(name: string): string | undefined;
  /** Credits per dollar. */
  perDollar: number;
}

/** Records the metrics of requests that have ended. */
export class RequestMetrics {
  readonly #instruments: Instruments;
  readonly #options: RequestMetricsOptions;
  readonly #requests = new LabelSets<RequestLabels>(LABEL_SETS_MAX, overflow({}));
  readonly #durations = new LabelSets<LabelsOf<"gen_ai.server.request.duration">>(LABEL_SETS_MAX, overflow({}));
  readonly #models = new LabelSets<ModelSets>(LABEL_SETS_MAX, setsOf(overflow({})));
  readonly #calls = new LabelSets<CallLabels>(LABEL_SETS_MAX, overflow({}));

  constructor(instruments: Instruments, options: RequestMetricsOptions) {
    this.#instruments = instruments;
    this.#options = options;
  }

  /** Records a request; `report` is undefined for one that held no credits. */
  record(entry: AccessEntry, report: CompletionReport | undefined): void {
    const { method, route, status, code, durationMs } = entry;
    const error = code ?? (status >= 400 ? String(status) : undefined);
    const labels = this.#requests.of(`${method} ${route} ${status} ${error}`, () => ({
      "http.request.method": METHODS.has(method) ? method : "_OTHER",
      ...(route !== null && { "http.route": route }),
      "http.response.status_code": status,
      ...(error !== undefined && { "error.type": error }),
    }));
    this.#instruments.record("http.server.request.duration", durationMs / 1000, labels);
    const operation = OPERATIONS[route ?? ""];
    if (operation === undefined) return;
    const model = report?.model ?? this.#options.modelId(entry.model ?? "") ?? OTHER;
    const provider = report?.route.providerId;
    const failure = error ?? report?.code ?? undefined;
    const durations = this.#durations.of(`${operation} ${provider} ${failure} ${model}`, () => ({
      ...modelLabels(operation, provider, model),
      ...(failure !== undefined && { "error.type": failure }),
    }));
    this.#instruments.record("gen_ai.server.request.duration", durationMs / 1000, durations);
    if (report !== undefined) this.#recordCompletion(report);
  }

  #recordCompletion({
    operation,
    model,
    route,
    calls,
    startedMs,
    firstTokenAtMs,
    charge,
    providerCost,
  }: CompletionReport) {
    const instruments = this.#instruments;
    const { providerId } = route;
    const sets = this.#models.of(`${operation} ${providerId} ${model}`, () =>
      setsOf(modelLabels(operation, providerId, model)),
    );
    for (const { route: called, outcome, durationMs } of calls) {
      const provider = called.providerId;
      const labels = this.#calls.of(`${outcome} ${provider}`, () => ({
        "gen_ai.provider.name": provider,
        "tollgate.call.outcome": outcome,
      }));
      instruments.record("tollgate.upstream.call.duration", durationMs / 1000, labels);
    }
    if (firstTokenAtMs !== null) {
      instruments.record("gen_ai.server.time_to_first_token", (firstTokenAtMs - startedMs) / 1000, sets.model);
    }
    if (charge !== null) this.#recordCharge(charge, providerCost, sets);
  }

  #recordCharge(
    { tokens, amount }: NonNullable<CompletionReport["charge"]>,
    providerCost: string | null,
    sets: ModelSets,
  ): void {
    const instruments = this.#instruments;
    const credits = creditsFromMicro(amount);
    const { input, output } = tokenTotals(tokens);
    instruments.record("gen_ai.client.token.usage", input, sets.input);
    instruments.record("gen_ai.client.token.usage", output, sets.output);
    for (const tokenClass of TOKEN_CLASSES) {
      if (tokens[tokenClass] > 0) instruments.add("tollgate.tokens", tokens[tokenClass], sets.classes[tokenClass]);
    }
    instruments.add(
      "tollgate.credits.charged",
      credits,
      providerCost === null ? sets.charged : sets.chargedAtKnownCost,
    );
    if (providerCost === null) return;
    const cost = Number(providerCost) * this.#options.perDollar;
    instruments.add("tollgate.credits.cost", cost, sets.model);
    instruments.add("tollgate.credits.margin", credits - cost, sets.model);
  }
}

function modelLabels(operation: string, provider: string | undefined, model: string): ModelLabels {
  return {
    "gen_ai.operation.name": operation,
    ...(provider !== undefined && { "gen_ai.provider.name": provider }),
    "gen_ai.request.model": model,
  };
}

function setsOf(model: ModelLabels): ModelSets {
  const ofClass = (tokenClass: TokenClass) => ({ ...model, "tollgate.token.class": CLASS_LABELS[tokenClass] });
  return {
    model,
    input: { ...model, "gen_ai.token.type": "input" },
    output: { ...model, "gen_ai.token.type": "output" },
    classes: {
      input: ofClass("input"),
      cachedInput: ofClass("cachedInput"),
      cacheWrite: ofClass("cacheWrite"),
      output: ofClass("output"),
      reasoning: ofClass("reasoning"),
    },
    charged: { ...model, "tollgate.cost.known": "false" },
    chargedAtKnownCost: { ...model, "tollgate.cost.known": "true" },
  };
}

/** Returns the labels of the events that have none of their own any more. */
function overflow<Labels extends object>(labels: Labels): Labels {
  return { ...labels, "otel.metric.overflow": "true" };
}

/** The span of a request. */
export interface RequestSpan {
  readonly traceId: string;
  /** Ends the span. `report` is undefined for a request that held no credits. */
  end(entry: AccessEntry, report: CompletionReport | undefined): void;
}
