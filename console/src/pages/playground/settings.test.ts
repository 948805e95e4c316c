import { expect, test } from "vitest";
import { bodyOf, FIRST_SETTINGS, maxTokensError } from "./settings.ts";

test("what is not set is not sent", () => {
  expect(bodyOf({ ...FIRST_SETTINGS, model: "m" }, [])).toEqual({ model: "m", messages: [] });
});

test("what is set is sent, nought included", () => {
  const settings = { model: "m", instructions: "Be brief", temperature: 0, maxTokens: "4096" };
  expect(bodyOf(settings, [])).toEqual({
    model: "m",
    messages: [],
    instructions: "Be brief",
    temperature: 0,
    max_tokens: 4096,
  });
});

test("max_tokens is a whole number from 1 to 4096", () => {
  expect(["", "1", "4096"].map(maxTokensError)).toEqual([null, null, null]);
  expect(["0", "4097", "1.5", "x"].map((text) => typeof maxTokensError(text))).toEqual(Array(4).fill("string"));
});
