import { describe, expect, test } from "vitest";
import {
  countOf,
  formatChange,
  formatCredits,
  formatDuration,
  formatExactCredits,
  formatLasting,
  formatShare,
  formatShort,
  formatSpeed,
} from "./numbers.ts";

test.each([
  [0, "0"],
  [0.000001, "0.000001"],
  [0.0001234, "0.000123"],
  [0.4567, "0.457"],
  [1, "1.00"],
  [1234.5, "1,234.50"],
  [-3.2, "-3.20"],
  [12_345_678, "12.3M"],
])("%d credits are rounded to %s.", (credits, text) => {
  expect(formatCredits(credits)).toBe(text);
});

test("Exact credits keep every micro-credit.", () => {
  expect(formatExactCredits(1234.000001)).toBe("1,234.000001");
  expect(formatExactCredits(5)).toBe("5");
});

test("A change of a balance has its sign.", () => {
  expect([formatChange(5), formatChange(-0.00025), formatChange(0)]).toEqual(["+5.00", "−0.00025", "0.00"]);
});

test.each([
  [0, "0 ms"],
  [839.6, "840 ms"],
  [1240, "1.24 s"],
  [12_340, "12.3 s"],
  [125_000, "2 min 5 s"],
])("A duration of %d ms is shown as %s.", (durationMs, text) => {
  expect(formatDuration(durationMs)).toBe(text);
});

describe("the time that credits last", () => {
  test.each([
    [null, "No spending in the last 7 days"],
    [0, "No credits left"],
    [0.01, "About 1 h at the current rate"],
    [0.5, "About 12 h at the current rate"],
    [1, "About 1 day at the current rate"],
    [12.4, "About 12 days at the current rate"],
    [5000, "More than 2 years at the current rate"],
  ])("Credits for %s days are described as: %s.", (days, text) => {
    expect(formatLasting(days)).toBe(text);
  });
});

test("Percentages, short numbers, speeds and counts are formatted.", () => {
  expect(formatShare(0.0123)).toBe("1.2%");
  expect([formatShort(0), formatShort(0.0024), formatShort(12_345)]).toEqual(["0", "0.0024", "12.3K"]);
  expect(formatSpeed(100, 2000)).toBe("50 tokens/s");
  expect([countOf(1, "request"), countOf(2000, "request"), countOf(2, "entry", "entries")]).toEqual([
    "1 request",
    "2,000 requests",
    "2 entries",
  ]);
});
