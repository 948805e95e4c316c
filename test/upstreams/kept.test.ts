import { afterAll, beforeAll, expect, test } from "vitest";
import { type Bench, OTHER_KINDS, startBench } from "./run.ts";
import { OWN_KIND } from "./wire-cases.ts";

const FLOOD = "a stream without end";
const STREAMS = 56;
const KEPT_BYTES_MAX = 256 * 1024;

let bench: Bench;
beforeAll(async () => {
  bench = await startBench();
});
afterAll(() => bench?.end());

test.each([
  ["this service's own wire", [OWN_KIND]],
  ["the wires that packages speak", OTHER_KINDS],
])("the memory for a stream that no client reads is bounded: %s", async (_whose, kinds) => {
  await bench.kept(kinds, FLOOD, STREAMS);
  expect(await bench.kept(kinds, FLOOD, STREAMS)).toBeLessThan(KEPT_BYTES_MAX);
});
