import { expect, test } from "vitest";
import type { RequestSummary, SummedRequests } from "../../api/types.ts";
import { merged, narrowedTo, ranked, VIEW_NAMES, type View, wireFilterOf } from "./view.ts";

const NOW_MS = Date.parse("2026-11-26T12:00:00Z");
const NONE = Object.fromEntries(VIEW_NAMES.map((name) => [name, ""])) as View;

function sumOf(values: Partial<SummedRequests>): SummedRequests {
  const counts = { requests: 1, failed: 0, charged: 0.1, input_tokens: 2, output_tokens: 3 };
  return { object: "request_sum", key: "a", name: null, organization_id: null, is_rest: false, ...counts, ...values };
}

test("The filters of the address become those of the API, without order, grouping and empty values.", () => {
  const view = { ...NONE, model: "m", period: "2026-11-05T14", sort: "charged", by: "token", metadata_value: "x" };
  expect(wireFilterOf(view, NOW_MS)).toEqual({
    model: "m",
    from: "2026-11-05T14:00:00.000Z",
    to: "2026-11-05T15:00:00.000Z",
  });
  expect(wireFilterOf({ ...NONE, metadata_key: "team", metadata_value: "x" }, NOW_MS)).toEqual({
    metadata_key: "team",
    metadata_value: "x",
  });
});

test("The parts of a group are added up to the micro-credit, and the rest comes last.", () => {
  const rest = sumOf({ key: null, is_rest: true, charged: 9 });
  const groups = merged([sumOf({}), rest, sumOf({ key: "b" }), sumOf({ charged: 0.2, failed: 1 })], "model");
  expect(groups).toEqual([
    sumOf({ requests: 2, failed: 1, charged: 0.3, input_tokens: 4, output_tokens: 6 }),
    sumOf({ key: "b" }),
    rest,
  ]);
});

test("Hours come latest first, whatever they cost.", () => {
  const hours = ["2026-11-05T14:00:00Z", "2026-11-05T15:00:00Z"].map((key, index) =>
    sumOf({ key, charged: 2 - index }),
  );
  expect(merged(hours, "hour").map(({ key }) => key)).toEqual(["2026-11-05T15:00:00Z", "2026-11-05T14:00:00Z"]);
});

test("Requests of several parts are sorted together, later ones first where they are equal.", () => {
  const requests = [
    { id: "1", charged: 1 },
    { id: "3", charged: 2 },
    { id: "2", charged: 2 },
  ] as RequestSummary[];
  expect(ranked(requests, "charged", 2).map(({ id }) => id)).toEqual(["3", "2"]);
});

test("A group leads to its requests.", () => {
  expect(narrowedTo(sumOf({ key: "bud_1", organization_id: "org_1" }), "budget")).toEqual({
    by: "",
    organization_id: "org_1",
    budget_id: "bud_1",
  });
  expect(narrowedTo(sumOf({ key: "2026-11-05T00:00:00.000Z" }), "day")).toEqual({
    by: "",
    period: "2026-11-05..2026-11-05",
  });
  expect(narrowedTo(sumOf({ key: "prod" }), "metadata")).toEqual({ by: "", metadata_value: "prod" });
  expect(narrowedTo(sumOf({ key: null }), "metadata")).toBeNull();
});
