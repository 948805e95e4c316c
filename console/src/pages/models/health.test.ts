import { expect, test } from "vitest";
import { healthDetails, healthOf, isHeldBack, type Route, wasCalledThisHour } from "./health.tsx";

const NOW_MS = Date.parse("2026-11-21T12:00:00Z");
const calm = {
  state: "closed",
  failing_organizations: 0,
  next_probe_at: null,
  limited_until: null,
  last_failure: null,
  last_success_at: "2026-11-21T11:59:00.000Z",
  recent: { successes: 9, failures: 1 },
  first_byte_ms: 250,
} as const;
const route = (health: object | null) => ({ route: "a/b", health }) as unknown as Route;

test.each([
  ["Not called since the start", null],
  ["Healthy", calm],
  ["Failing", { ...calm, recent: { successes: 1, failures: 1 } }],
  ["Rate limited", { ...calm, limited_until: "2026-11-21T12:00:30.000Z" }],
  ["Healthy", { ...calm, limited_until: "2026-11-21T11:59:30.000Z" }],
  ["Failing for some", { ...calm, state: "partly_open" }],
  ["Disabled after failures", { ...calm, state: "open" }],
])("The health of a route is: %s.", (word, health) => {
  expect(healthOf(route(health), NOW_MS).word).toBe(word);
});

test("The details of a route's health list its recent figures.", () => {
  const failed = { ...calm, last_failure: { failure: "first_byte_timeout", at: "2026-11-21T11:00:00.000Z" } };
  expect(healthDetails(route(failed), NOW_MS)).toBe(
    "9 successes and 1 failure in the last 5 minutes · first byte after 250 ms · last failure: first byte timeout",
  );
  expect(healthDetails(route(null), NOW_MS)).toContain("No requests");
  const heldBack = { ...calm, failing_organizations: 2, limited_until: "2026-11-21T12:00:30.000Z" };
  expect(healthDetails(route(heldBack), NOW_MS)).toMatch(/ · fails for 2 organizations · paused until 12:00:30 UTC$/);
});

test("A route was called in this hour if its last answer came after the hour began.", () => {
  const halfPast = Date.parse("2026-11-21T11:59:30Z");
  expect([halfPast, NOW_MS].map((nowMs) => wasCalledThisHour([route(null), route(calm)], nowMs))).toEqual([
    true,
    false,
  ]);
});

test.each([
  [false, null],
  [false, calm],
  [false, { ...calm, limited_until: "2026-11-21T11:59:30.000Z" }],
  [true, { ...calm, limited_until: "2026-11-21T12:00:30.000Z" }],
  [true, { ...calm, state: "partly_open" }],
  [true, { ...calm, state: "open" }],
])("A route can be resumed (%s) while requests are kept from it.", (canBeResumed, health) => {
  expect(isHeldBack(route(health), NOW_MS)).toBe(canBeResumed);
});
