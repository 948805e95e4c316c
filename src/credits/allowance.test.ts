import fc from "fast-check";
import { expect, test } from "vitest";
import { type AllowanceRow, grantOfPeriod, periodAt } from "./allowance.ts";

const at = (text: string) => Date.parse(text);
const iso = ({ startMs, endMs }: { startMs: number; endMs: number }) =>
  [startMs, endMs].map((ms) => new Date(ms).toISOString().replace(":00.000Z", ""));

test.each([
  ["on its first day", "2026-01-15T09:30Z", "2026-01-15T09:30Z", ["2026-01-15T09:30", "2026-02-15T09:30"]],
  ["a minute before its second", "2026-01-15T09:30Z", "2026-02-15T09:29Z", ["2026-01-15T09:30", "2026-02-15T09:30"]],
  ["from its second on", "2026-01-15T09:30Z", "2026-02-15T09:30Z", ["2026-02-15T09:30", "2026-03-15T09:30"]],
  ["from the 31st, in February", "2026-01-31T00:00Z", "2026-02-28T12:00Z", ["2026-02-28T00:00", "2026-03-31T00:00"]],
  ["from the 31st, in a leap year", "2027-12-31T00:00Z", "2028-02-29T00:00Z", ["2028-02-29T00:00", "2028-03-31T00:00"]],
  ["over the end of a year", "2026-11-21T23:59Z", "2027-01-01T00:00Z", ["2026-12-21T23:59", "2027-01-21T23:59"]],
  ["before the anchor", "2026-11-21T00:00Z", "2026-01-01T00:00Z", ["2026-11-21T00:00", "2026-12-21T00:00"]],
])("The month is found %s.", (_, anchor, time, period) => {
  expect(iso(periodAt(at(anchor), at(time)))).toEqual(period);
});

test("Months follow each other without a gap, each on its own day.", () => {
  const time = fc.integer({ min: at("1990-01-01"), max: at("2100-01-01") });
  fc.assert(
    fc.property(time, time, (anchorMs, offsetMs) => {
      const period = periodAt(anchorMs, offsetMs);
      const next = periodAt(anchorMs, period.endMs);
      expect(period.startMs).toBeLessThan(period.endMs);
      expect(next.startMs).toBe(period.endMs);
      expect(Math.max(offsetMs, anchorMs)).toBeGreaterThanOrEqual(period.startMs);
      expect(Math.max(offsetMs, anchorMs)).toBeLessThan(period.endMs);
      expect(periodAt(anchorMs, period.endMs - 1)).toEqual(period);
    }),
    { numRuns: 2_000 },
  );
});

const allowance: AllowanceRow = {
  organizationId: "org_1",
  id: "allowance_1",
  amount: 5n,
  priority: 3,
  lapses: true,
  reference: null,
  anchorAtMs: at("2026-01-31T08:00Z"),
  nextAtMs: at("2026-01-31T08:00Z"),
  createdAtMs: 0,
  endedAtMs: null,
};

test("A month's grant expires when the next one begins, if the allowance says so.", () => {
  const period = periodAt(allowance.anchorAtMs, at("2026-02-28T08:00Z"));
  expect(grantOfPeriod(allowance, period)).toEqual({
    kind: "grant",
    organizationId: "org_1",
    grantId: "allowance_1_2026-02-28",
    amount: 5n,
    effectiveAtMs: at("2026-02-28T08:00Z"),
    expiresAtMs: at("2026-03-31T08:00Z"),
    priority: 3,
    reference: "allowance/allowance_1/2026-02-28",
  });
  expect(grantOfPeriod({ ...allowance, lapses: false }, period).expiresAtMs).toBeNull();
});
