import { describe, expect, test } from "vitest";
import type { Model } from "../../api/types.ts";
import { filterModels, isModelPath, modelPath, parseCompared, toggleCompared } from "./find.ts";

const model = (id: string, category: string, capabilities: string[]) =>
  ({ id, name: id.toUpperCase(), description: "Fast and small", owned_by: "maker", category, capabilities }) as Model;
const models = [model("one-mini", "chat", ["chat", "vision"]), model("two", "code", ["chat"])];
const all = { search: "", category: "", capability: "" };
const found = (wanted: Partial<typeof all>) => filterModels(models, { ...all, ...wanted }).map(({ id }) => id);

describe("the search for models", () => {
  test("The search finds models that contain every word.", () => {
    expect(found({ search: "FAST mini" })).toEqual(["one-mini"]);
    expect(found({ search: "maker" })).toEqual(["one-mini", "two"]);
    expect(found({ search: "mini two" })).toEqual([]);
  });

  test("The filters find models by category and by capability.", () => {
    expect(found({ category: "code" })).toEqual(["two"]);
    expect(found({ capability: "vision" })).toEqual(["one-mini"]);
    expect(found({ category: "code", capability: "vision" })).toEqual([]);
  });
});

test("At most four models are compared.", () => {
  expect(parseCompared("")).toEqual([]);
  expect(toggleCompared(["a"], "b")).toBe("a,b");
  expect(toggleCompared(["a", "b"], "a")).toBe("b");
  expect(toggleCompared(["a", "b", "c", "d"], "e")).toBe("a,b,c,d");
  expect(parseCompared("a,b,c,d,e")).toHaveLength(4);
});

test("The path of a model is recognized for every character in its ID.", () => {
  expect(modelPath("local/llama 3:8b")).toBe("/models/local/llama%203%3A8b");
  expect([modelPath("a/b?c"), "/models/a/b?c"].map((path) => isModelPath(path, "a/b?c"))).toEqual([true, true]);
  expect(isModelPath("/models/a", "a/b")).toBe(false);
});
