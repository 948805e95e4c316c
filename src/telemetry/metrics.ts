/**
 * The table of all metrics. Names, units and labels follow OpenTelemetry's semantic conventions where they have the
 * metric; the others begin with `tollgate.`. `docs/observability.md` lists the same rows, and a test compares the two. No
 * label has the id of an organization or a token, or text that a caller or an upstream chose.
 */
export interface MetricRow {
  /** Those that begin with `observed` are read when the metrics are; the others are recorded at an event. */
  kind: "counter" | "upDownCounter" | "histogram" | "observedCounter" | "observedUpDownCounter" | "observedGauge";
  /** UCUM, as OpenTelemetry writes it. */
  unit: string;
  help: string;
  labels: readonly string[];
  /** Upper bounds of the buckets of a histogram. */
  buckets?: readonly number[];
}

const SECONDS = [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300];
const TOKENS = [1, 4, 16, 64, 256, 1024, 4096, 16_384, 65_536, 262_144, 1_048_576];
const COMMIT_SECONDS = [0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5];
const BATCH_SIZES = [1, 2, 4, 8, 16, 32, 64, 128, 256, 512];
const MODEL = ["gen_ai.operation.name", "gen_ai.provider.name", "gen_ai.request.model"] as const;

export const METRICS = {
  "http.server.request.duration": {
    kind: "histogram",
    unit: "s",
    help: "Duration of HTTP requests, also of those that were refused; error.type is the error code.",
    labels: ["http.request.method", "http.route", "http.response.status_code", "error.type"],
    buckets: SECONDS,
  },
  "http.server.active_requests": {
    kind: "observedUpDownCounter",
    unit: "{request}",
    help: "Requests without a complete response, and completions that are not settled.",
    labels: [],
  },
  "gen_ai.server.request.duration": {
    kind: "histogram",
    unit: "s",
    help: "Duration of completions and embeddings, also of those that were refused; error.type is the error code.",
    labels: [...MODEL, "error.type"],
    buckets: SECONDS,
  },
  "gen_ai.server.time_to_first_token": {
    kind: "histogram",
    unit: "s",
    help: "Time from the request to the first piece of its answer.",
    labels: MODEL,
    buckets: SECONDS,
  },
  "gen_ai.client.token.usage": {
    kind: "histogram",
    unit: "{token}",
    help: "Charged tokens of each request, of the types input and output.",
    labels: [...MODEL, "gen_ai.token.type"],
    buckets: TOKENS,
  },
  "tollgate.tokens": {
    kind: "counter",
    unit: "{token}",
    help: "Charged tokens by the class that has a price of its own.",
    labels: [...MODEL, "tollgate.token.class"],
  },
  "tollgate.credits.charged": {
    kind: "counter",
    unit: "{credit}",
    help: "Charged credits.",
    labels: [...MODEL, "tollgate.cost.known"],
  },
  "tollgate.credits.cost": {
    kind: "counter",
    unit: "{credit}",
    help: "Costs that providers reported with their answers, in dollars, converted by credits.perDollar.",
    labels: MODEL,
  },
  "tollgate.credits.margin": {
    kind: "upDownCounter",
    unit: "{credit}",
    help: "Charged credits minus the provider's cost, of the requests whose cost is known.",
    labels: MODEL,
  },
  "tollgate.credits.shortfall": {
    kind: "counter",
    unit: "{credit}",
    help: "Charges that no credits covered. Above 0, the books need a person.",
    labels: [],
  },
  "tollgate.upstream.call.duration": {
    kind: "histogram",
    unit: "s",
    help: "Time of each call of an upstream until its answer began or its failure was known.",
    labels: ["gen_ai.provider.name", "tollgate.call.outcome"],
    buckets: SECONDS,
  },
  "tollgate.circuits": {
    kind: "observedGauge",
    unit: "{circuit}",
    help: "Upstreams that were called since the start, by the state of their circuit.",
    labels: ["gen_ai.provider.name", "tollgate.circuit.state"],
  },
  "tollgate.holds.open": {
    kind: "observedGauge",
    unit: "{hold}",
    help: "Open holds in the store, of all services that share it.",
    labels: [],
  },
  "tollgate.holds.oldest.age": {
    kind: "observedGauge",
    unit: "s",
    help: "Time since the oldest open hold was made. A long answer renews its hold.",
    labels: [],
  },
  "tollgate.holds.oldest.unrenewed": {
    kind: "observedGauge",
    unit: "s",
    help: "Longest time since an open hold was made or renewed.",
    labels: [],
  },
  "tollgate.holds.unrenewed.limit": {
    kind: "observedGauge",
    unit: "s",
    help: "Time without a renewal within which a service ends a hold, by its configuration.",
    labels: [],
  },
  "tollgate.spool.entries": {
    kind: "observedGauge",
    unit: "{entry}",
    help: "Settlements and releases that wait in the spool for the store.",
    labels: [],
  },
  "tollgate.dead_letters": {
    kind: "observedGauge",
    unit: "{entry}",
    help: "Transitions that could not be booked. Above 0, the books need a person.",
    labels: [],
  },
  "tollgate.store.up": {
    kind: "observedGauge",
    unit: "",
    help: "1 if the store answers and accepts writes, otherwise 0.",
    labels: ["db.system.name"],
  },
  "tollgate.commit.duration": {
    kind: "histogram",
    unit: "s",
    help: "Time that the store took to commit a batch of transitions, or to fail.",
    labels: ["tollgate.commit.queue", "tollgate.commit.outcome"],
    buckets: COMMIT_SECONDS,
  },
  "tollgate.commit.batch.size": {
    kind: "histogram",
    unit: "{transition}",
    help: "Transitions in a batch.",
    labels: ["tollgate.commit.queue"],
    buckets: BATCH_SIZES,
  },
  "tollgate.limits.shared": {
    kind: "observedGauge",
    unit: "",
    help: "1 while processes count their limits together, 0 while each counts by itself.",
    labels: [],
  },
  "db.client.connection.count": {
    kind: "observedUpDownCounter",
    unit: "{connection}",
    help: "Connections of each pool to the store, by state.",
    labels: ["db.client.connection.pool.name", "db.client.connection.state"],
  },
  "db.client.connection.max": {
    kind: "observedUpDownCounter",
    unit: "{connection}",
    help: "Most connections of each pool.",
    labels: ["db.client.connection.pool.name"],
  },
  "db.client.connection.pending_requests": {
    kind: "observedUpDownCounter",
    unit: "{request}",
    help: "Requests that wait for a connection of the pool; on SQLite, for its thread.",
    labels: ["db.client.connection.pool.name"],
  },
  "nodejs.eventloop.delay.p50": {
    kind: "observedGauge",
    unit: "s",
    help: "Median delay of the event loop since the last time that it was read.",
    labels: [],
  },
  "nodejs.eventloop.delay.p99": {
    kind: "observedGauge",
    unit: "s",
    help: "99th percentile of the delay of the event loop since the last time that it was read.",
    labels: [],
  },
  "nodejs.eventloop.utilization": {
    kind: "observedGauge",
    unit: "1",
    help: "Share of time in which the event loop was busy since the last time that it was read.",
    labels: [],
  },
  "process.cpu.time": {
    kind: "observedCounter",
    unit: "s",
    help: "Processor time of the process.",
    labels: ["cpu.mode"],
  },
  "process.memory.usage": {
    kind: "observedUpDownCounter",
    unit: "By",
    help: "Resident memory of the process.",
    labels: [],
  },
  "process.uptime": {
    kind: "observedGauge",
    unit: "s",
    help: "Time since the process started.",
    labels: [],
  },
} as const satisfies Record<string, MetricRow>;

export type MetricName = keyof typeof METRICS;
export type MetricsOf<Kind extends MetricRow["kind"]> = {
  [Name in MetricName]: (typeof METRICS)[Name]["kind"] extends Kind ? Name : never;
}[MetricName];

/** Values of a metric's labels. */
export type LabelsOf<Name extends MetricName> = Readonly<
  Partial<Record<(typeof METRICS)[Name]["labels"][number], string | number>>
>;

const UNIT_SUFFIXES: Record<string, string> = { s: "_seconds", By: "_bytes" };

/** Returns a metric's name in Prometheus, without the `_bucket`, `_sum` and `_count` of a histogram. */
export function prometheusName(name: string, { kind, unit }: Pick<MetricRow, "kind" | "unit">): string {
  const isRatio = unit === "1" && kind === "observedGauge";
  const suffix = UNIT_SUFFIXES[unit] ?? (isRatio ? "_ratio" : "");
  const total = kind === "counter" || kind === "observedCounter" ? "_total" : "";
  return `${name.replaceAll(/[^A-Za-z0-9]+/g, "_")}${suffix}${total}`;
}
