import { expect, test } from "vitest";
import type { Model } from "../../../../src/api/model.ts";
import {
  bodyOf,
  cheapestModel,
  FIRST_SETTINGS,
  maxTokensBound,
  maxTokensError,
  schemaError,
  toolsError,
} from "./settings.ts";

test("A setting that is not set is not sent.", () => {
  expect(bodyOf(FIRST_SETTINGS, "m", [])).toEqual({ model: "m", messages: [] });
});

test("A setting that is set is sent, including zero.", () => {
  const settings = { ...FIRST_SETTINGS, instructions: "Be brief", temperature: 0, maxTokens: "4096" };
  expect(bodyOf(settings, "m", [])).toEqual({
    model: "m",
    messages: [],
    instructions: "Be brief",
    temperature: 0,
    max_tokens: 4096,
  });
});

test("max_tokens is a whole number from 1 to its maximum.", () => {
  const errorOf = (text: string) => maxTokensError(text, 4096);
  expect(["", "1", "4096", "4,096"].map(errorOf)).toEqual([null, null, null, null]);
  expect(errorOf("5000")).toBe("Enter a whole number from 1 to 4,096, or leave blank.");
  expect(bodyOf({ ...FIRST_SETTINGS, maxTokens: "4,096" }, "m", [])).toMatchObject({ max_tokens: 4096 });
  expect(["0", "4097", "1.5", "1,5", "x"].map((text) => typeof errorOf(text))).toEqual(Array(5).fill("string"));
});

test("Tools are a JSON list of functions, with or without their wrapper, and a schema is a JSON object.", () => {
  const tool = { type: "function", function: { name: "f", parameters: { type: "object" } } };
  for (const tools of [JSON.stringify([tool]), JSON.stringify([tool.function])]) {
    expect(bodyOf({ ...FIRST_SETTINGS, tools }, "m", [])).toEqual({ model: "m", messages: [], tools: [tool] });
  }
  expect(["", " ", "[]"].map(toolsError)).toEqual([null, null, null]);
  expect(["{}", "[{}]", '[{"name":""}]', "no"].map((text) => typeof toolsError(text))).toEqual(Array(4).fill("string"));
  const schema = '{"type":"object"}';
  const json_schema = { name: "answer", schema: { type: "object" } };
  const response_format = { type: "json_schema", json_schema };
  expect(bodyOf({ ...FIRST_SETTINGS, schema }, "m", [])).toEqual({ model: "m", messages: [], response_format });
  expect(["", schema].map(schemaError)).toEqual([null, null]);
  expect(["[]", "1", "no"].map((text) => typeof schemaError(text))).toEqual(Array(3).fill("string"));
});

test("The maximum of max_tokens is the smaller one of the service and the model.", () => {
  const model = { max_output_tokens: 16_384 };
  expect([4096, 100_000, null].map((setting) => maxTokensBound(setting, model))).toEqual([4096, 16_384, 16_384]);
});

test("The default model is the cheapest one, and one of the sandbox only if there is no other.", () => {
  const modelOf = (id: string, input: number, category = "chat") =>
    ({ id, category, pricing_details: { input, output: 2 * input } }) as unknown as Model;
  const sandbox = modelOf("sandbox/echo", 0, "sandbox");
  expect(cheapestModel([modelOf("a-dear", 9), sandbox, modelOf("cheap", 1), modelOf("other", 2)])).toBe("cheap");
  expect(cheapestModel([modelOf("sandbox/story", 1, "sandbox"), sandbox])).toBe("sandbox/echo");
  expect(cheapestModel([])).toBeUndefined();
});
