import { expect, test } from "vitest";
import { daysBefore, daysOfPeriod, timesOfPeriod } from "./period.tsx";

const NOW_MS = Date.parse("2026-03-01T00:30:00Z");

test.each([
  ["1", "2026-03-01", "2026-03-01"],
  ["7", "2026-02-23", "2026-03-01"],
  ["month", "2026-03-01", "2026-03-01"],
  ["2026-02", "2026-02-01", "2026-02-28"],
  ["2025-03", "2025-03-01", "2025-03-31"],
  ["2026-01-05..2026-01-09", "2026-01-05", "2026-01-09"],
])("The period %s has the days %s to %s in UTC.", (period, from, to) => {
  expect(daysOfPeriod(period, NOW_MS)).toEqual({ from, to });
});

test.each([
  ...["", "0", "2026-03", "2026-04", "2025-02", "2026-13", "dates"],
  ...["2026-02-30..2026-03-01", "2026-03-02..2026-03-01", "2026-02-01..", "24h"],
])("The period %j is unknown.", (period) => {
  expect(daysOfPeriod(period, NOW_MS)).toBeNull();
});

test.each([
  ["7", "2026-02-23T00:00:00.000Z", "2026-03-02T00:00:00.000Z"],
  ["2026-02", "2026-02-01T00:00:00.000Z", "2026-03-01T00:00:00.000Z"],
  ["2026-02-28T23", "2026-02-28T23:00:00.000Z", "2026-03-01T00:00:00.000Z"],
])("The period %s lasts from %s to %s.", (period, from, to) => {
  expect(timesOfPeriod(period, NOW_MS)).toEqual({ from, to });
});

test("A period of the last hours begins at a whole minute and has no end.", () => {
  expect(timesOfPeriod("24h", NOW_MS + 59_999)).toEqual({ from: "2026-02-28T00:30:00.000Z" });
  expect(timesOfPeriod("x", NOW_MS)).toBeNull();
});

test("The period before has as many days and ends on the day before.", () => {
  expect(daysBefore({ from: "2026-03-01", to: "2026-03-01" })).toEqual({ from: "2026-02-28", to: "2026-02-28" });
  expect(daysBefore({ from: "2026-02-01", to: "2026-02-28" })).toEqual({ from: "2026-01-04", to: "2026-01-31" });
});
