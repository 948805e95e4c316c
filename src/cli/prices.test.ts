import { expect, test } from "vitest";
import { buildCatalog } from "../catalog/build.ts";
import type { ModelSettings } from "../catalog/configured.ts";
import { listPrices, pricesTable, routePricesJson } from "./prices.ts";

const price: ModelSettings["price"] = [
  {
    ...{ input: "1", cachedInput: "0.1", output: "4", perRequest: "0.01", perSearch: "0.02" },
    abovePromptTokens: { 1000: { input: "2" } },
    serviceTiers: { flex: { output: "3" } },
  },
  { from: "2027-01-01", output: "5", serviceTiers: {} },
];
const route = { provider: "gpu", model: "x" };
const sources = {
  models: [
    { id: "m", routes: [{ ...route, price }, route], price: { input: "7", output: "8", perSearch: "0.03" } },
    { id: "quiet", routes: [{ ...route, callsMost: 1 }], price: { input: "0", output: "0" } },
  ],
  providers: [{ id: "gpu", kind: "openai-compatible", baseUrl: "http://127.0.0.1:9/v1" }],
  credits: { perDollar: "1", markup: "0" },
  sandbox: { enabled: false },
};
const [now, later] = ["2026-11-21", "2027-01-01"];
const catalogAt = (day: string) => buildCatalog(sources, Date.parse(day));
const listed = listPrices(catalogAt(now), new Map([[later, catalogAt(later)]]));

test("The table of prices has a row for each route, tier and length of the prompt, with what each inherits.", () => {
  const [heading, ...rows] = pricesTable(listed)
    .split("\n")
    .map((line) => line.split(/ {2,}/).join("|"));
  expect(heading).toBe("MODEL|ROUTE|LIST|FROM|TIER|PROMPT|INPUT|CACHED|WRITTEN|OUTPUT|REASONING|OTHER");
  expect(rows.slice(0, 8)).toEqual([
    "m|gpu/x|usual|up to 1000|1|0.1|1|4|4|requests 0.01, searches 0.02",
    "m|gpu/x|usual|above 1000|2|0.1|2|4|4|requests 0.01, searches 0.02",
    "m|gpu/x|flex|up to 1000|1|0.1|1|3|3|requests 0.01, searches 0.02",
    "m|gpu/x|flex|above 1000|2|0.1|2|3|3|requests 0.01, searches 0.02",
    "m|gpu/x|usual|any|7|7|7|8|8|searches 0.03",
    "quiet|gpu/x|usual|any|0|0|0|0|0",
    "m|gpu/x|2027-01-01|usual|up to 1000|1|0.1|1|5|5|requests 0.01, searches 0.02",
    "m|gpu/x|2027-01-01|usual|above 1000|2|0.1|2|5|5|requests 0.01, searches 0.02",
  ]);
});

test("The JSON of the prices has the day, the service tier and the bounds of the prompt, null where there is none.", () => {
  const json = listed.map(routePricesJson);
  expect(json).toHaveLength(8);
  expect(json[3]).toEqual({
    ...{
      model: "m",
      route: "gpu/x",
      priceList: null,
      from: null,
      serviceTier: "flex",
      abovePromptTokens: 1000,
      promptTokensMax: null,
    },
    prices: {
      ...{ input: 2, cachedInput: 0.1, cacheWrite: 2, output: 3, reasoning: 3 },
      ...{ requests: 0.01, searches: 0.02 },
    },
  });
  expect(json[6]).toMatchObject({ from: later, serviceTier: null, abovePromptTokens: null, promptTokensMax: 1000 });
});
