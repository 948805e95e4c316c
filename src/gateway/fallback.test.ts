import { expect, test } from "vitest";
import { UpstreamError, type UpstreamFailure } from "../errors.ts";
import { CONSEQUENCES } from "./fallback.ts";
import { toApiError } from "./upstream-errors.ts";

const FAILURES = Object.keys(CONSEQUENCES) as UpstreamFailure[];

test.each(FAILURES)("%s: who is told to mend it and where the request goes agree", (failure) => {
  const { next, isUpstreams } = CONSEQUENCES[failure];
  const { status } = toApiError(new UpstreamError(failure, "It failed"));
  expect(isUpstreams).toBe(status >= 500);
  // What one wire cannot tell another may; what an upstream refuses of a request, the others should refuse as well.
  expect(next.startsWith("elsewhere")).toBe(isUpstreams || failure === "unsupported");
});

test("only what never reached an upstream, as far as can be known, is sent to the same one again", () => {
  expect(FAILURES.filter((failure) => CONSEQUENCES[failure].next === "elsewhere or again")).toEqual(["unavailable"]);
});
