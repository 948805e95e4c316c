import { describe, expect, test } from "vitest";
import { issueIn } from "../../../test/support/issue.ts";
import { AnswerFold } from "../answer-fold.ts";
import type { ToolCallDelta } from "../chat/completion.ts";
import { decodeResponses } from "./decode.ts";

const HEAD = { id: "0".repeat(32), created: 0, model: "m", organizationId: "org", headers: {} };
const USAGE = { prompt_tokens: 1, completion_tokens: 1, total_tokens: 2 };
const PATCH = '*** Begin Patch\n+ "quoted" — ü\n*** End Patch';
const PARAMETERS = { type: "object", properties: { id: { type: "string" } } };
const CUSTOM = { type: "custom", name: "apply_patch", description: "Edits files." };
const AGENTS = {
  type: "namespace",
  name: "agents_v1",
  description: "Manages agents.",
  tools: [
    { type: "function", name: "wait", description: "Waits.", strict: false, parameters: PARAMETERS },
    { type: "custom", name: "exec" },
  ],
};
const SEARCH = { type: "tool_search", execution: "client", description: "Finds tools.", parameters: PARAMETERS };

function decoded(fields: object) {
  return decodeResponses({ model: "m", input: "Go", ...structuredClone(fields) });
}

function issueOf(fields: object) {
  return issueIn(() => decoded(fields));
}

/** A request whose only tool is that of an item. */
const addedTools = (tool: object) => {
  return {
    input: [
      { role: "user", content: "Go" },
      { type: "additional_tools", tools: [tool] },
    ],
  };
};

type Event = { type: string } & Record<string, unknown>;

/** Encodes the pieces of calls, streamed and as a document; returns the output items of both and the events. */
function encoded(fields: object, calls: readonly ToolCallDelta[]) {
  const { events: createEncoder, document } = decoded(fields);
  const pieces = calls.map((call) => ({ delta: { tool_calls: [call] } }));
  const end = { finishReason: "tool_calls" as const, usage: USAGE, headers: {} };
  const fold = new AnswerFold();
  fold.add(pieces);
  const { output } = document(HEAD, fold, end) as { output: unknown };
  const events: Event[] = [];
  const add = (text: string) => {
    events.push(JSON.parse(text.slice(text.indexOf("\ndata: ") + 7)));
  };
  const encoder = createEncoder(HEAD, add);
  for (const piece of pieces) encoder.push([piece]);
  encoder.close(end);
  const streamed = (events.at(-1) as { response?: { output: unknown } } | undefined)?.response?.output;
  const done = events.filter(({ type }) => type === "response.output_item.done").map(({ item }) => item);
  return { output, streamed, done, events };
}

/** The pieces of a call as upstreams stream them. */
function piecesOf(name: string, text: string): ToolCallDelta[] {
  const middle = Math.floor(text.length / 2);
  return [
    { index: 0, id: "call_1", type: "function", function: { name, arguments: "" } },
    { index: 0, function: { arguments: text.slice(0, middle) } },
    { index: 0, function: { arguments: text.slice(middle) } },
  ];
}

describe("A call comes back as the client's tool, streamed and not:", () => {
  test.each([
    [
      "a custom tool, with its raw input",
      { tools: [CUSTOM] },
      ["apply_patch", JSON.stringify({ input: PATCH })],
      { type: "custom_tool_call", name: "apply_patch", input: PATCH },
    ],
    [
      "a custom tool whose arguments are the raw input",
      { tools: [CUSTOM] },
      ["apply_patch", PATCH],
      { type: "custom_tool_call", name: "apply_patch", input: PATCH },
    ],
    [
      "a function of a namespace",
      { tools: [AGENTS] },
      ["agents_v1__wait", '{"id":"a"}'],
      { type: "function_call", name: "wait", namespace: "agents_v1", arguments: '{"id":"a"}' },
    ],
    [
      "a custom tool of a namespace",
      {
        input: [
          { type: "additional_tools", role: "developer", tools: [AGENTS] },
          { role: "user", content: "Go" },
        ],
      },
      ["agents_v1__exec", JSON.stringify({ input: PATCH })],
      { type: "custom_tool_call", name: "exec", namespace: "agents_v1", input: PATCH },
    ],
    [
      "a search for tools",
      { tools: [SEARCH] },
      ["tool_search", '{"query":"agents"}'],
      { type: "tool_search_call", execution: "client", arguments: { query: "agents" } },
    ],
  ])("%s.", (_name, fields, [name = "", text = ""], item) => {
    const { output, streamed, done } = encoded(fields, piecesOf(name, text));
    const expected = [{ id: expect.any(String), status: "completed", call_id: "call_1", ...item }];
    expect(output).toEqual(expected);
    expect(streamed).toEqual(expected);
    expect(done).toEqual(expected);
  });

  test("the events of a custom tool's input contain it whole.", () => {
    const { events } = encoded({ tools: [CUSTOM] }, piecesOf("apply_patch", JSON.stringify({ input: PATCH })));
    const input = events.filter(({ type }) => type.startsWith("response.custom_tool_call_input."));
    expect(input).toMatchObject([{ delta: PATCH }, { input: PATCH }]);
  });
});

describe("The tools of a request", () => {
  const namesIn = (fields: object) => decoded(fields).request.tools?.map((tool) => tool.function.name);

  test("of a namespace become functions, which are described by the namespace once.", () => {
    expect(decoded({ tools: [AGENTS] }).request.tools).toMatchObject([
      { function: { name: "agents_v1__wait", description: "Manages agents.\n\nWaits.", parameters: PARAMETERS } },
      { function: { name: "agents_v1__exec" } },
    ]);
    expect(namesIn({ tools: [{ ...AGENTS, name: "mcp__files__" }] })).toEqual(["mcp__files__wait", "mcp__files__exec"]);
  });

  test("have names that providers accept, the same in the calls of earlier turns.", () => {
    const name = "n".repeat(60);
    const input = [
      { role: "user", content: "Go" },
      { type: "function_call", call_id: "a", name: "wait", namespace: name, arguments: "{}" },
      { type: "function_call_output", call_id: "a", output: "Done" },
    ];
    const { request } = decoded({ input, tools: [{ ...AGENTS, name }] });
    const [tool] = request.tools ?? [];
    expect(tool?.function.name).toHaveLength(64);
    expect(request.messages[1]?.tool_calls?.[0]?.function.name).toBe(tool?.function.name);
  });

  test("include those that a search has found, once.", () => {
    const found = [{ ...AGENTS, tools: AGENTS.tools.slice(0, 1).map((tool) => ({ ...tool, defer_loading: true })) }];
    const turn = (id: string) => [
      { type: "tool_search_call", call_id: id, execution: "client", arguments: { query: "q" }, status: "completed" },
      { type: "tool_search_output", call_id: id, execution: "client", status: "completed", tools: found },
    ];
    const fields = { tools: [SEARCH], input: [{ role: "user", content: "Go" }, ...turn("a"), ...turn("b")] };
    expect(namesIn(fields)).toEqual(["tool_search", "agents_v1__wait"]);
    const { request, native } = decoded(fields);
    expect(request.messages.slice(1, 3)).toMatchObject([
      { role: "assistant", tool_calls: [{ id: "a", function: { name: "tool_search", arguments: '{"query":"q"}' } }] },
      { role: "tool", tool_call_id: "a", content: expect.stringContaining('"wait"') },
    ]);
    expect(native?.body).toMatchObject(fields);
  });

  test("pass to an upstream of this wire as they are, without the fields that it does not know.", () => {
    const { native, ignored } = decoded({ tools: [{ ...AGENTS, colour: "red" }, CUSTOM, SEARCH] });
    expect(native?.body.tools).toEqual([AGENTS, CUSTOM, SEARCH]);
    expect(ignored).toEqual(["tools.colour"]);
  });

  test.each([
    ["beside others can be left out", [CUSTOM], {}, "tools.web_search"],
    ["that the choice names cannot", [CUSTOM], { tool_choice: { type: "web_search" } }, undefined],
    ["alone cannot", [], {}, undefined],
  ])("a search of the web %s, and is no function.", (_name, others, fields, ignoredAs) => {
    const search = { type: "web_search", external_web_access: true };
    const { request, native } = decoded({ tools: [...others, search], ...fields });
    expect(request.tools ?? []).toHaveLength(others.length);
    expect(request.tool_choice).toBeUndefined();
    const param = `tools[${others.length}].type`;
    expect(native).toMatchObject({ body: { tools: [...others, search] }, search: { param } });
    expect(native?.search?.ignoredAs).toBe(ignoredAs);
    expect(native?.search?.param).toBe(param);
  });

  test.each(["additional_tools", "tool_search_output"])("leave it out of an item too: %s.", (type) => {
    const item = {
      type,
      ...(type === "tool_search_output" && { call_id: "a" }),
      tools: [{ type: "web_search" }, CUSTOM],
    };
    const call = { type: "tool_search_call", call_id: "a", arguments: {} };
    const { native, ignored, request } = decoded({ tools: [SEARCH], input: [call, item] });
    expect(JSON.stringify([native, request])).not.toContain("web_search");
    expect(native?.body.input).toMatchObject([call, { ...item, tools: [CUSTOM] }]);
    expect(ignored).toEqual(["input.tools.web_search"]);
  });

  test.each([
    [addedTools({ type: "web_search" }), "input[1].tools[0].type"],
    [addedTools({ type: "file_search" }), "input[1].tools[0].type"],
    [addedTools({ type: "function", name: "f", defer_loading: true }), "input[1].tools[0].defer_loading"],
    [{ tools: [CUSTOM], tool_choice: { type: "file_search" } }, "tool_choice.type"],
    [{ tools: [{ type: "file_search" }] }, "tools[0].type"],
    [{ tools: [{ ...SEARCH, execution: "server" }] }, "tools[0].execution"],
    [
      { tools: [{ ...AGENTS, tools: [{ type: "function", name: "f", defer_loading: true }] }] },
      "tools[0].tools[0].defer_loading",
    ],
    [{ tools: [{ ...AGENTS, tools: [{ type: "web_search" }] }] }, "tools[0].tools[0].type"],
  ])("are refused where the provider would run them or load them later: %j.", (fields, param) => {
    expect(issueOf(fields)).toMatchObject({ param });
  });

  test("are limited with those of namespaces.", () => {
    const tools = Array.from({ length: 1_024 }, (_, index) => ({ type: "function", name: `f${index}` }));
    expect(issueOf({ tools: [{ ...AGENTS, tools }, CUSTOM] })).toMatchObject({
      code: "body_too_large",
      param: "tools",
    });
  });
});
