import { expect, test } from "vitest";
import { isCharged } from "./settle.ts";

test.each([
  ["a client disconnects before an upstream was called", "client_disconnected", [], false],
  ["a client disconnects later", "client_disconnected", ["isCalled"], true],
  ["a client disconnects in the middle of a stream", "client_disconnected", ["isCalled", "isStreamed"], true],
  ["an upstream fails in the middle of a stream", "upstream_failed", ["isStreamed", "hasContent"], true],
  ["an upstream fails before the first content of a stream", "upstream_failed", ["isStreamed"], false],
  ["an upstream times out in the middle of a stream", "timed_out", ["isStreamed", "hasContent"], true],
  ["an upstream times out before the first content", "timed_out", ["isStreamed"], false],
  ["an upstream fails in the middle of an unstreamed answer", "upstream_failed", ["hasContent"], false],
  ["an answer is complete", "complete", ["isCalled"], true],
  ["a stream is complete", "complete", ["isCalled", "isStreamed", "hasContent"], true],
] as const)("The charging rule holds where %s.", (_rule, end, facts, charged) => {
  const has = (fact: string) => (facts as readonly string[]).includes(fact);
  const state = { end, isCalled: has("isCalled"), isStreamed: has("isStreamed"), hasContent: has("hasContent") };
  expect(isCharged(state)).toBe(charged);
});
