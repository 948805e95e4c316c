import { randomUUID } from "node:crypto";
import type { ResourceMetrics } from "@opentelemetry/sdk-metrics";
import type { Config } from "../../config.ts";
import { loadOptional } from "../parts.ts";

const EXPORT_TIMEOUT_MS_MAX = 30_000;
const INSTANCE_ID = randomUUID();

export interface SdkOptions {
  version: string;
  onFailure(failure: unknown): void;
}

/** Creates the meter, and the function that reads its metrics as Prometheus does; undefined if nothing reads or exports them. */
export async function createMeters(config: Config, options: SdkOptions) {
  const { metrics, telemetry } = config;
  const isServed = metrics.port !== undefined || metrics.token !== undefined;
  const isExported = telemetry.endpoint !== undefined && telemetry.metrics === "otlp";
  if (!isServed && !isExported) return undefined;
  const [resource, sdk, scraped, exporter] = await Promise.all([
    resourceOf(config, options),
    load("@opentelemetry/sdk-metrics", () => import("@opentelemetry/sdk-metrics")),
    isServed ? createScrapeReader() : undefined,
    isExported ? createMetricExporter(telemetry) : undefined,
  ]);
  const exportIntervalMillis = telemetry.metricsSeconds * 1000;
  const exportTimeoutMillis = Math.min(exportIntervalMillis, EXPORT_TIMEOUT_MS_MAX);
  const pushed =
    exporter && new sdk.PeriodicExportingMetricReader({ exporter, exportIntervalMillis, exportTimeoutMillis });
  const readers = [scraped?.reader, pushed].filter((reader) => reader !== undefined);
  const provider = new sdk.MeterProvider({ resource, readers });
  return {
    meter: provider.getMeter("tollgate", options.version),
    read: scraped?.read,
    stop: () => provider.shutdown(),
  };
}

async function createMetricExporter({ endpoint, headers }: Config["telemetry"]) {
  const name = "@opentelemetry/exporter-metrics-otlp-proto";
  const { OTLPMetricExporter } = await load(name, () => import("@opentelemetry/exporter-metrics-otlp-proto"));
  return new OTLPMetricExporter({ url: urlOf(endpoint, "v1/metrics"), headers });
}

/** The exporter's own server knows no token, so it is not started. */
async function createScrapeReader() {
  const name = "@opentelemetry/exporter-prometheus";
  const { PrometheusExporter, PrometheusSerializer } = await load(
    name,
    () => import("@opentelemetry/exporter-prometheus"),
  );
  const reader = new PrometheusExporter({ preventServerStart: true });
  const serializer = new PrometheusSerializer("", false, undefined, false, true);
  return { reader, read: async () => serializer.serialize(withUnits((await reader.collect()).resourceMetrics)) };
}

const UNIT_SUFFIXES: Record<string, string> = { s: "_seconds", By: "_bytes", "1": "_ratio" };

/** Adds units to the names of metrics, which the serializer does not: so they are the same as those that arrive by OTLP. */
function withUnits({ scopeMetrics, ...rest }: ResourceMetrics): ResourceMetrics {
  const named = (metric: (typeof scopeMetrics)[number]["metrics"][number]) => {
    const { name, unit } = metric.descriptor;
    return { ...metric, descriptor: { ...metric.descriptor, name: `${name}${UNIT_SUFFIXES[unit] ?? ""}`, unit: "" } };
  };
  return { ...rest, scopeMetrics: scopeMetrics.map((scope) => ({ ...scope, metrics: scope.metrics.map(named) })) };
}

/** Creates the tracer; undefined if traces are not exported. */
export async function createTracers(config: Config, options: SdkOptions) {
  const { endpoint, headers, traces } = config.telemetry;
  if (endpoint === undefined || traces === "none") return undefined;
  const [resource, api, sdk, { OTLPTraceExporter }] = await Promise.all([
    resourceOf(config, options),
    load("@opentelemetry/api", () => import("@opentelemetry/api")),
    load("@opentelemetry/sdk-trace", () => import("@opentelemetry/sdk-trace")),
    load("@opentelemetry/exporter-trace-otlp-proto", () => import("@opentelemetry/exporter-trace-otlp-proto")),
  ]);
  const exporter = new OTLPTraceExporter({ url: urlOf(endpoint, "v1/traces"), headers });
  const spanProcessors = [new sdk.BatchSpanProcessor({ exporter })];
  const provider = new sdk.TracerProvider({ resource, sampler: samplerOf(sdk, config.telemetry), spanProcessors });
  return { api, tracer: provider.getTracer("tollgate", options.version), stop: () => provider.shutdown() };
}

function samplerOf(sdk: typeof import("@opentelemetry/sdk-trace"), { sampler, sampleRatio }: Config["telemetry"]) {
  const roots = {
    always_on: () => new sdk.AlwaysOnSampler(),
    always_off: () => new sdk.AlwaysOffSampler(),
    traceidratio: () => new sdk.TraceIdRatioBasedSampler(sampleRatio),
  };
  const [, isParentBased, root = ""] = /^(parentbased_)?(\w+)$/.exec(sampler) ?? [];
  const made = roots[root as keyof typeof roots]();
  return isParentBased === undefined ? made : new sdk.ParentBasedSampler({ root: made });
}

/** Also reports the failures of exports. */
async function resourceOf({ telemetry }: Config, { version, onFailure }: SdkOptions) {
  const [{ resourceFromAttributes }, { diag, DiagLogLevel }] = await Promise.all([
    load("@opentelemetry/resources", () => import("@opentelemetry/resources")),
    load("@opentelemetry/api", () => import("@opentelemetry/api")),
  ]);
  // OpenTelemetry reports an error as JSON with its stack.
  const report = (text: string) => onFailure(/"message":"((?:[^"\\]|\\.)*)"/.exec(text)?.[1] ?? text);
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

function urlOf(endpoint: string | undefined, path: string): string {
  return `${endpoint?.replace(/\/+$/, "")}/${path}`;
}

function load<Module>(name: string, importIt: () => Promise<Module>): Promise<Module> {
  return loadOptional("metrics and telemetry need", name, importIt);
}
