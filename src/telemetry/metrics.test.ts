import { describe, expect, test } from "vitest";
import { LabelSets } from "./instruments.ts";
import { METRICS, type MetricRow, prometheusName } from "./metrics.ts";

const rows: [string, MetricRow][] = Object.entries(METRICS);

describe("the table of metrics", () => {
  test("has names that are also unique and valid in Prometheus", () => {
    const names = rows.map(([name, row]) => prometheusName(name, row));
    expect(new Set(names).size).toBe(names.length);
    for (const name of names) expect(name).toMatch(/^[a-z][a-z0-9]*(_[a-z0-9]+)*$/);
  });

  test("names the unit and the kind as Prometheus does", () => {
    expect(prometheusName("a.b-c", { kind: "histogram", unit: "s" })).toBe("a_b_c_seconds");
    expect(prometheusName("a", { kind: "observedCounter", unit: "s" })).toBe("a_seconds_total");
    expect(prometheusName("a", { kind: "counter", unit: "{token}" })).toBe("a_total");
    expect(prometheusName("a", { kind: "observedGauge", unit: "1" })).toBe("a_ratio");
    expect(prometheusName("a", { kind: "observedUpDownCounter", unit: "By" })).toBe("a_bytes");
  });

  test("has buckets in ascending order for histograms, and for them alone", () => {
    for (const [name, { kind, buckets }] of rows) {
      expect(buckets !== undefined, name).toBe(kind === "histogram");
      expect(buckets ?? []).toEqual([...new Set(buckets ?? [])].sort((a, b) => a - b));
    }
  });

  test("has no label with the id of a caller", () => {
    const labels = new Set(rows.flatMap(([, row]) => row.labels));
    expect([...labels].filter((label) => /organization|token\.id|user|request\.id/.test(label))).toEqual([]);
  });
});

test("Label sets are made once for each key, and further keys get those of the overflow.", () => {
  const sets = new LabelSets<{ model: string }>(2, { model: "overflow" });
  let made = 0;
  const of = (model: string) =>
    sets.of(model, () => {
      made += 1;
      return { model };
    });
  expect(of("a")).toBe(of("a"));
  expect([of("b"), of("c"), of("d"), of("a")]).toEqual([
    { model: "b" },
    { model: "overflow" },
    { model: "overflow" },
    { model: "a" },
  ]);
  expect(made).toBe(2);
});
