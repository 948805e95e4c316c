import { describe, expect, test } from "vitest";
import { issueIn } from "../../../test/support/issue.ts";
import { JSON_DEPTH_MAX, JSON_VALUES_MAX } from "../chat/request.ts";
import { seal } from "../provider-state.ts";
import type { DecodedCompletion } from "../wire.ts";
import { decodeCountTokens, decodeMessages } from "./decode.ts";
import { toCallStateBlock, toReasoningBlock } from "./reasoning.ts";
import { MessagesRequest } from "./request.ts";

const USER = [{ role: "user", content: "Hello" }];
const PNG = { type: "base64", media_type: "image/png", data: "AAAA" };
const headers = {};

function decoded(fields: object, beta?: string): DecodedCompletion {
  return decodeMessages({ model: "m", max_tokens: 10, messages: USER, ...fields }, { "anthropic-beta": beta });
}

function issueOf(fields: object): { code: string; param: string | null } | undefined {
  const issue = issueIn(() => decoded(fields));
  return issue && { code: issue.code, param: issue.param };
}

const messagesOf = (content: unknown, role = "user") => decoded({ messages: [{ role, content }] }).request.messages;

describe("Messages", () => {
  test("Plain text becomes a string, and marked text keeps its cache mark.", () => {
    const cache_control = { type: "ephemeral", ttl: "1h" };
    const { request } = decoded({
      system: [{ type: "text", text: "Rules", cache_control }],
      messages: [
        { role: "user", content: [{ type: "text", text: "Hello", cache_control: null }] },
        { role: "system", content: "Be brief." },
      ],
    });
    expect(request.messages).toEqual([
      { role: "system", content: [{ type: "text", text: "Rules", cache_control }] },
      { role: "user", content: "Hello" },
      { role: "system", content: "Be brief." },
    ]);
  });

  test("A cache mark of the whole request marks the end of the prompt.", () => {
    expect(decoded({ cache_control: { type: "ephemeral" } }).request.messages).toEqual([
      { role: "user", content: [{ type: "text", text: "Hello", cache_control: { type: "ephemeral" } }] },
    ]);
  });

  test("Images and documents become parts.", () => {
    const pdf = { type: "base64", media_type: "application/pdf", data: "AAAA" };
    expect(
      messagesOf([
        { type: "image", source: PNG },
        { type: "image", source: { type: "url", url: "https://example.org/a.png" } },
        { type: "document", source: pdf, title: "a.pdf", context: "A report" },
        { type: "document", source: { type: "url", url: "https://example.org/b.pdf" } },
        { type: "document", source: { type: "text", media_type: "text/plain", data: "Text" }, title: "T" },
        { type: "document", source: { type: "content", content: [{ type: "image", source: PNG }] } },
        { type: "search_result", source: "s", title: "t", content: [{ type: "text", text: "found" }] },
      ]),
    ).toEqual([
      {
        role: "user",
        content: [
          { type: "image_url", image_url: { url: "data:image/png;base64,AAAA" } },
          { type: "image_url", image_url: { url: "https://example.org/a.png" } },
          { type: "text", text: "a.pdf\n\nA report" },
          { type: "file", file: { filename: "a.pdf", file_data: "data:application/pdf;base64,AAAA" } },
          { type: "file", file: { filename: "document.pdf", file_url: "https://example.org/b.pdf" } },
          { type: "text", text: "T" },
          { type: "text", text: "Text" },
          { type: "image_url", image_url: { url: "data:image/png;base64,AAAA" } },
          { type: "text", text: "t\n\ns\n\nfound" },
        ],
      },
    ]);
  });

  test("Results of tools come before the text that follows them.", () => {
    expect(
      messagesOf([
        {
          type: "tool_result",
          tool_use_id: "a",
          content: [
            { type: "text", text: "1" },
            { type: "image", source: PNG },
          ],
        },
        { type: "tool_result", tool_use_id: "b", content: "failed", is_error: true },
        { type: "tool_result", tool_use_id: "c" },
        { type: "text", text: "Next" },
      ]),
    ).toEqual([
      {
        role: "tool",
        tool_call_id: "a",
        content: [
          { type: "text", text: "1" },
          { type: "image_url", image_url: { url: "data:image/png;base64,AAAA" } },
        ],
      },
      {
        role: "tool",
        tool_call_id: "b",
        content: [
          { type: "text", text: "Error:" },
          { type: "text", text: "failed" },
        ],
      },
      { role: "tool", tool_call_id: "c", content: "" },
      { role: "user", content: "Next" },
    ]);
  });

  test("A turn of the assistant keeps its signed thinking byte for byte.", () => {
    const signature = "Eq\u00e4/+==";
    expect(
      messagesOf(
        [
          { type: "thinking", thinking: "Hm\u2028", signature },
          { type: "redacted_thinking", data: "opaque" },
          { type: "text", text: "I look." },
          { type: "tool_use", id: "t1", name: "look", input: { at: null } },
        ],
        "assistant",
      ),
    ).toEqual([
      {
        role: "assistant",
        content: "I look.",
        reasoning_details: [
          { type: "reasoning.text", format: "anthropic-claude-v1", text: "Hm\u2028", signature },
          { type: "reasoning.encrypted", format: "anthropic-claude-v1", data: "opaque" },
        ],
        tool_calls: [{ id: "t1", type: "function", function: { name: "look", arguments: '{"at":null}' } }],
      },
    ]);
  });

  test("The reasoning of other models returns as it was, and is not sent to Claude.", () => {
    const details = [
      { type: "reasoning.summary", format: "openai-responses-v1", id: "rs_1", summary: "Sum" },
      { type: "reasoning.encrypted", format: "openai-responses-v1", id: "rs_1", data: "gAAA" },
    ] as const;
    const content = [
      ...details.map((detail) => toReasoningBlock(detail)),
      { type: "thinking", thinking: "unsigned", signature: "" },
      { type: "tool_use", id: "t1", name: "look", input: {} },
      toCallStateBlock("t1", { google: { thoughtSignature: "x" } }),
    ];
    const { request, native } = decoded({ messages: [...USER, { role: "assistant", content }] });
    expect(request.messages[1]).toMatchObject({
      reasoning_content: "unsigned",
      reasoning_details: details,
      tool_calls: [{ id: "t1", extra_content: { google: { thoughtSignature: "x" } } }],
    });
    expect(native?.body.messages).toEqual([
      { role: "user", content: "Hello" },
      { role: "assistant", content: [{ type: "tool_use", id: "t1", name: "look", input: {} }] },
    ]);
  });

  test("Forged data of a call is read once, and none that is too deep or too long for a body.", () => {
    const call = { type: "tool_use", id: "t1", name: "look", input: {} };
    const deep = JSON.parse(`${"[".repeat(JSON_DEPTH_MAX)}${"]".repeat(JSON_DEPTH_MAX)}`);
    const details = Array.from({ length: JSON_VALUES_MAX }, () => ({ type: "reasoning.encrypted" as const }));
    const read = (state: Parameters<typeof seal>[1]) => {
      const data = seal("tollgate:", state);
      const [message] = messagesOf([{ type: "redacted_thinking", data }, call, call], "assistant");
      return message?.tool_calls?.map(({ extra_content }) => extra_content);
    };
    expect(read({ calls: { t1: "long" } })).toEqual(["long", undefined]);
    expect(read({ calls: { t1: deep } })).toEqual([undefined, undefined]);
    expect(read({ details, calls: { t1: "long" } })).toEqual([undefined, undefined]);
  });

  test("A forged signature does not multiply the text of its block.", () => {
    const details = Array.from({ length: 3 }, () => ({ type: "reasoning.text" as const }));
    const block = { type: "thinking", thinking: "long", signature: seal("tollgate:", { details }) };
    const [message] = messagesOf([block, { type: "text", text: "Hi" }], "assistant");
    expect(message?.reasoning_details).toEqual([{ type: "reasoning.text", text: "long" }]);
  });
});

describe("Fields", () => {
  test("They get their names in the internal form.", () => {
    const schema = { type: "object" };
    const { request, output } = decoded({
      stop_sequences: ["END"],
      metadata: { user_id: "u" },
      tools: [{ name: "look", description: "Looks.", input_schema: schema, input_examples: [{ a: 1 }] }],
      tool_choice: { type: "any", disable_parallel_tool_use: true },
      output_config: { format: { type: "json_schema", schema } },
      max_tokens: 4000,
      thinking: { type: "enabled", budget_tokens: 2000 },
    });
    expect(request).toMatchObject({
      max_completion_tokens: 4000,
      stop: ["END"],
      user: "u",
      tools: [
        {
          type: "function",
          function: { name: "look", description: 'Looks.\nExample input: {"a":1}', parameters: schema },
        },
      ],
      tool_choice: "required",
      parallel_tool_calls: false,
      response_format: { type: "json_schema", json_schema: { schema } },
      reasoning_effort: "low",
    });
    expect(output).toEqual({ param: "max_tokens", tokens: 4000, isLimitedBySetting: false });
  });

  test.each([
    [{ thinking: { type: "disabled" } }, "none"],
    [{ thinking: { type: "adaptive" } }, "high"],
    [{ thinking: { type: "adaptive" }, output_config: { effort: "max" } }, "max"],
    [{ thinking: { type: "enabled", budget_tokens: 10_000 } }, "medium"],
    [{ thinking: { type: "enabled", budget_tokens: 32_000 } }, "high"],
    [{}, undefined],
  ])("Thinking becomes an effort: %j.", (fields, effort) => {
    expect(decoded({ max_tokens: 64_000, ...fields }).request.reasoning_effort).toBe(effort);
  });

  test("Upstreams of this wire receive the known fields only, and the headers.", () => {
    const { native, ignored, request } = decoded(
      { top_k: 4, invented: true, messages: [{ role: "user", content: [{ type: "text", text: "x", extra: 1 }] }] },
      "some-beta",
    );
    expect(native).toMatchObject({
      wire: "messages",
      body: { model: "m", max_tokens: 10, top_k: 4 },
      headers: { "anthropic-beta": "some-beta" },
      hints: ["anthropic-beta"],
    });
    expect(request.top_k).toBe(4);
    expect(native?.body).not.toHaveProperty("invented");
    expect(native?.body.messages).toEqual([{ role: "user", content: [{ type: "text", text: "x" }] }]);
    expect(ignored).toEqual(["messages.content.extra", "invented"]);
  });

  test("Citations need an upstream of this wire.", () => {
    const document = { type: "document", source: { type: "text", media_type: "text/plain", data: "x" } };
    const content = [document, { ...document, citations: { enabled: true } }];
    expect(decoded({ messages: [{ role: "user", content }] }).native?.needed).toBe("messages[0].content[1].citations");
    expect(decoded({}).native?.needed).toBeUndefined();
  });

  test.each([
    ["bash_20241022", ["command", "restart"], "command"],
    ["bash_20250124", ["command", "restart"], "command"],
    ["text_editor_20241022", ["view", "create", "str_replace", "insert", "undo_edit"], "insert (insert_line, new_str)"],
    ["text_editor_20250124", ["view", "create", "str_replace", "insert", "undo_edit"], "insert (insert_line, new_str)"],
    ["text_editor_20250429", ["view", "create", "str_replace", "insert"], "insert (insert_line, insert_text)"],
    ["text_editor_20250728", ["view", "create", "str_replace", "insert"], "insert (insert_line, insert_text)"],
    ["memory_20250818", ["view", "create", "str_replace", "insert", "delete", "rename"], "rename (old_path, new_path)"],
  ])("The tool %s has a schema for upstreams of other wires, and is counted in the hold.", (type, names, described) => {
    const { request, native } = decoded({
      tools: [
        { type, name: "t" },
        { name: "u", input_schema: {} },
      ],
    });
    const parameters = request.tools?.[0]?.function.parameters as { properties: { command: { enum?: string[] } } };
    expect(parameters.properties.command.enum ?? Object.keys(parameters.properties)).toEqual(names);
    expect(request.tools?.[0]?.function).toMatchObject({ name: "t", description: expect.stringContaining(described) });
    expect(native).toMatchObject({ typedTools: 1, needed: undefined, body: { tools: [{ type, name: "t" }, {}] } });
  });

  test("A request to count tokens needs no max_tokens.", () => {
    expect(decodeCountTokens({ model: "m", messages: USER }, headers)).toMatchObject({ request: { model: "m" } });
  });
});

test("Errors of the internal form get the wire's names of the fields.", () => {
  const { paramOf } = decoded({
    system: "Rules",
    messages: [
      {
        role: "user",
        content: [
          { type: "tool_result", tool_use_id: "a" },
          { type: "text", text: "x" },
          { type: "image", source: PNG },
        ],
      },
    ],
  });
  expect(paramOf?.("messages[0].content")).toBe("system.content");
  expect(paramOf?.("messages[2].content[1].image_url.url")).toBe("messages[0].content[2].source");
  expect(paramOf?.("messages[2].content[0]")).toBe("messages[0].content[1]");
  expect(paramOf?.("max_completion_tokens")).toBe("max_tokens");
  expect(paramOf?.("model")).toBe("model");
});

describe("Invalid requests", () => {
  const assistant = (block: object) => ({ messages: [...USER, { role: "assistant", content: [block] }] });
  const user = (block: object) => ({ messages: [{ role: "user", content: [block] }] });
  test.each([
    [{ max_tokens: undefined }, "missing_required_parameter", "max_tokens"],
    [{ messages: [] }, "invalid_value", "messages"],
    [{ temperature: 2 }, "decimal_above_max_value", "temperature"],
    [{ tools: [{ type: "web_fetch_20260318", name: "web_fetch" }] }, "unsupported_value", "tools[0].type"],
    [{ tools: [{ type: "bash_20250124" }] }, "missing_required_parameter", "tools[0].name"],
    [{ tools: [{ name: "a" }] }, "missing_required_parameter", "tools[0].input_schema"],
    [{ container: "c" }, "unsupported_value", "container"],
    [{ speed: "fast" }, "unsupported_value", "speed"],
    [{ mcp_servers: [{ type: "url" }] }, "unsupported_value", "mcp_servers"],
    [{ service_tier: "priority" }, "invalid_value", "service_tier"],
    [
      { max_tokens: 2_000, thinking: { type: "enabled", budget_tokens: 2_000 } },
      "invalid_value",
      "thinking.budget_tokens",
    ],
    [
      { context_management: { edits: [{ type: "compact_20260112" }] } },
      "invalid_value",
      "context_management.edits[0].type",
    ],
    [{ tool_choice: { type: "any" } }, "invalid_value", "tool_choice"],
    [
      { tools: [{ name: "a", input_schema: {} }], tool_choice: { type: "tool", name: "b" } },
      "invalid_value",
      "tool_choice.name",
    ],
    [user({ type: "mcp_tool_use", id: "a" }), "invalid_value", "messages[0].content[0].type"],
    [user({ type: "thinking", thinking: "x" }), "invalid_value", "messages[0].content[0].type"],
    [assistant({ type: "image", source: PNG }), "invalid_value", "messages[1].content[0].type"],
    [
      user({ type: "image", source: { type: "url", url: "http://localhost/a" } }),
      "invalid_value",
      "messages[0].content[0].source",
    ],
    [
      user({ type: "document", source: { type: "url", url: "https://10.0.0.1/a" } }),
      "invalid_value",
      "messages[0].content[0].source",
    ],
    [
      user({ type: "document", source: { type: "file", file_id: "f" } }),
      "invalid_value",
      "messages[0].content[0].source.type",
    ],
  ])("%j", (fields, code, param) => {
    expect(issueOf(fields)).toEqual({ code, param });
  });

  test("A budget of thinking just below max_tokens is accepted, and any where tokens are counted.", () => {
    const thinking = { type: "enabled", budget_tokens: 1_999 };
    expect(issueOf({ max_tokens: 2_000, thinking })).toBeUndefined();
    expect(issueIn(() => decodeCountTokens({ model: "m", messages: USER, thinking }, headers))).toBeUndefined();
  });

  test("No field passes to upstreams of this wire but these, whose cost a hold covers.", () => {
    expect(Object.keys(MessagesRequest.properties).sort()).toEqual([
      ...["cache_control", "context_management", "max_tokens", "messages", "metadata", "model", "output_config"],
      ...["output_format", "service_tier", "stop_sequences", "stream", "system", "temperature", "thinking"],
      ...["tool_choice", "tools", "top_k", "top_p"],
    ]);
  });

  test("The defaults of refused fields are accepted.", () => {
    expect(issueOf({ speed: "standard", mcp_servers: [], container: null })).toBeUndefined();
  });
});
