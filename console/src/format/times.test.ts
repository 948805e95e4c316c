import { expect, test } from "vitest";
import { formatDay, formatDistance } from "./times.ts";

const NOW_MS = Date.parse("2026-11-21T12:00:00Z");

test.each([
  ["2026-11-21T11:59:55Z", "just now"],
  ["2026-11-21T11:59:30Z", "30 sec. ago"],
  ["2026-11-21T11:57:10Z", "2 min. ago"],
  ["2026-11-21T07:00:00Z", "5 hr. ago"],
  ["2026-11-18T12:00:00Z", "3 days ago"],
  ["2026-11-23T12:00:00Z", "in 2 days"],
  ["2025-06-15T12:00:00Z", "Jun 15, 2025"],
])("The time %s is shown as: %s.", (at, text) => {
  expect(formatDistance(at, NOW_MS)).toBe(text);
});

test("A day of the service is a UTC day in every time zone.", () => {
  expect(formatDay("2026-11-01")).toBe("Nov 1");
});
