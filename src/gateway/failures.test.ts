import { expect, test } from "vitest";
import { UpstreamError, type UpstreamFailure } from "../errors.ts";
import { CONSEQUENCES, toApiError } from "./failures.ts";

const FAILURES = Object.keys(CONSEQUENCES) as UpstreamFailure[];

test.each(FAILURES)("The status and the next route of the failure %s agree.", (failure) => {
  const { next, circuit } = CONSEQUENCES[failure];
  const { status } = toApiError(new UpstreamError(failure, "It failed"));
  const isUpstreams = circuit === "failed" || circuit === "paused";
  expect(isUpstreams).toBe(status >= 500);
  // Another wire may express what one cannot; a request that one upstream refuses, the others should refuse as well.
  expect(next.startsWith("elsewhere")).toBe(isUpstreams || failure === "unsupported");
});

test("Only a request that probably never reached an upstream is sent to the same one again.", () => {
  expect(FAILURES.filter((failure) => CONSEQUENCES[failure].next === "elsewhere or again")).toEqual(["unavailable"]);
});
