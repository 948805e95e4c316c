import { expect, test } from "vitest";
import { daysOfPeriod } from "./period.tsx";

const NOW_MS = Date.parse("2026-03-01T00:30:00Z");

test.each([
  ["1", "2026-03-01", "2026-03-01"],
  ["7", "2026-02-23", "2026-03-01"],
  ["month", "2026-03-01", "2026-03-01"],
  ["2026-02", "2026-02-01", "2026-02-28"],
  ["2025-03", "2025-03-01", "2025-03-31"],
])("The period %s has the days %s to %s in UTC.", (period, from, to) => {
  expect(daysOfPeriod(period, NOW_MS)).toEqual({ from, to });
});

test.each(["", "0", "2026-03", "2026-04", "2025-02", "2026-13", "dates"])("The period %j is unknown.", (period) => {
  expect(daysOfPeriod(period, NOW_MS)).toBeNull();
});
