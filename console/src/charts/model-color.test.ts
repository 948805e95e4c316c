import { expect, test } from "vitest";
import { modelColors } from "./model-color.tsx";

const ids = Array.from({ length: 1200 }, (_, index) => `vendor/model-${index}`);

test("The usual color of a model depends on its ID alone, and twelve colors are used evenly.", () => {
  expect(modelColors(["gpt-5-mini"])("gpt-5-mini")).toBe(modelColors([])("gpt-5-mini"));
  const counts = [...Map.groupBy(ids.map(modelColors([])), (color) => color).values()].map((of) => of.length);
  expect(counts).toHaveLength(12);
  expect(Math.min(...counts)).toBeGreaterThan(50);
  expect(ids.map(modelColors([])).every((color) => /^var\(--model-([1-9]|1[0-2])\)$/.test(color))).toBe(true);
});

test("The models of the sandbox have different usual colors.", () => {
  const names = ["echo", "embed", "fault", "image", "speech", "story", "transcribe"];
  expect(new Set(names.map((name) => modelColors([])(`sandbox/${name}`))).size).toBe(names.length);
});

test("Up to twelve models that are shown together have different colors, in any order.", () => {
  for (let from = 0; from < ids.length; from += 12) {
    const shown = ids.slice(from, from + 12);
    const colors = shown.map(modelColors(shown));
    expect(new Set(colors).size).toBe(12);
    expect(shown.map(modelColors(shown.toReversed()))).toEqual(colors);
  }
});

test("A model gets another color only if one before it has the same.", () => {
  const [usual, together] = [modelColors([]), modelColors(["assistant-mini", "long-reader", "gpt-5-mini"])];
  expect(usual("long-reader")).toBe(usual("assistant-mini"));
  expect(together("assistant-mini")).toBe(usual("assistant-mini"));
  expect(together("long-reader")).not.toBe(usual("long-reader"));
  expect(together("gpt-5-mini")).toBe(usual("gpt-5-mini"));
});

test("More models than there are colors share the usual ones.", () => {
  const shown = ids.slice(0, 30);
  expect(new Set(shown.map(modelColors(shown))).size).toBe(12);
});
