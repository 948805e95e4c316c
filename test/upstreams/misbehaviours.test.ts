import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { readDocuments, tableOf } from "../support/documents.ts";
import { CASES, MODES, modesOf } from "./cases.ts";
import { type Bench, type Met, OTHER_KINDS, startBench, tableRows } from "./run.ts";
import { casesOf, OWN_KIND } from "./wire-cases.ts";

let bench: Bench;
let met: Met[];

beforeAll(async () => {
  bench = await startBench();
  met = await bench.run([OWN_KIND, ...OTHER_KINDS]);
}, 600_000);

afterAll(async () => {
  await bench?.end();
});

describe.each(MODES)("%s", (mode) => {
  test.each(CASES.map((one) => [one.name, one[mode]] as const))("%s", (name, expected) => {
    expect(met.find((one) => one.kind === OWN_KIND && one.name === name && one.mode === mode)?.outcome).toBe(expected);
  });
});

test.each(OTHER_KINDS)("on the wire of %s", (kind) => {
  const outcomes = met
    .filter((one) => one.kind === kind)
    .map(({ name, mode, outcome }) => `${name}, ${mode}: ${outcome}`);
  const expected = casesOf(kind).flatMap((one) => modesOf(one).map((mode) => `${one.name}, ${mode}: ${one[mode]}`));
  expect(outcomes.sort()).toEqual(expected.sort());
  expect(expected.length).toBeGreaterThan(130);
});

test("docs/upstream-faults.md tells what was met", () => {
  const page = readDocuments().find(({ path }) => path === "docs/upstream-faults.md");
  if (page === undefined) throw new Error("There is no docs/upstream-faults.md");
  expect(tableOf(page, "an upstream's misbehaviour")).toEqual(tableRows(met));
});

test("the service lives, and its books balance", async () => {
  expect(bench.service.child.exitCode).toBeNull();
  expect(bench.service.output()).not.toContain("a completion failed inside the service");
  expect(await bench.service.tollgate("ledger", "verify")).toMatchObject({ ok: true });
});

// Reads memory from Linux. Ten streams of 256 KiB each are a sixteenth of this bound, and
// without a bound each of them would be 64 MiB.
const KEPT_BYTES_MAX = 40 * 1024 * 1024;
/** Garbage too: how soon it is collected is for the machine to say. */
const RESIDENT_BYTES_MAX = 320 * 1024 * 1024;
test
  .runIf(process.platform === "linux")
  .each([
    "an event, or an answer, of 64 MiB",
    "a stream without end",
    "a gzip bomb",
    "a million empty events",
    "interim answers without end",
  ])("memory is bounded under ten at once, and under one of each other wire: %s", async (name) => {
  const own = await bench.growth([OWN_KIND], name, 10);
  expect(own.kept).toBeLessThan(KEPT_BYTES_MAX);
  expect(own.resident).toBeLessThan(RESIDENT_BYTES_MAX);
  const others = await bench.growth(OTHER_KINDS, name, OTHER_KINDS.length);
  expect(others.kept).toBeLessThan(3 * KEPT_BYTES_MAX);
  expect(others.resident).toBeLessThan(RESIDENT_BYTES_MAX);
});
