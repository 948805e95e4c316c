/** A metric as Prometheus' text format has it: a histogram is its `_bucket`, `_sum` and `_count`. */
export interface ExportedMetric {
  /** Name without the `_bucket`, `_sum` and `_count` of a histogram. */
  family: string;
  type: string;
  /** Names of all labels of its samples. */
  labels: Set<string>;
  samples: Sample[];
}

interface Sample {
  labels: Record<string, string>;
  value: number;
}

/** Reads Prometheus' text format, by the names that queries use. */
export function readExposition(text: string): Map<string, ExportedMetric> {
  const types = new Map([...text.matchAll(/^# TYPE (\S+) (\S+)$/gm)].map(([, name = "", type = ""]) => [name, type]));
  const metrics = new Map<string, ExportedMetric>();
  for (const line of text.split("\n")) {
    if (line === "" || line.startsWith("#")) continue;
    const [, name = "", inner = "", value = ""] = /^([a-zA-Z_:][\w:]*)(?:\{(.*)\})? (\S+)$/.exec(line) ?? [];
    if (name === "") throw new Error(`This line is no sample: ${line}`);
    const labels = Object.fromEntries(
      [...inner.matchAll(/(\w+)="((?:[^"\\]|\\.)*)"/g)].map(([, label = "", text = ""]) => [label, text]),
    );
    const family = types.has(name) ? name : name.replace(/_(bucket|sum|count)$/, "");
    const metric = metrics.get(name) ?? {
      family,
      type: types.get(family) ?? "",
      labels: new Set<string>(),
      samples: [],
    };
    for (const label of Object.keys(labels)) metric.labels.add(label);
    metric.samples.push({ labels, value: Number(value) });
    metrics.set(name, metric);
  }
  return metrics;
}

/** Returns the sum of a metric's samples that have these labels. */
export function sumOf(metrics: Map<string, ExportedMetric>, name: string, labels: Record<string, string> = {}): number {
  const samples = metrics.get(name)?.samples ?? [];
  return samples
    .filter((sample) => Object.entries(labels).every(([label, value]) => sample.labels[label] === value))
    .reduce((sum, { value }) => sum + value, 0);
}
