import { describe, expect, test } from "vitest";
import { requestOf } from "../../../test/support/wire.ts";
import type { RequestMessage } from "../../api/chat/request.ts";
import { UpstreamError, type UpstreamRequest } from "../provider.ts";
import { toResponsesBody } from "./responses-request.ts";

const bodyOf = (fields: Partial<UpstreamRequest>) =>
  JSON.parse(JSON.stringify(toResponsesBody(requestOf(fields)).body));
const inputOf = (...messages: RequestMessage[]) => bodyOf({ messages }).input;

function refusalOf(fields: Partial<UpstreamRequest>): UpstreamError {
  try {
    toResponsesBody(requestOf(fields));
  } catch (error) {
    if (error instanceof UpstreamError) return error;
  }
  throw new Error("The request was not refused");
}

describe("A chat completion becomes a body of the Responses API", () => {
  test("with its bound, which is stored nowhere and returns its reasoning encrypted.", () => {
    expect(bodyOf({ model: "gpt-5.3-codex", max_tokens: 50, user: "u", parallel_tool_calls: false })).toEqual({
      model: "gpt-5.3-codex",
      input: [{ type: "message", role: "user", content: [{ type: "input_text", text: "hello" }] }],
      max_output_tokens: 50,
      stream: true,
      store: false,
      include: ["reasoning.encrypted_content"],
      user: "u",
      parallel_tool_calls: false,
    });
  });

  test("with instructions and system messages as messages of the developer.", () => {
    expect(bodyOf({ instructions: "Be kind." }).input).toMatchObject([{ role: "developer", content: "Be kind." }, {}]);
    expect(inputOf({ role: "system", content: "Be brief." }, { role: "user", content: "Hi" })).toEqual([
      { type: "message", role: "developer", content: "Be brief." },
      { type: "message", role: "user", content: [{ type: "input_text", text: "Hi" }] },
    ]);
  });

  test("with images and files.", () => {
    const url = "data:image/png;base64,AAAA";
    const file = { filename: "a.pdf", file_data: "data:application/pdf;base64,AAAA" };
    const content: RequestMessage["content"] = [
      { type: "text", text: "See:" },
      { type: "image_url", image_url: { url, detail: "low" } },
      { type: "file", file },
    ];
    expect(inputOf({ role: "user", content })[0].content).toEqual([
      { type: "input_text", text: "See:" },
      { type: "input_image", image_url: url, detail: "low" },
      { type: "input_file", ...file },
    ]);
    const result: RequestMessage = { role: "tool", tool_call_id: "call_1", content };
    expect(inputOf(result)[0]).toMatchObject({ type: "function_call_output", output: [{}, { image_url: url }, {}] });
  });

  test("with calls, their results and only the reasoning that this API wrote.", () => {
    const format = "openai-responses-v1";
    const assistant: RequestMessage = {
      role: "assistant",
      content: "Let me see.",
      reasoning_content: "Checking",
      reasoning_details: [
        { type: "reasoning.summary", format, id: "rs_1", summary: "Checking" },
        { type: "reasoning.encrypted", format, id: "rs_1", data: "gAAAAABn" },
        { type: "reasoning.encrypted", format: "anthropic-claude-v1", data: "EmwK" },
        { type: "reasoning.text", text: "of an unknown model" },
      ],
      tool_calls: [{ id: "call_1", type: "function", function: { name: "f", arguments: "{}" } }],
    };
    expect(inputOf(assistant, { role: "tool", tool_call_id: "call_1", content: "42" })).toEqual([
      {
        type: "reasoning",
        id: "rs_1",
        encrypted_content: "gAAAAABn",
        summary: [{ type: "summary_text", text: "Checking" }],
      },
      { type: "message", role: "assistant", content: [{ type: "output_text", text: "Let me see." }] },
      { type: "function_call", call_id: "call_1", name: "f", arguments: "{}" },
      { type: "function_call_output", call_id: "call_1", output: "42" },
    ]);
  });

  test("with refusals as refusals.", () => {
    const content: RequestMessage["content"] = [
      { type: "text", text: "" },
      { type: "refusal", refusal: "No." },
    ];
    const parts = [{ type: "refusal", refusal: "No." }];
    expect(inputOf({ role: "assistant", content })).toEqual([{ type: "message", role: "assistant", content: parts }]);
    expect(inputOf({ role: "assistant", refusal: "No." })).toEqual([
      { type: "message", role: "assistant", content: parts },
    ]);
  });

  test("with tools, a choice, an effort and a format of the answer.", () => {
    const schema = { type: "object", properties: { a: { type: "string" } } };
    const tools: UpstreamRequest["tools"] = [
      { type: "function", function: { name: "f", description: "d", parameters: schema, strict: true } },
      { type: "function", function: { name: "g" } },
    ];
    const format = { type: "json_schema" as const, json_schema: { name: "n", schema, strict: true } };
    const body = bodyOf({
      tools,
      tool_choice: { type: "function", function: { name: "f" } },
      reasoning_effort: "high",
      response_format: format,
    });
    expect(body).toMatchObject({
      tools: [
        { type: "function", name: "f", description: "d", parameters: schema, strict: true },
        { type: "function", name: "g", parameters: { type: "object", properties: {} }, strict: false },
      ],
      tool_choice: { type: "function", name: "f" },
      reasoning: { effort: "high" },
      text: { format: { type: "json_schema", name: "n", schema, strict: true } },
    });
    expect(bodyOf({ response_format: { type: "json_object" }, tools, tool_choice: "required" })).toMatchObject({
      text: { format: { type: "json_object" } },
      tool_choice: "required",
    });
  });
});

test("A chat completion keeps what the Responses API has under its own names.", () => {
  const format = { type: "grammar", grammar: { syntax: "regex", definition: "a+" } };
  const called = { id: "call_1", type: "function" as const, function: { name: "sh", arguments: "ls" } };
  const body = bodyOf({
    verbosity: "low",
    prompt_cache_key: "key",
    safety_identifier: "someone",
    service_tier: "flex",
    tools: [{ type: "function", function: { name: "sh" }, custom: { format } }],
    tool_choice: { type: "function", function: { name: "sh" } },
    messages: [
      { role: "assistant", tool_calls: [{ ...called, isCustom: true }] },
      { role: "tool", tool_call_id: "call_1", content: "a.txt" },
    ],
  });
  expect(body).toMatchObject({
    text: { verbosity: "low" },
    prompt_cache_key: "key",
    safety_identifier: "someone",
    service_tier: "flex",
    tools: [{ type: "custom", name: "sh", format: { type: "grammar", syntax: "regex", definition: "a+" } }],
    tool_choice: { type: "custom", name: "sh" },
    input: [
      { type: "custom_tool_call", call_id: "call_1", name: "sh", input: "ls" },
      { type: "custom_tool_call_output", call_id: "call_1", output: "a.txt" },
    ],
  });
});

describe("A chat completion that the Responses API cannot express", () => {
  test("loses hints, which are named.", () => {
    const messages: RequestMessage[] = [{ role: "user", name: "ann", content: "hello" }];
    const hints = {
      top_k: 4,
      store: true,
      seed: 1,
      presence_penalty: 1,
      frequency_penalty: 1,
      logit_bias: { 1: 1 },
      messages,
    };
    const { body, ignored } = toResponsesBody(requestOf(hints));
    expect(ignored.sort()).toEqual([
      "frequency_penalty",
      "logit_bias",
      "messages.name",
      "presence_penalty",
      "seed",
      "store",
      "top_k",
    ]);
    expect(Object.keys(body)).not.toEqual(expect.arrayContaining(["seed"]));
  });

  test.each<[string, Partial<UpstreamRequest>]>([
    ["stop", { stop: ["END"] }],
    ["logprobs", { logprobs: true }],
    ["service_tier", { service_tier: "priority" }],
    ["audio", { audio: { voice: "alloy", format: "mp3" } }],
    [
      "messages[0].content[0]",
      { messages: [{ role: "user", content: [{ type: "input_audio", input_audio: { data: "AA", format: "wav" } }] }] },
    ],
    [
      "messages[0].content[0].file.file_id",
      { messages: [{ role: "user", content: [{ type: "file", file: { file_id: "file-1" } }] }] },
    ],
    [
      "messages[0].content[0].type",
      {
        messages: [{ role: "assistant", content: [{ type: "image_url", image_url: { url: "https://a.example/b" } }] }],
      },
    ],
    [
      "messages[0].content[0].type",
      { messages: [{ role: "system", content: [{ type: "image_url", image_url: { url: "https://a.example/b" } }] }] },
    ],
  ])("is refused, naming %s.", (param, fields) => {
    const refusal = refusalOf(fields);
    expect(refusal).toMatchObject({ failure: "unsupported", param });
    expect(refusal.publicReason).toContain(`Invalid '${param}'`);
  });
});
