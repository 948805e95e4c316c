import { describe, expect, test } from "vitest";
import { issueIn } from "../../../test/support/issue.ts";
import { decodeChatCompletion } from "./decode.ts";

const messages = [{ role: "user", content: "hello" }];
const check = (fields: object) => decodeChatCompletion({ model: "m", messages, ...fields });
const issueOf = (fields: object) => issueIn(() => check(fields));

describe("An invalid request is rejected with the code, the field and a message", () => {
  const cases: [string, object, string, string | null, string | RegExp][] = [
    ["no model", { model: undefined }, "missing_required_parameter", "model", "Missing required parameter: 'model'."],
    ["no messages", { messages: null }, "missing_required_parameter", "messages", /'messages'/],
    ["empty messages", { messages: [] }, "invalid_value", "messages", /empty array/],
    ["messages as text", { messages: "hi" }, "invalid_type", "messages", /expected an array, but got a string/],
    [
      "unknown role",
      { messages: [{ role: "robot", content: "x" }] },
      "invalid_value",
      "messages[0].role",
      "Invalid value: 'robot'. Supported values are: 'system', 'developer', 'user', 'assistant', 'tool', and 'function'.",
    ],
    [
      "content null",
      { messages: [{ role: "user", content: null }] },
      "missing_required_parameter",
      "messages[0].content",
      /content/,
    ],
    [
      "content a number",
      { messages: [{ role: "user", content: 5 }] },
      "invalid_type",
      "messages[0].content",
      /a string or an array/,
    ],
    [
      "unknown part",
      { messages: [{ role: "user", content: [{ type: "sound" }] }] },
      "invalid_value",
      "messages[0].content[0].type",
      /'text', 'image_url', 'file'/,
    ],
    [
      "part without text",
      { messages: [{ role: "user", content: [{ type: "text" }] }] },
      "missing_required_parameter",
      "messages[0].content[0].text",
      /text/,
    ],
    [
      "tool message without call",
      { messages: [{ role: "tool", content: "4" }] },
      "missing_required_parameter",
      "messages[0].tool_call_id",
      /tool_call_id/,
    ],
    ["temperature above", { temperature: 1.01 }, "decimal_above_max_value", "temperature", /<= 1, but got 1.01/],
    ["temperature below", { temperature: -0.01 }, "decimal_below_min_value", "temperature", />= 0, but got -0.01/],
    [
      "temperature as text",
      { temperature: "0.5" },
      "invalid_type",
      "temperature",
      /expected a number, but got a string/,
    ],
    ["max_tokens zero", { max_tokens: 0 }, "invalid_value", "max_tokens", />= 1/],
    [
      "max_tokens fraction",
      { max_tokens: 1.5 },
      "invalid_type",
      "max_tokens",
      /expected an integer, but got a decimal/,
    ],
    [
      "both limits",
      { max_tokens: 5, max_completion_tokens: 5 },
      "invalid_value",
      "max_tokens",
      /Send only one of them/,
    ],
    ["too many choices", { n: 9 }, "invalid_value", "n", /Expected a value <= 8/],
    ["stream as text", { stream: "true" }, "invalid_type", "stream", /a boolean/],
    ["tool choice word", { tool_choice: "always" }, "invalid_value", "tool_choice", /'none', 'auto', and 'required'/],
    ["tool choice alone", { tool_choice: "required" }, "invalid_value", "tool_choice", /when 'tools'/],
    ["five stops", { stop: ["a", "b", "c", "d", "e"] }, "invalid_value", "stop", /at most 4/],
    ["metadata of numbers", { metadata: { a: 1 } }, "invalid_type", "metadata.a", /a string/],
    ["response format", { response_format: { type: "xml" } }, "invalid_value", "response_format.type", /'json_schema'/],
  ];
  test.each(cases)("%s", (_name, fields, code, param, message) => {
    const issue = issueOf(fields);
    expect(issue).toMatchObject({ code, param });
    expect(issue?.message).toMatch(message);
  });

  test("A body that is not an object is rejected.", () => {
    for (const body of [[], null, "x", 5, undefined]) {
      expect(issueIn(() => decodeChatCompletion(body))).toMatchObject({ code: "invalid_type", param: null });
    }
  });

  test("Values in messages are on one line, shortened and well-formed.", () => {
    const issue = issueOf({ messages: [{ role: `a\r\nb\u001b[31m\ud800${"x".repeat(500)}`, content: "x" }] });
    expect(issue?.message.length).toBeLessThan(250);
    expect(issue?.message.isWellFormed()).toBe(true);
    expect(issue?.message).not.toMatch(/\p{Cc}/u);
  });
});

describe("A valid request is accepted", () => {
  test.each([
    ["bounds of temperature", { temperature: 0 }],
    ["bounds of temperature", { temperature: 1 }],
    ["bounds of max_tokens", { max_tokens: 1 }],
    ["bounds of max_tokens", { max_tokens: 4096 }],
    ["unknown fields", { functions: [], store: true, "x-y": { z: 1 } }],
    [
      "images",
      {
        messages: [{ role: "user", content: [{ type: "image_url", image_url: { url: "data:image/png;base64,AA" } }] }],
      },
    ],
    [
      "a call without content",
      {
        messages: [
          {
            role: "assistant",
            content: null,
            tool_calls: [{ id: "c", type: "function", function: { name: "f", arguments: "{}" } }],
          },
        ],
      },
    ],
  ])("%s", (_name, fields) => {
    expect(issueOf(fields)).toBeUndefined();
  });

  test("Null counts as absent, except inside the schema of a tool.", () => {
    const parameters = { type: "object", properties: { a: { default: null, enum: [null, 1] } } };
    const checked = check({
      temperature: null,
      stop: null,
      stream_options: { include_usage: null },
      messages: [{ role: "user", content: "x", name: null, tool_calls: null }],
      tools: [{ type: "function", function: { name: "f", strict: null, description: null, parameters } }],
    });
    expect(checked.request.temperature).toBeUndefined();
    expect(checked.request.messages[0]?.name).toBeUndefined();
    expect(checked.request.tools?.[0]?.function.parameters).toEqual(parameters);
  });

  test("Unknown fields are removed, also from parts and tools.", () => {
    const extra = { base_url: "http://elsewhere", depth: { of: {} } };
    const checked = check({
      ...extra,
      messages: [
        {
          role: "user",
          content: [
            { type: "text", text: "x", ...extra },
            { type: "image_url", image_url: { url: "https://a.com/b", detail: "low", ...extra }, ...extra },
          ],
          ...extra,
        },
      ],
      tools: [{ type: "function", function: { name: "f", ...extra }, ...extra }],
    });
    const text = JSON.stringify(checked.request);
    expect(text).not.toMatch(/base_url|depth/);
    expect(JSON.parse(text)).toMatchObject({
      messages: [
        {
          content: [
            { type: "text", text: "x" },
            { type: "image_url", image_url: { url: "https://a.com/b", detail: "low" } },
          ],
        },
      ],
      tools: [{ type: "function", function: { name: "f" } }],
    });
  });

  test.each([
    ["seed", '{"seed":1e309}'],
    ["temperature", '{"temperature":-1e309}'],
    ["logit_bias.a", '{"logit_bias":{"a":"1"}}'],
  ])("An infinite number is rejected: %s.", (param, text) => {
    expect(issueOf(JSON.parse(text))).toMatchObject({ code: "invalid_type", param });
  });

  test("A line break in a name does not hide a value.", () => {
    expect(issueOf({ logit_bias: { "a\nb": { any: "thing" } } })).toMatchObject({ code: "invalid_type" });
  });

  test("A key named __proto__ changes no object.", () => {
    const body = JSON.parse(
      '{"model":"m","messages":[{"role":"user","content":"x","__proto__":{"name":"evil"}}],"__proto__":{"n":7}}',
    );
    expect(decodeChatCompletion(body)).toHaveProperty("request");
    expect(({} as Record<string, unknown>).n).toBeUndefined();
  });
});
