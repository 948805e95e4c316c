import { Type } from "typebox";
import { Count, Group, Headers, IntegerIn, NumberIn, OptionalKeys } from "./upstream-schema.ts";

const TOKEN_CHARACTERS_LEAST = 16;

/** The endpoint that Prometheus reads. */
export const Metrics = Group({
  host: Type.String({
    default: "127.0.0.1",
    format: "host",
    description:
      "Address of `metrics.port`. On other addresses than loopback, set `metrics.token` too; without, a start warns.",
  }),
  ...OptionalKeys({
    port: IntegerIn(1, 65535, {
      description: "Port of its own for `/metrics`; if absent, `/metrics` is on `server.port` if there is a token.",
    }),
    token: Type.String({
      pattern: `^[A-Za-z0-9\\-._~+/]{${TOKEN_CHARACTERS_LEAST},512}=*$`,
      allowed: `at least ${TOKEN_CHARACTERS_LEAST} letters, digits and any of -._~+/`,
      description: "Bearer token that `/metrics` requires. Without a port and a token there is no `/metrics`.",
    }),
  }),
});

const Exporter = (signal: string) =>
  Type.Enum(["otlp", "none"], {
    default: "otlp",
    description: `none to export no ${signal} to the endpoint. Also OTEL_${signal.toUpperCase()}_EXPORTER.`,
  });

const SAMPLERS = ["always_on", "always_off", "traceidratio"] as const;

/** Export to an OpenTelemetry collector. Each key has the meaning of its standard variable. */
export const TelemetrySchema = Group({
  ...OptionalKeys({
    endpoint: Type.String({
      format: "http-url",
      description:
        "Base address of an OpenTelemetry collector (OTLP over HTTP in protobuf), such as http://127.0.0.1:4318; if absent, nothing is exported. Also OTEL_EXPORTER_OTLP_ENDPOINT.",
    }),
  }),
  headers: Headers("Headers of every export. Also OTEL_EXPORTER_OTLP_HEADERS, as name=value,name=value."),
  metrics: Exporter("metrics"),
  traces: Exporter("traces"),
  metricsSeconds: Count(3_600, { default: 60, description: "Interval in which metrics are exported." }),
  serviceName: Type.String({
    default: "tollgate",
    minLength: 1,
    maxLength: 200,
    description: "The resource attribute `service.name`. Also OTEL_SERVICE_NAME.",
  }),
  resourceAttributes: Type.Record(Type.String(), Type.String(), {
    default: {},
    propertyNames: { pattern: "^[^\\s\\p{Cc}]{1,200}$", allowed: "names without spaces" },
    allowed: "names and their values, as text",
    description: "Further resource attributes. Also OTEL_RESOURCE_ATTRIBUTES, as name=value,name=value.",
  }),
  sampler: Type.Enum([...SAMPLERS.map((name) => `parentbased_${name}` as const), ...SAMPLERS], {
    default: "parentbased_always_on",
    description:
      "The requests that are traced; parentbased: as the request's own `traceparent` says, if it has one. Also OTEL_TRACES_SAMPLER.",
  }),
  sampleRatio: NumberIn(0, 1, {
    default: 1,
    description: "Share of the requests that the samplers with traceidratio trace. Also OTEL_TRACES_SAMPLER_ARG.",
  }),
});

/** Reads pairs such as `a=1,b=2`, percent-encoded; other text is returned unchanged, for the check to refuse. */
export function pairsOfText(text: string): Record<string, string> | string {
  const pairs: Record<string, string> = {};
  for (const part of text.split(",")) {
    const at = part.indexOf("=");
    if (part.trim() === "") continue;
    if (at <= 0) return text;
    try {
      pairs[part.slice(0, at).trim()] = decodeURIComponent(part.slice(at + 1).trim());
    } catch {
      return text;
    }
  }
  return pairs;
}
