import { describe, expect, test } from "vitest";
import { OperatorError } from "../errors.ts";
import { buildCatalog } from "./build.ts";
import type { ModelSettings } from "./configured.ts";

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
    });
    expect(at("2026-12-31T23:59:59.999Z", { price }).prices.input).toBe(2_000_000n);
    expect(at("2030-01-01T00:00:00Z", { price }).routes[0]?.prices.input).toBe(3_000_000n);
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
      [price[0], { from: "2027-01-01", input: "x", output: "1" }],
      'models[0].price[1].input: found "x"; allowed: a decimal number, 0 or more, such as 0.25',
    ],
  ])("%j is refused.", (wrong, message) => {
    expect(() => at("2026-11-21T00:00:00Z", { price: wrong as typeof price })).toThrow(new OperatorError(message));
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
        "models[0].routes[2].weight: found none beside routes that have one; allowed: a weight for each route, or for none",
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
