import type { BatchObservableResult, Histogram, Meter, Observable, UpDownCounter } from "@opentelemetry/api";
import { type LabelsOf, METRICS, type MetricRow, type MetricsOf } from "./metrics.ts";

type Counted = MetricsOf<"counter" | "upDownCounter">;
type Measured = MetricsOf<"histogram">;
type Observed = MetricsOf<"observedCounter" | "observedUpDownCounter" | "observedGauge">;

/** Reports the present value of an observed metric. */
export type Observe = <Name extends Observed>(name: Name, value: number, labels?: LabelsOf<Name>) => void;

/** The instruments of all metrics of the table. */
export class Instruments {
  readonly #meter: Meter;
  readonly #counters = new Map<string, UpDownCounter>();
  readonly #histograms = new Map<string, Histogram>();
  readonly #observables = new Map<string, Observable>();

  constructor(meter: Meter) {
    this.#meter = meter;
    const rows: [string, MetricRow][] = Object.entries(METRICS);
    for (const [name, { kind, unit, help: description, buckets = [] }] of rows) {
      const options = { unit, description };
      if (kind === "counter") this.#counters.set(name, meter.createCounter(name, options));
      else if (kind === "upDownCounter") this.#counters.set(name, meter.createUpDownCounter(name, options));
      else if (kind === "histogram") {
        const advice = { explicitBucketBoundaries: [...buckets] };
        this.#histograms.set(name, meter.createHistogram(name, { ...options, advice }));
      } else this.#observables.set(name, createObservable(meter, kind, name, options));
    }
  }

  add<Name extends Counted>(name: Name, value: number, labels?: LabelsOf<Name>): void {
    this.#counters.get(name)?.add(value, labels);
  }

  record<Name extends Measured>(name: Name, value: number, labels?: LabelsOf<Name>): void {
    this.#histograms.get(name)?.record(value, labels);
  }

  /** Calls a function whenever the metrics are read. Returns the function that ends it. */
  observe(read: (observe: Observe) => Promise<void>): () => void {
    const observables = [...this.#observables.values()];
    const callback = (result: BatchObservableResult) =>
      read((name, value, labels) => {
        const observable = this.#observables.get(name);
        if (observable !== undefined) result.observe(observable, value, labels);
      });
    this.#meter.addBatchObservableCallback(callback, observables);
    return () => this.#meter.removeBatchObservableCallback(callback, observables);
  }
}

function createObservable(
  meter: Meter,
  kind: MetricRow["kind"],
  name: string,
  options: { unit: string; description: string },
): Observable {
  if (kind === "observedCounter") return meter.createObservableCounter(name, options);
  if (kind === "observedUpDownCounter") return meter.createObservableUpDownCounter(name, options);
  return meter.createObservableGauge(name, options);
}

/**
 * Remembers the label sets of events by a short key, so that an event makes no new object. Their number is bounded: every
 * further key gets the labels of the overflow, as OpenTelemetry names it.
 */
export class LabelSets<Labels> {
  readonly #sets = new Map<string, Labels>();
  readonly #max: number;
  readonly #overflow: Labels;

  constructor(max: number, overflow: Labels) {
    this.#max = max;
    this.#overflow = overflow;
  }

  of(key: string, make: () => Labels): Labels {
    const known = this.#sets.get(key);
    if (known !== undefined) return known;
    if (this.#sets.size >= this.#max) return this.#overflow;
    const made = make();
    this.#sets.set(key, made);
    return made;
  }
}
