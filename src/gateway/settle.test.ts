import { expect, test } from "vitest";
import { StoppedError, UpstreamError, type UpstreamFailure } from "../errors.ts";
import { isCharged, isRepeatable } from "./settle.ts";

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

test.each([
  ["its client left", "client_disconnected", new Error("left"), 0, false],
  ["it is complete", "complete", undefined, 0, false],
  ["the service stopped", "service_failed", new StoppedError(), 0, true],
  ["its provider failed", "upstream_failed", failureOf("failed"), 0, true],
  ["its provider was silent", "timed_out", failureOf("timeout"), 10_000, true],
  ["its provider failed after it had waited for its client", "upstream_failed", failureOf("failed"), 10_001, false],
  ["its provider is overloaded", "upstream_failed", failureOf("overloaded"), 0, true],
  ["its provider filtered its content", "upstream_failed", failureOf("content_filter"), 0, false],
  ["its provider rejected its request", "upstream_failed", failureOf("rejected"), 0, false],
  ["it exceeded the context", "upstream_failed", failureOf("context_length"), 0, false],
] as const)("The rule which answers a retry may repeat holds where %s.", (_rule, end, failure, waitedMs, isOffered) => {
  expect(isRepeatable({ end, failure, waitedMs })).toBe(isOffered);
});

function failureOf(failure: UpstreamFailure): UpstreamError {
  return new UpstreamError(failure, "The upstream failed");
}
