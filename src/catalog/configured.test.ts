import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { OperatorError } from "../errors.ts";
import { buildCatalog } from "./build.ts";
import type { ModelSettings } from "./configured.ts";
import { priceHistory, pricesAt } from "./model.ts";

const OPENAI = { id: "openai", kind: "openai-compatible", baseUrl: "https://api.openai.com/v1" };
const LOCAL = { id: "local", kind: "openai-compatible", baseUrl: "http://127.0.0.1:9/v1" };
const NOW = "2026-11-21T12:00:00Z";

function at(time: string, settings: Partial<ModelSettings>) {
  const models = [{ id: "m", routes: [{ provider: "local", model: "x" }], ...settings }];
  const sources = { models, providers: [OPENAI, LOCAL], credits: { perDollar: "1", markup: "0" } };
  const model = buildCatalog(sources, Date.parse(time)).find("m");
  if (model === undefined) throw new Error("The model is not listed");
  return model;
}
const configured = (settings: Partial<ModelSettings>) => at(NOW, settings);

describe("A dated price", () => {
  const price = [
    { input: "1", output: "4" },
    { from: "2026-12-01", input: "2", cacheWrite: "2.5", output: "8", reasoning: "9" },
    { from: "2027-01-01", input: "3", output: "12" },
  ];

  test("is in force from midnight in UTC until the next price's day.", () => {
    expect(at("2026-11-30T23:59:59.999Z", { price }).prices).toMatchObject({ input: 1_000_000n, output: 4_000_000n });
    expect(at("2026-12-01T00:00:00Z", { price }).prices).toEqual({
      input: 2_000_000n,
      cachedInput: 2_000_000n,
      cacheWrite: 2_500_000n,
      output: 8_000_000n,
      reasoning: 9_000_000n,
      tier: { from: "2026-12-01" },
    });
    expect(at("2026-12-31T23:59:59.999Z", { price }).prices.input).toBe(2_000_000n);
    expect(at("2030-01-01T00:00:00Z", { price }).routes[0]?.prices.input).toBe(3_000_000n);
  });

  test("is listed with those before and after it; the highest one of all routes at each date applies.", () => {
    const history = (routes: ModelSettings["routes"]) =>
      priceHistory(configured({ price, routes }).routes).map(({ fromMs, prices }) => [
        fromMs === null ? null : new Date(fromMs).toISOString().slice(0, 10),
        Number(prices.input) / 1e6,
      ]);
    const [route] = configured({ price }).routes;
    const own = { provider: route?.providerId ?? "", model: route?.model ?? "" };
    expect(history([own])).toEqual([
      [null, 1],
      ["2026-12-01", 2],
      ["2027-01-01", 3],
    ]);
    const dearer = {
      ...own,
      price: [
        { input: "1", output: "1" },
        { from: "2026-12-15", input: "9", output: "9" },
      ],
    };
    expect(history([own, dearer])).toEqual([
      [null, 1],
      ["2026-12-01", 2],
      ["2026-12-15", 9],
      ["2027-01-01", 9],
    ]);
    expect(priceHistory(configured({ price: { input: "1", output: "1" } }).routes)).toEqual([]);
  });

  test("inherits what it does not state from the price before it, tiers as a whole.", () => {
    const first = { input: "1", cachedInput: "0.1", output: "4", perRequest: "0.01" };
    const tiers = { abovePromptTokens: { 1000: { input: "2" } }, serviceTiers: { flex: { output: "3" } } };
    const dated = [
      { ...first, ...tiers },
      { from: "2027-01-01", output: "5" },
    ];
    const kept = at("2027-01-01T00:00:00Z", { price: dated }).routes[0];
    const classes = { cachedInput: 100_000n, output: 5_000_000n, requests: 10_000_000_000n };
    expect(kept?.prices).toMatchObject({ input: 2_000_000n, ...classes });
    expect(kept?.tiers).toMatchObject([{ promptTokensMax: 1000, prices: { input: 1_000_000n, ...classes } }]);
    expect(kept?.serviceTiers).toMatchObject({ flex: { prices: { output: 3_000_000n } } });
    const without = { from: "2027-02-01", abovePromptTokens: {}, serviceTiers: {}, perRequest: "0" };
    const ended = at("2027-02-01T00:00:00Z", { price: [...dated, without] }).routes[0];
    expect(ended?.prices).toMatchObject({ input: 1_000_000n, output: 5_000_000n, requests: 0n });
    expect([ended?.tiers, ended?.serviceTiers]).toEqual([undefined, {}]);
  });

  test("of a route takes precedence over the model's.", () => {
    const model = at("2026-12-01T00:00:00Z", {
      price: { input: "5", output: "5" },
      routes: [
        { provider: "local", model: "x", price },
        { provider: "local", model: "y" },
      ],
    });
    expect(model.routes.map(({ prices }) => prices.input)).toEqual([2_000_000n, 5_000_000n]);
    expect(model.prices).toMatchObject({ input: 5_000_000n, output: 8_000_000n, reasoning: 9_000_000n });
  });

  test.each([
    [
      [{ from: "2027-01-01", input: "1", output: "1" }],
      'models[0].price[0].from: found "2027-01-01"; allowed: a date that is not in the future, or no date',
    ],
    [
      [...price, { from: "2026-12-31", input: "1", output: "1" }],
      'models[0].price[3].from: found "2026-12-31"; allowed: a later date than the one before it, as YYYY-MM-DD',
    ],
    [
      [...price, { input: "1", output: "1" }],
      "models[0].price[3].from: missing; allowed: a later date than the one before it, as YYYY-MM-DD",
    ],
    [
      [{ output: "1" }, { from: "2027-01-01", input: "1" }],
      "models[0].price[0].input: missing; allowed: a decimal number, 0 or more, such as 0.25",
    ],
    [
      [price[0], { from: "2027-01-01", input: "x", output: "1" }],
      'models[0].price[1].input: found "x"; allowed: a decimal number, 0 or more, such as 0.25',
    ],
  ])("%j is refused.", (wrong, message) => {
    expect(() => at("2026-11-21T00:00:00Z", { price: wrong as typeof price })).toThrow(new OperatorError(message));
  });
});

describe("A price tier", () => {
  const CLASSES = ["input", "cachedInput", "output", "reasoning", "perRequest"] as const;
  const classes = fc.dictionary(fc.constantFrom(...CLASSES), fc.nat(99).map(String), { noNullPrototype: true });
  const lengths = fc.dictionary(fc.constantFrom("1000", "2000", "3000"), classes, { noNullPrototype: true });
  const tier = fc.tuple(classes, lengths).map(([own, abovePromptTokens]) => ({ ...own, abovePromptTokens }));

  /** The price of a class that was stated last for prompts of this length, by a search from the longest bound down. */
  function lastStated(of: Record<string, unknown>, name: string, promptTokens: number): string | undefined {
    const longer = (of.abovePromptTokens ?? {}) as Record<string, Record<string, string>>;
    for (const bound of ["3000", "2000", "1000"]) {
      const price = longer[bound]?.[name];
      if (promptTokens > Number(bound) && price !== undefined) return price;
    }
    return of[name] as string | undefined;
  }

  test("costs, for what it does not state, as much as shorter prompts and the usual tier.", () => {
    fc.assert(
      fc.property(tier, tier, fc.constantFrom(1, 1000, 1001, 2000, 2001, 3000, 3001), (usual, flex, promptTokens) => {
        const base = { input: "100", output: "200", ...usual };
        const price = { ...base, serviceTiers: { flex } } as ModelSettings["price"];
        const [route] = configured({ ...(price && { price }) }).routes;
        if (route === undefined) throw new Error("There is no route");
        for (const [name, statements] of [
          ["flex", [flex, base]],
          ["default", [base]],
        ] as const) {
          const charged = pricesAt(route, promptTokens, name);
          const stated = (setting: string) =>
            statements.map((one) => lastStated(one, setting, promptTokens)).find((found) => found !== undefined);
          const input = Number(stated("input"));
          const output = Number(stated("output"));
          expect(charged).toMatchObject({
            input: BigInt(input) * 1_000_000n,
            cachedInput: BigInt(stated("cachedInput") ?? input) * 1_000_000n,
            output: BigInt(output) * 1_000_000n,
            reasoning: BigInt(stated("reasoning") ?? output) * 1_000_000n,
          });
          const fee = stated("perRequest");
          expect(charged.requests).toBe(fee === undefined ? undefined : BigInt(fee) * 1_000_000_000_000n);
        }
      }),
    );
  });

  test("notes when it applies.", () => {
    const price = {
      ...{ input: "1", output: "4", abovePromptTokens: { 1000: { input: "2" }, 2000: { input: "3" } } },
      serviceTiers: { flex: { output: "2" }, fast: { abovePromptTokens: { 1500: { output: "9" } } } },
    };
    const [route] = configured({ price }).routes;
    const tierAt = (promptTokens: number, name?: string) => route && pricesAt(route, promptTokens, name).tier;
    expect(tierAt(1000)).toEqual({ promptTokensMax: 1000 });
    expect(tierAt(1001)).toEqual({ abovePromptTokens: 1000, promptTokensMax: 2000 });
    expect(tierAt(2001)).toEqual({ abovePromptTokens: 2000 });
    expect(tierAt(2001, "flex")).toEqual({ serviceTier: "flex", abovePromptTokens: 2000 });
    expect(tierAt(1600, "fast")).toEqual({ serviceTier: "fast", abovePromptTokens: 1500, promptTokensMax: 2000 });
    expect(configured({ price: { input: "1", output: "4" } }).routes[0]?.prices).not.toHaveProperty("tier");
  });
});

describe("Several routes", () => {
  const price = { input: "1", output: "1" };
  test("all have weights, or none has.", () => {
    const routes = [
      { provider: "local", model: "x", weight: 3 },
      { provider: "local", model: "y", weight: 1 },
    ];
    expect(configured({ routes, price }).routes.map(({ weight }) => weight)).toEqual([3, 1]);
    const wrong = [...routes, { provider: "local", model: "z" }];
    expect(() => configured({ routes: wrong, price })).toThrow(
      new OperatorError(
        "models[0].routes[2].weight: found none, although others have one; allowed: a weight for each route, or for none",
      ),
    );
  });

  test("have the capabilities that all of them have, and the longest context window.", () => {
    const both = configured({
      routes: [
        { provider: "openai", model: "gpt-3.5-turbo" },
        { provider: "openai", model: "gpt-5-mini" },
      ],
    });
    const old = configured({ routes: [{ provider: "openai", model: "gpt-3.5-turbo" }] });
    const recent = configured({ routes: [{ provider: "openai", model: "gpt-5-mini" }] });
    expect(old.contextWindow).toBeLessThan(recent.contextWindow);
    expect(both.contextWindow).toBe(recent.contextWindow);
    expect(both.routes.map(({ contextWindow }) => contextWindow)).toEqual([old.contextWindow, recent.contextWindow]);
    expect(recent.capabilities.has("vision")).toBe(true);
    expect([both.capabilities.has("vision"), both.capabilities.has("reasoning")]).toEqual([false, false]);
    expect(both.refusedParameters).toEqual(new Set([...old.refusedParameters, ...recent.refusedParameters]));
  });
});
