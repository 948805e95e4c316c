import { expect, test } from "vitest";
import { isCharged } from "./settle.ts";

test.each([
  ["a client that leaves before an upstream was called: nothing", "client_left", false, false, false],
  ["a client that leaves later: charged", "client_left", true, false, true],
  ["a client that leaves in the middle of a stream: charged", "client_left", true, true, true],
  ["an upstream that fails in the middle of a stream: charged", "upstream_failed", true, true, true],
  ["an upstream that times out in the middle of a stream: charged", "timed_out", true, true, true],
  ["an upstream that fails before an answer: nothing", "upstream_failed", true, false, false],
  ["an upstream that times out before an answer: nothing", "timed_out", true, false, false],
  ["a complete answer: charged", "complete", true, false, true],
  ["a complete stream: charged", "complete", true, true, true],
] as const)("%s", (_rule, end, isCalled, isStreamed, charged) => {
  expect(isCharged({ end, isCalled, isStreamed })).toBe(charged);
});
