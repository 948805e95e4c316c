import { expect, test } from "vitest";
import { bodyOf, FIRST_SETTINGS, maxTokensBound, maxTokensError } from "./settings.ts";

test("A setting that is not set is not sent.", () => {
  expect(bodyOf({ ...FIRST_SETTINGS, model: "m" }, [])).toEqual({ model: "m", messages: [] });
});

test("A setting that is set is sent, including zero.", () => {
  const settings = { model: "m", instructions: "Be brief", temperature: 0, maxTokens: "4096" };
  expect(bodyOf(settings, [])).toEqual({
    model: "m",
    messages: [],
    instructions: "Be brief",
    temperature: 0,
    max_tokens: 4096,
  });
});

test("max_tokens is a whole number from 1 to its maximum.", () => {
  const errorOf = (text: string) => maxTokensError(text, 4096);
  expect(["", "1", "4096"].map(errorOf)).toEqual([null, null, null]);
  expect(["0", "4097", "1.5", "x"].map((text) => typeof errorOf(text))).toEqual(Array(4).fill("string"));
});

test("The maximum of max_tokens is the smaller one of the service and the model.", () => {
  const model = { max_output_tokens: 16_384 };
  expect([4096, 100_000, null].map((setting) => maxTokensBound(setting, model))).toEqual([4096, 16_384, 16_384]);
});
