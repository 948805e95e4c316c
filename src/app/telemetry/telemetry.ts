import { randomUUID } from "node:crypto";
import { setTimeout as sleep } from "node:timers/promises";
import type { Sampler } from "@opentelemetry/sdk-trace";
import type { Config } from "../../config.ts";
import { creditsFromMicro } from "../../credits/amount.ts";
import type { BegunRequest, RequestObserver } from "../../http/access.ts";
import type { LedgerObserver } from "../../ledger/ledger.ts";
import { Instruments } from "../../telemetry/instruments.ts";
import type { Log } from "../../telemetry/logger.ts";
import { METRICS } from "../../telemetry/metrics.ts";
import { loadOptional } from "../optional-package.ts";
import { type GaugeSources, observeService, ProcessGauges } from "./gauges.ts";
import { serveOnOwnPort, toPrometheusNames } from "./prometheus.ts";
import { RequestMetrics, type RequestSpan } from "./requests.ts";
import { beginSpan } from "./spans.ts";

/** Time for the last exports of a process that stops. A collector that cannot be reached is tried for longer. */
const STOP_MS = 2_000;
const INSTANCE_ID = randomUUID();

export interface TelemetryOptions {
  version: string;
  /** Returns the id of a model in the catalog; undefined if there is none. */
  modelId(name: string): string | undefined;
  log: Log;
}

/** Metrics and traces of a service, as far as they are configured. */
export interface Telemetry {
  observeRequest: ((begun: BegunRequest) => RequestObserver) | undefined;
  ledger: LedgerObserver | undefined;
  /** Returns all metrics in Prometheus' text format; undefined where nothing serves them. */
  read: (() => Promise<string>) | undefined;
  /** Shows the state of a service in the metrics, and serves them on a port of their own if there is one. */
  start(sources: GaugeSources): Promise<void>;
  /** Ends showing the state of the service, before its parts are closed. */
  detach(): void;
  /** Exports what is left, and ends. */
  stop(): Promise<void>;
}

/** Creates the telemetry of a configuration. Rejects with OperatorError if a package that it needs is not installed. */
export async function createTelemetry(config: Config, options: TelemetryOptions): Promise<Telemetry> {
  const { metrics, telemetry } = config;
  const isServed = metrics.port !== undefined || metrics.token !== undefined;
  const isExported = telemetry.endpoint !== undefined;
  const [meters, tracers] = await Promise.all([
    isServed || (isExported && telemetry.metrics === "otlp") ? createMeters(config, options, isServed) : undefined,
    isExported && telemetry.traces === "otlp" ? createTracers(config, options) : undefined,
  ]);
  const instruments = meters && new Instruments(meters.meter);
  const perDollar = Number(config.credits.perDollar);
  const requests = instruments && new RequestMetrics(instruments, { ...options, perDollar });
  const spans = tracers && { ...options, ...tracers };
  const gauges = new ProcessGauges();
  const observed: (() => void)[] = [];
  let own: { stop(): Promise<void> } | undefined;
  return {
    observeRequest: (requests ?? spans) && ((begun) => observerOf(requests, spans && beginSpan(spans, begun))),
    ledger: instruments && ledgerMetrics(instruments),
    read: meters?.read,
    async start(sources) {
      if (instruments === undefined) return;
      gauges.start();
      observed.push(instruments.observe((observe) => gauges.observe(observe)));
      observed.push(instruments.observe((observe) => observeService(sources, observe)));
      if (meters?.read !== undefined && metrics.port !== undefined) own = await serveOnOwnPort(metrics, meters.read);
    },
    detach() {
      for (const end of observed.splice(0)) end();
    },
    async stop() {
      gauges.stop();
      const stopped = Promise.all([own?.stop(), meters?.stop(), tracers?.stop()]);
      const late = await Promise.race([stopped, sleep(STOP_MS, "late" as const, { ref: false })]);
      if (late === "late") logFailure(options.log, new Error(`the collector did not take them within ${STOP_MS} ms`));
    },
  };
}

function observerOf(metrics: RequestMetrics | undefined, span: RequestSpan | undefined): RequestObserver {
  return {
    traceId: span?.traceId,
    ended(entry, report) {
      metrics?.record(entry, report);
      span?.end(entry, report);
    },
  };
}

function ledgerMetrics(instruments: Instruments): LedgerObserver {
  const labels = (queue: string) => ({
    size: { "tollgate.commit.queue": queue },
    booked: { "tollgate.commit.queue": queue, "tollgate.commit.outcome": "booked" },
    failed: { "tollgate.commit.queue": queue, "tollgate.commit.outcome": "failed" },
  });
  const sets = { holds: labels("holds"), durable: labels("durable"), replays: labels("replays") };
  // An alert needs the 0 before the first one.
  instruments.add("tollgate.credits.shortfall", 0);
  return {
    sending(queue, size) {
      const { [queue]: set } = sets;
      const startedMs = performance.now();
      instruments.record("tollgate.commit.batch.size", size, set.size);
      return (isBooked) => {
        const seconds = (performance.now() - startedMs) / 1000;
        instruments.record("tollgate.commit.duration", seconds, isBooked ? set.booked : set.failed);
      };
    },
    shortfall: (amount) => instruments.add("tollgate.credits.shortfall", creditsFromMicro(amount)),
  };
}

async function createMeters(config: Config, options: TelemetryOptions, isServed: boolean) {
  const { telemetry } = config;
  const [resource, sdk] = await Promise.all([
    resourceOf(config, options),
    load("@opentelemetry/sdk-metrics", () => import("@opentelemetry/sdk-metrics")),
  ]);
  /** Collects when it is asked. */
  class ScrapeReader extends sdk.MetricReader {
    protected override async onForceFlush(): Promise<void> {}
    protected override async onShutdown(): Promise<void> {}
  }
  const scraped = isServed ? new ScrapeReader() : undefined;
  const exported =
    telemetry.endpoint !== undefined && telemetry.metrics === "otlp"
      ? await createMetricExporter(telemetry)
      : undefined;
  const exportIntervalMillis = telemetry.metricsSeconds * 1000;
  const exportTimeoutMillis = Math.min(exportIntervalMillis, 30_000);
  const intervals = { exportIntervalMillis, exportTimeoutMillis };
  const pushed = exported && new sdk.PeriodicExportingMetricReader({ exporter: exported, ...intervals });
  const readers = [scraped, pushed].filter((reader) => reader !== undefined);
  const provider = new sdk.MeterProvider({ resource, readers });
  return {
    meter: provider.getMeter("tollgate", options.version),
    read: scraped && (await serializerOf(() => scraped.collect())),
    stop: () => provider.shutdown().catch((error: unknown) => logFailure(options.log, error)),
  };
}

async function createMetricExporter({ endpoint, headers }: Config["telemetry"]) {
  const name = "@opentelemetry/exporter-metrics-otlp-proto";
  const { OTLPMetricExporter } = await load(name, () => import("@opentelemetry/exporter-metrics-otlp-proto"));
  return new OTLPMetricExporter({ url: urlOf(endpoint, "v1/metrics"), headers });
}

async function serializerOf(
  collect: () => Promise<{ resourceMetrics: Parameters<typeof toPrometheusNames>[0] }>,
): Promise<() => Promise<string>> {
  const name = "@opentelemetry/exporter-prometheus";
  const { PrometheusSerializer } = await load(name, () => import("@opentelemetry/exporter-prometheus"));
  const serializer = new PrometheusSerializer("", false, undefined, false, true);
  return async () => serializer.serialize(toPrometheusNames((await collect()).resourceMetrics, METRICS));
}

async function createTracers(config: Config, options: TelemetryOptions) {
  const { endpoint, headers } = config.telemetry;
  const [resource, api, sdk, { OTLPTraceExporter }] = await Promise.all([
    resourceOf(config, options),
    load("@opentelemetry/api", () => import("@opentelemetry/api")),
    load("@opentelemetry/sdk-trace", () => import("@opentelemetry/sdk-trace")),
    load("@opentelemetry/exporter-trace-otlp-proto", () => import("@opentelemetry/exporter-trace-otlp-proto")),
  ]);
  const exporter = new OTLPTraceExporter({ url: urlOf(endpoint, "v1/traces"), headers });
  const spanProcessors = [new sdk.BatchSpanProcessor({ exporter })];
  const provider = new sdk.TracerProvider({ resource, sampler: samplerOf(sdk, config.telemetry), spanProcessors });
  return {
    api,
    tracer: provider.getTracer("tollgate", options.version),
    stop: () => provider.shutdown().catch((error: unknown) => logFailure(options.log, error)),
  };
}

function samplerOf(
  sdk: typeof import("@opentelemetry/sdk-trace"),
  { sampler, sampleRatio }: Config["telemetry"],
): Sampler {
  const roots = {
    always_on: () => new sdk.AlwaysOnSampler(),
    always_off: () => new sdk.AlwaysOffSampler(),
    traceidratio: () => new sdk.TraceIdRatioBasedSampler(sampleRatio),
  };
  const [, isParentBased, root = ""] = /^(parentbased_)?(\w+)$/.exec(sampler) ?? [];
  const made = roots[root as keyof typeof roots]();
  return isParentBased === undefined ? made : new sdk.ParentBasedSampler({ root: made });
}

/** Also shows the failures of exports in the log. */
async function resourceOf({ telemetry }: Config, { version, log }: TelemetryOptions) {
  const [{ resourceFromAttributes }, { diag, DiagLogLevel }] = await Promise.all([
    load("@opentelemetry/resources", () => import("@opentelemetry/resources")),
    load("@opentelemetry/api", () => import("@opentelemetry/api")),
  ]);
  const report = (message: string) => logFailure(log, messageIn(message));
  const silent = () => {};
  const logger = { error: report, warn: report, info: silent, debug: silent, verbose: silent };
  diag.setLogger(logger, { logLevel: DiagLogLevel.WARN, suppressOverrideMessage: true });
  return resourceFromAttributes({
    // A collector would otherwise add the counters of several processes to one series, which jumps between them.
    "service.instance.id": INSTANCE_ID,
    ...telemetry.resourceAttributes,
    "service.name": telemetry.serviceName,
    "service.version": version,
  });
}

/** Returns the message of an error that OpenTelemetry reports as JSON with its stack. */
function messageIn(text: string): string {
  return /"message":"((?:[^"\\]|\\.)*)"/.exec(text)?.[1] ?? text;
}

function logFailure(log: Log, failure: unknown): void {
  log.warn({ err: failure }, "telemetry could not be exported");
}

function urlOf(endpoint: string | undefined, path: string): string {
  return `${endpoint?.replace(/\/+$/, "")}/${path}`;
}

function load<Module>(name: string, importIt: () => Promise<Module>): Promise<Module> {
  return loadOptional("metrics and telemetry need", name, importIt);
}
