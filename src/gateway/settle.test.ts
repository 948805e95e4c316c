import { expect, test } from "vitest";
import { isCharged } from "./settle.ts";

test.each([
  ["a client that leaves before an upstream was called: nothing", "client_left", [], false],
  ["a client that leaves later: charged", "client_left", ["isCalled"], true],
  ["a client that leaves in the middle of a stream: charged", "client_left", ["isCalled", "isStreamed"], true],
  ["an upstream that fails in the middle of a stream: charged", "upstream_failed", ["isStreamed", "hasContent"], true],
  ["an upstream that fails before the first content of a stream: nothing", "upstream_failed", ["isStreamed"], false],
  ["an upstream that times out in the middle of a stream: charged", "timed_out", ["isStreamed", "hasContent"], true],
  ["an upstream that times out before the first content: nothing", "timed_out", ["isStreamed"], false],
  ["an upstream that fails in the middle of an unstreamed answer: nothing", "upstream_failed", ["hasContent"], false],
  ["a complete answer: charged", "complete", ["isCalled"], true],
  ["a complete stream: charged", "complete", ["isCalled", "isStreamed", "hasContent"], true],
] as const)("%s", (_rule, end, facts, charged) => {
  const has = (fact: string) => (facts as readonly string[]).includes(fact);
  const state = { end, isCalled: has("isCalled"), isStreamed: has("isStreamed"), hasContent: has("hasContent") };
  expect(isCharged(state)).toBe(charged);
});
