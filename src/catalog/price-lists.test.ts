import { describe, expect, test } from "vitest";
import { parsePrice } from "../credits/price.ts";
import { OperatorError } from "../errors.ts";
import { buildCatalog } from "./build.ts";
import type { ModelSettings } from "./configured.ts";
import { allPrices, type Catalog, type CatalogModel } from "./model.ts";
import type { PriceListSettings } from "./price-lists.ts";

const NOW = Date.parse("2026-11-21T12:00:00Z");
const PROVIDER = { id: "up", kind: "openai-compatible", baseUrl: "http://127.0.0.1:9/v1" };
const routes = [{ provider: "up", model: "m" }];
const MODELS: ModelSettings[] = [
  {
    id: "dated",
    price: [
      { input: "1", output: "2" },
      { from: "2027-01-01", input: "3", output: "4" },
    ],
    routes,
  },
  {
    id: "long",
    price: {
      input: "1",
      output: "2",
      abovePromptTokens: { 1000: { input: "3" } },
      serviceTiers: { flex: { input: "0.5" } },
    },
    routes,
  },
  {
    id: "two",
    routes: [1, 2].map((input) => ({ provider: "up", model: `m${input}`, price: { input: `${input}`, output: "9" } })),
  },
];

function catalogOf(list: Partial<PriceListSettings[string]>, nowMs = NOW): Catalog {
  const sources = { models: MODELS, aliases: { "any-*": "long" }, providers: [PROVIDER] };
  const credits = { perDollar: "1", markup: "0" };
  const priceLists = { partners: { factor: "1", prices: {}, ...list } };
  const found = buildCatalog({ ...sources, credits, priceLists }, nowMs).byPriceList.get("partners");
  if (found === undefined) throw new Error("There is no list");
  return found;
}

function modelOf(catalog: Catalog, id: string): CatalogModel {
  const model = catalog.find(id);
  if (model === undefined) throw new Error(`There is no ${id}`);
  return model;
}

const inputs = (list: Parameters<typeof allPrices>[0]) => allPrices(list).map(({ input }) => input);
const per = (amount: string) => parsePrice(amount);

describe("A price list", () => {
  test("multiplies every price: by length, by service tier, and later ones", () => {
    const catalog = catalogOf({ factor: "0.9" });
    const [route] = modelOf(catalog, "long").routes;
    expect(route && inputs(route)).toEqual([per("0.9"), per("2.7"), per("0.45"), per("0.45")]);
    const dated = modelOf(catalog, "dated").routes[0];
    expect(dated?.next).toMatchObject({ providerId: "up", prices: { input: per("2.7"), output: per("3.6") } });
    expect(dated?.history?.map(({ prices }) => prices.output)).toEqual([per("1.8"), per("3.6")]);
  });

  test("rounds a price up once, at the pico-credit", () => {
    const prices = catalogOf({ factor: "0.3333333" }).find("dated")?.prices;
    expect([prices?.input, prices?.output]).toEqual([333_334n, 666_667n]);
  });

  test("names itself in each price, in addition to what else chose it", () => {
    const [route] = modelOf(catalogOf({ factor: "2" }), "long").routes;
    expect(route && allPrices(route).map(({ tier }) => tier)).toEqual([
      { list: "partners", promptTokensMax: 1000 },
      { list: "partners", abovePromptTokens: 1000 },
      { list: "partners", serviceTier: "flex", promptTokensMax: 1000 },
      { list: "partners", serviceTier: "flex", abovePromptTokens: 1000 },
    ]);
  });

  test("states prices of its own, which the factor does not change, for all routes of a model", () => {
    const prices = {
      two: [
        { input: "5", output: "6" },
        { from: "2026-12-01", input: "7" },
      ],
      long: { input: "8", output: "9" },
    };
    const catalog = catalogOf({ factor: "0.5", prices });
    expect(modelOf(catalog, "two").routes.map(({ prices: { input } }) => input)).toEqual([per("5"), per("5")]);
    expect(modelOf(catalog, "two").routes[1]?.next).toMatchObject({
      model: "m2",
      prices: { input: per("7"), output: per("6") },
    });
    expect(inputs(modelOf(catalog, "long"))).toEqual([per("8")]);
    expect(modelOf(catalogOf({ prices }, Date.parse("2026-12-02")), "two").prices.input).toBe(per("7"));
    expect(modelOf(catalog, "dated").prices.input).toBe(per("0.5"));
  });

  test("has the aliases, and a limit of calls where it alone prices them", () => {
    const catalog = catalogOf({ prices: { long: { input: "1", output: "1", perSearch: "0.01" } } });
    expect(catalog.find("any-thing")?.id).toBe("long");
    expect(catalog.find("any-thing")?.routes[0]?.callsMost).toBe(10);
    expect(catalog.list()).toHaveLength(MODELS.length + 7);
  });

  test.each([
    [
      { prices: { none: { input: "1", output: "1" } } },
      /^priceLists\.partners\.prices: found "none", which is no model; allowed: dated, long/,
    ],
    [{ prices: { two: { input: "1" } } }, /^priceLists\.partners\.prices\.two\.output: missing/],
    [
      { prices: { two: [{ from: "2027-01-01", input: "1", output: "1" }] } },
      /^priceLists\.partners\.prices\.two\[0\]\.from: found "2027/,
    ],
    [
      { factor: "1000000000" },
      /^priceLists\.partners\.factor: found 1000000000; allowed: a smaller number: a price of dated/,
    ],
  ])("with the mistake %j is refused in one line", (list, message) => {
    expect(() => catalogOf(list)).toThrow(OperatorError);
    expect(() => catalogOf(list)).toThrow(message);
  });
});
