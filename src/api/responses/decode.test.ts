import { describe, expect, test } from "vitest";
import { issueIn } from "../../../test/support/issue.ts";
import { decodeResponses } from "./decode.ts";
import { toEncryptedContent as seal } from "./reasoning.ts";
import { ResponsesRequest } from "./request.ts";

const GO = { model: "m", input: "Go" };

function decoded(fields: object) {
  return decodeResponses({ ...GO, ...structuredClone(fields) });
}

function issueOf(fields: object) {
  return issueIn(() => decoded(fields));
}

const call = (id: string) => ({ type: "function_call", call_id: id, name: "f", arguments: "{}" });
const output = (id: string, text: unknown) => ({ type: "function_call_output", call_id: id, output: text });
const toolCall = (id: string) => ({ id, type: "function", function: { name: "f", arguments: "{}" } });
const said = (text: string) => ({ role: "assistant", content: [{ type: "output_text", text }] });
const reasoning = (fields: object) => ({ type: "reasoning", id: "rs_1", summary: [], ...fields });
const FORMAT = "openai-responses-v1";

describe("Input becomes messages:", () => {
  const cases: [name: string, input: unknown, messages: object[]][] = [
    ["a string", "Go", [{ role: "user", content: "Go" }]],
    [
      "messages with and without a type",
      [
        { role: "developer", content: "Be kind." },
        { type: "message", id: null, role: "user", content: [{ type: "input_text", text: "Go" }] },
      ],
      [
        { role: "developer", content: "Be kind." },
        { role: "user", content: [{ type: "text", text: "Go" }] },
      ],
    ],
    [
      "a text and calls of one turn, and their results",
      [said("I look."), call("a"), call("b"), output("a", "1"), output("b", [{ type: "input_text", text: "2" }])],
      [
        { role: "assistant", content: [{ type: "text", text: "I look." }], tool_calls: [toolCall("a"), toolCall("b")] },
        { role: "tool", tool_call_id: "a", content: "1" },
        { role: "tool", tool_call_id: "b", content: [{ type: "text", text: "2" }] },
      ],
    ],
    [
      "a text after a call, which belongs to the message of the call",
      [call("a"), said("I look."), output("a", "1")],
      [
        { role: "assistant", tool_calls: [toolCall("a")], content: [{ type: "text", text: "I look." }] },
        { role: "tool", tool_call_id: "a", content: "1" },
      ],
    ],
    [
      "two answers in a row",
      [
        { role: "assistant", content: "One." },
        { role: "assistant", content: [{ type: "refusal", refusal: "No." }] },
      ],
      [
        { role: "assistant", content: "One." },
        { role: "assistant", refusal: "No." },
      ],
    ],
    [
      "encrypted reasoning of an upstream",
      [reasoning({ summary: [{ type: "summary_text", text: "Hm." }], encrypted_content: "x1" }), call("a")],
      [
        {
          role: "assistant",
          reasoning_details: [
            { type: "reasoning.summary", format: FORMAT, id: "rs_1", summary: "Hm." },
            { type: "reasoning.encrypted", format: FORMAT, id: "rs_1", data: "x1" },
          ],
          tool_calls: [toolCall("a")],
        },
      ],
    ],
    [
      "reasoning and data of calls that this service sealed",
      [
        reasoning({
          summary: [{ type: "summary_text", text: "Hm." }],
          encrypted_content: seal({ details: [{ type: "reasoning.text", format: "f", text: "Hm.", signature: "s" }] }),
        }),
        call("a"),
        reasoning({ encrypted_content: seal({ calls: { a: { key: 1 } } }) }),
      ],
      [
        {
          role: "assistant",
          reasoning_content: "Hm.",
          reasoning_details: [{ type: "reasoning.text", format: "f", text: "Hm.", signature: "s" }],
          tool_calls: [{ ...toolCall("a"), extra_content: { key: 1 } }],
        },
      ],
    ],
    [
      "images and files",
      [
        {
          role: "user",
          content: [
            { type: "input_image", image_url: "https://images.example.com/a.png", detail: "original" },
            { type: "input_file", filename: "a.pdf", file_data: "data:application/pdf;base64,AAAA" },
          ],
        },
      ],
      [
        {
          role: "user",
          content: [
            { type: "image_url", image_url: { url: "https://images.example.com/a.png", detail: "high" } },
            { type: "file", file: { filename: "a.pdf", file_data: "data:application/pdf;base64,AAAA" } },
          ],
        },
      ],
    ],
    [
      "a custom tool call and its result",
      [
        { type: "custom_tool_call", call_id: "c", name: "patch", input: "+" },
        { type: "custom_tool_call_output", call_id: "c", output: "ok" },
      ],
      [
        {
          role: "assistant",
          tool_calls: [{ id: "c", type: "function", function: { name: "patch", arguments: '{"input":"+"}' } }],
        },
        { role: "tool", tool_call_id: "c", content: "ok" },
      ],
    ],
  ];
  test.each(cases)("%s", (_name, input, messages) => {
    expect(decoded({ input }).request.messages).toEqual(messages);
  });
});

test("The settings become fields of a chat completion.", () => {
  const schema = { type: "object" };
  const { request, output: bound } = decoded({
    instructions: "Be kind.",
    max_output_tokens: 100_000,
    temperature: 2,
    top_logprobs: 3,
    reasoning: { effort: "low", summary: null },
    text: { format: { type: "json_schema", name: "n", schema, strict: true } },
    store: null,
  });
  expect(request).toEqual({
    model: "m",
    messages: [{ role: "user", content: "Go" }],
    instructions: "Be kind.",
    temperature: 2,
    max_completion_tokens: 100_000,
    response_format: { type: "json_schema", json_schema: { name: "n", schema, strict: true } },
    reasoning_effort: "low",
    logprobs: true,
    top_logprobs: 3,
  });
  expect(bound).toEqual({ param: "max_output_tokens", tokens: 100_000, isLimitedBySetting: false });
});

test("Only the allowed tools are offered, and a custom tool is a function whose description has its grammar.", () => {
  const tools = [
    { type: "function", name: "f" },
    {
      type: "custom",
      name: "c",
      description: "Patches.",
      format: { type: "grammar", syntax: "lark", definition: "x: y" },
    },
  ];
  const choice = { type: "allowed_tools", mode: "required", tools: [{ type: "custom", name: "c" }] };
  const { request } = decoded({ tools, tool_choice: choice });
  expect(request.tool_choice).toBe("required");
  expect(request.tools?.map(({ function: { name, description } }) => [name, description])).toEqual([
    ["c", "Patches.\n\nThe input must match this lark grammar:\nx: y"],
  ]);
  const named = decoded({ tools, tool_choice: { type: "custom", name: "c" } }).request;
  expect(named.tool_choice).toEqual({ type: "function", function: { name: "c" } });
  expect(named.tools).toHaveLength(2);
});

describe("Refused:", () => {
  const item = (fields: object) => ({ input: [fields] });
  const part = (fields: object) => item({ role: "user", content: [fields] });
  const cases: [fields: object, code: string, param: string][] = [
    [{ reasoning: { mode: "pro" } }, "unsupported_value", "reasoning.mode"],
    [{ input: undefined }, "missing_required_parameter", "input"],
    [{ input: [] }, "invalid_value", "input"],
    [{ temperature: 2.1 }, "decimal_above_max_value", "temperature"],
    [{ background: true }, "unsupported_value", "background"],
    [{ conversation: "conv_1" }, "unsupported_value", "conversation"],
    [{ prompt: { id: "p" } }, "unsupported_value", "prompt"],
    [{ previous_response_id: "resp_1" }, "previous_response_not_found", "previous_response_id"],
    [{ tools: [{ type: "code_interpreter" }] }, "unsupported_value", "tools[0].type"],
    [{ tools: [{ type: "custom", name: "c", async: true }] }, "unsupported_value", "tools[0].async"],
    [{ tool_choice: "required" }, "invalid_value", "tool_choice"],
    [{ tool_choice: { type: "file_search" } }, "unsupported_value", "tool_choice.type"],
    [
      { tools: [{ type: "function", name: "f" }], tool_choice: { type: "function", name: "g" } },
      "invalid_value",
      "tool_choice.name",
    ],
    [item({ type: "item_reference", id: "msg_1" }), "invalid_value", "input[0].id"],
    [item({ type: "mcp_call" }), "invalid_value", "input[0].type"],
    [item({ type: "function_call_output", output: "1" }), "missing_required_parameter", "input[0].call_id"],
    [item(reasoning({ encrypted_content: "tollgate.AAAA" })), "invalid_value", "input[0].encrypted_content"],
    [part({ type: "input_image", file_id: "file_1" }), "unsupported_value", "input[0].content[0].file_id"],
    [part({ type: "input_image", image_url: "http://a.example" }), "invalid_value", "input[0].content[0].image_url"],
    [part({ type: "input_file", file_data: "AAAA" }), "invalid_value", "input[0].content[0].file_data"],
    [part({ type: "input_file", file_url: "https://10.0.0.1/a" }), "invalid_value", "input[0].content[0].file_url"],
  ];
  test.each(cases)("%j", (fields, code, param) => {
    expect(issueOf(fields)).toMatchObject({ code, param });
  });
});

test("No field passes to upstreams of this wire but these, whose cost a hold covers.", () => {
  expect(Object.keys(ResponsesRequest.properties).sort()).toEqual([
    // Upstreams never receive `background` and `service_tier`.
    ...["background", "include", "input", "instructions", "max_output_tokens", "max_tool_calls", "metadata", "model"],
    ...["parallel_tool_calls", "previous_response_id", "prompt_cache_key", "reasoning", "safety_identifier"],
    ...["service_tier", "store", "stream", "stream_options", "temperature", "text", "tool_choice", "tools"],
    ...["top_logprobs", "top_p", "truncation", "user"],
  ]);
});

test("Fields without an effect are named, and upstreams on this wire do not receive them.", () => {
  const sealed = reasoning({ encrypted_content: seal({ calls: {} }) });
  const { ignored, native, request } = decoded({
    input: [sealed, { role: "user", content: "Go", other: 1 }],
    service_tier: "priority",
    max_tool_calls: 2,
    include: ["file_search_call.results"],
    newest_field: 1,
    "odd\nname": 1,
    text: { verbosity: "low", newer_field: 1 },
    reasoning: { mode: "standard" },
    prompt_cache_key: "key",
    safety_identifier: "someone",
    store: true,
    metadata: { a: "b" },
  });
  expect(ignored).toEqual([
    "input.other",
    "newest_field",
    "odd_name",
    "text.newer_field",
    "service_tier",
    "include",
    "max_tool_calls",
  ]);
  expect(request).toMatchObject({ verbosity: "low", prompt_cache_key: "key", safety_identifier: "someone" });
  expect(native).toMatchObject({ wire: "responses", hints: [] });
  expect(native?.body).toEqual({
    model: "m",
    input: [{ type: "message", role: "user", content: "Go" }],
    include: ["reasoning.encrypted_content"],
    text: { verbosity: "low" },
    reasoning: { mode: "standard" },
    prompt_cache_key: "key",
    safety_identifier: "someone",
    store: false,
  });
});

test("Errors name the fields as the client sent them.", () => {
  const image = { type: "input_image", image_url: "https://images.example.com/a.png" };
  const { paramOf } = decoded({
    input: [
      said("One."),
      call("a"),
      { type: "function_call_output", call_id: "a", output: [image] },
      { role: "user", content: "Go" },
    ],
  });
  expect(paramOf?.("messages[1].content[0].image_url.url")).toBe("input[2].output[0].image_url");
  expect(paramOf?.("messages[0].tool_calls[0].function")).toBe("input[0]");
  expect(paramOf?.("messages[2].content")).toBe("input[3].content");
  expect(paramOf?.("messages")).toBe("input");
  expect(paramOf?.("response_format.type")).toBe("text.format.type");
  expect(paramOf?.("tools")).toBe("tools");
});

test("Of the calls with the same id, only the last one gets the provider's data.", () => {
  const sealed = reasoning({ encrypted_content: seal({ calls: { a: "long" } }) });
  const { messages } = decoded({ input: [call("a"), output("a", "x"), sealed, call("a"), output("a", "y")] }).request;
  const extras = messages.flatMap(({ tool_calls: calls = [] }) => calls.map(({ extra_content }) => extra_content));
  expect(extras).toEqual([undefined, "long"]);
});
