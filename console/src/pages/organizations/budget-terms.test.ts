import { describe, expect, test } from "vitest";
import type { BudgetCounter } from "../../api/types.ts";
import { NO_LIMITS } from "../read-form.ts";
import {
  budgetSummary,
  coverageLabel,
  EMPTY_BUDGET,
  eachLabel,
  fieldOfParam,
  fillOf,
  readBudget,
  usageLabel,
} from "./budget-terms.ts";

const counter = (figures: Partial<BudgetCounter>): BudgetCounter => ({
  ...{ value: null, begins_at: null, resets_at: null, limit: 10, spent: 0, held: 0, remaining: 10 },
  ...figures,
});

describe("the words of a budget", () => {
  test("The coverage names tokens, models and metadata, and a budget without a selector covers all requests.", () => {
    expect(coverageLabel({ tokens: null, models: null, metadata: null })).toBe("All requests");
    const metadata = { team: ["\u202emoc.live", "\u05d0\u05d1", "web"] };
    expect(coverageLabel({ metadata })).toBe("Requests with team \uFFFDmoc.live, \u2068\u05d0\u05d1\u2069 or web");
    const selector = {
      tokens: ["tok_1", "tok_2"],
      models: ["sandbox/*"],
      metadata: { team: ["red", "blue", "green"] },
    };
    expect(coverageLabel(selector, (id) => (id === "tok_1" ? "web app" : id))).toBe(
      "Requests of web app or tok_2, for sandbox/*, with team red, blue or green",
    );
    expect([eachLabel("token"), eachLabel("metadata.user")]).toEqual(["each token", "each value of user"]);
  });

  test("The summary says how much which requests may spend in which time.", () => {
    const terms = { name: "a", window: "day", amount: 2 } as const;
    expect(budgetSummary({ ...terms, each: "metadata.user" }, String)).toBe(
      "All requests: 2.00 credits a day, for each value of user.",
    );
    expect(budgetSummary({ ...terms, window: "lifetime", selector: { models: ["m"] } }, String)).toBe(
      "Requests for m: 2.00 credits in total.",
    );
  });

  test("The summary names the limits of a budget, next to its amount or alone.", () => {
    const limits = { requests_per_minute: 60, tokens_per_minute: 1_000 };
    expect(budgetSummary({ name: "a", each: "token", limits }, String)).toBe(
      "All requests: 60 requests per minute, 1,000 tokens per minute, for each token.",
    );
    expect(budgetSummary({ name: "a", amount: 2, limits: { concurrent_requests: 1 } }, String)).toBe(
      "All requests: 2.00 credits a month, 1 concurrent request.",
    );
  });

  test("Spent and held credits are stated exactly.", () => {
    expect(usageLabel(counter({ spent: 0.000001, held: 1.5 }))).toBe("0.000001 spent, 1.50 held of 10.00");
  });
});

describe("the bar of a budget", () => {
  test("The bar shows spent and held credits next to each other and never more than its width.", () => {
    expect(fillOf(counter({ spent: 2.5, held: 5, remaining: 2.5 }))).toEqual({
      ...{ spentPercent: 25, heldPercent: 50, warning: null },
    });
    expect(fillOf(counter({ spent: 12, held: 3, remaining: 0 }))).toMatchObject({ spentPercent: 100, heldPercent: 0 });
  });

  test("A budget is nearly used from 80 % on, and used up only when nothing remains.", () => {
    expect(fillOf(counter({ spent: 7.999999, remaining: 2.000001 })).warning).toBeNull();
    expect(fillOf(counter({ spent: 6, held: 2, remaining: 2 })).warning?.text).toBe("80% used");
    expect(fillOf(counter({ spent: 9.999999, remaining: 0.000001 })).warning?.text).toBe("99% used");
    expect(fillOf(counter({ spent: 10, remaining: 0 })).warning?.text).toBe("Used up");
  });
});

describe("the form for a budget", () => {
  const draft = { ...EMPTY_BUDGET, name: " team ", amount: "1,250.5" };

  test("Blank fields select nothing.", () => {
    expect(readBudget(draft)).toEqual({
      budget: {
        name: "team",
        selector: { tokens: null, models: null, metadata: null },
        each: null,
        window: "month",
        amount: 1250.5,
        limits: null,
      },
    });
  });

  test("A budget has an amount, limits or both.", () => {
    const limits = { ...NO_LIMITS, requests_per_minute: "60", concurrent_requests: "2" };
    const read = readBudget({ ...draft, amount: " ", limits });
    expect(read).toMatchObject({
      budget: { amount: null, limits: { requests_per_minute: 60, concurrent_requests: 2 } },
    });
    expect(readBudget({ ...draft, amount: "" })).toEqual({ errors: { amount: "Enter credits, limits or both." } });
    const invalid = { ...NO_LIMITS, tokens_per_minute: "0" };
    expect(readBudget({ ...draft, amount: "", limits: invalid })).toHaveProperty("errors.limits");
  });

  test("Models are separated by commas, and lines of metadata with the same key are alternatives.", () => {
    const full = { ...draft, models: "a, sandbox/*,, a", metadata: "team=red\n\n team = blue=green \n__proto__=x" };
    const read = readBudget({ ...full, tokens: ["tok_1"], each: "metadata", key: " user " });
    const metadata = Object.fromEntries([
      ["team", ["red", "blue=green"]],
      ["__proto__", ["x"]],
    ]);
    const selector = { tokens: ["tok_1"], models: ["a", "sandbox/*"], metadata };
    expect(read).toMatchObject({ budget: { selector, each: "metadata.user" } });
  });

  test("Each invalid field has its error.", () => {
    const invalid = { ...EMPTY_BUDGET, amount: "2,5", metadata: "team=red\nblue", each: "metadata" } as const;
    expect(readBudget(invalid)).toEqual({
      errors: {
        name: "Enter a name.",
        amount: expect.stringContaining("Ambiguous"),
        metadata: "Line 2: enter key=value.",
        key: "Enter a metadata key.",
      },
    });
    expect(readBudget({ ...draft, metadata: "=red" })).toHaveProperty("errors.metadata");
    expect(readBudget({ ...draft, metadata: "team= " })).toHaveProperty("errors.metadata");
  });

  test("An error of the service belongs to the field that its parameter names.", () => {
    const params = [
      "selector.models[0]",
      "selector.tokens[12]",
      "selector.metadata.team",
      "name",
      "limits.tokens_per_minute",
      "id",
      null,
    ];
    expect(params.map(fieldOfParam)).toEqual(["models", "tokens", "metadata", "name", "limits", null, null]);
  });
});
