import { describe, expect, test } from "vitest";
import { issueIn } from "../../../test/support/issue.ts";
import type { AnswerPiece } from "../answer.ts";
import { AnswerFold } from "../answer-fold.ts";
import { decodeChatCompletion } from "./decode.ts";
import { firstAddress } from "./image-address.ts";

const HEAD = { id: "0".repeat(32), created: 1, model: "m", organizationId: "org", headers: {} };
const END = {
  finishReason: "tool_calls" as const,
  usage: { prompt_tokens: 1, completion_tokens: 1, total_tokens: 2 },
  headers: {},
};
const user = { role: "user", content: "go" };

function decoded(fields: object) {
  return decodeChatCompletion({ model: "m", messages: [user], ...structuredClone(fields) });
}

function issueOf(fields: object) {
  return issueIn(() => decoded(fields));
}

/** The answer to a request, as a stream and as a document. */
function answered(fields: object, pieces: AnswerPiece[]) {
  const { events, document } = decoded(fields);
  const sent: string[] = [];
  const encoder = events(HEAD, (event) => sent.push(event));
  encoder.push(pieces);
  encoder.close(END);
  const chunks = sent.filter((event) => !event.includes("[DONE]")).map((event) => JSON.parse(event.slice(6)));
  const fold = new AnswerFold();
  fold.add(pieces);
  return { chunks, document: JSON.parse(JSON.stringify(document(HEAD, fold, END))) };
}

describe("A request with functions", () => {
  const definition = { name: "weather", parameters: { type: "object" } };
  const functions = [definition];

  test("is translated to tools, and its calls get ids by which their results name them.", () => {
    const { request } = decoded({
      functions,
      function_call: { name: "weather" },
      messages: [
        user,
        { role: "assistant", content: null, function_call: { name: "weather", arguments: "{}" } },
        { role: "function", name: "weather", content: "rain" },
      ],
    });
    expect(request).toEqual({
      model: "m",
      tools: [{ type: "function", function: definition }],
      tool_choice: { type: "function", function: { name: "weather" } },
      parallel_tool_calls: false,
      messages: [
        user,
        {
          role: "assistant",
          tool_calls: [{ id: "call_1", type: "function", function: { name: "weather", arguments: "{}" } }],
        },
        { role: "tool", name: "weather", content: "rain", tool_call_id: "call_1" },
      ],
    });
  });

  test("gets its answer as function_call.", () => {
    const { chunks, document } = answered({ functions }, [
      {
        delta: { tool_calls: [{ index: 0, id: "a", type: "function", function: { name: "weather", arguments: "" } }] },
      },
      { delta: { tool_calls: [{ index: 0, function: { arguments: "{}" } }] } },
    ]);
    expect(chunks.map(({ choices }) => choices[0].delta.function_call).filter(Boolean)).toEqual([
      { name: "weather", arguments: "" },
      { arguments: "{}" },
    ]);
    expect(chunks.at(-1).choices[0].finish_reason).toBe("function_call");
    const [choice] = document.choices;
    expect(choice).toMatchObject({
      finish_reason: "function_call",
      message: { function_call: { name: "weather", arguments: "{}" } },
    });
    expect(choice.message).not.toHaveProperty("tool_calls");
  });

  test("is refused together with tools.", () => {
    const tools = [{ type: "function", function: { name: "f" } }];
    expect(issueOf({ functions, tools })).toMatchObject({ code: "invalid_value", param: "functions" });
    expect(issueOf({ tools, tool_choice: "auto", function_call: "auto" })).toMatchObject({ param: "function_call" });
  });
});

describe("A custom tool", () => {
  const tools = [{ type: "custom", custom: { name: "sh", description: "Runs it.", format: { type: "text" } } }];

  test("is a marked function inside, and so is its call.", () => {
    const { request, ignored } = decoded({
      tools,
      tool_choice: { type: "custom", custom: { name: "sh" } },
      messages: [
        user,
        { role: "assistant", tool_calls: [{ id: "a", type: "custom", custom: { name: "sh", input: "ls" } }] },
        { role: "tool", tool_call_id: "a", content: "x" },
      ],
    });
    expect(ignored).toEqual([]);
    expect(request.tools).toEqual([
      { type: "function", function: { name: "sh", description: "Runs it." }, custom: { format: { type: "text" } } },
    ]);
    expect(request.tool_choice).toEqual({ type: "function", function: { name: "sh" } });
    expect(request.messages[1]?.tool_calls).toEqual([
      { id: "a", type: "function", function: { name: "sh", arguments: "ls" }, isCustom: true },
    ]);
  });

  test("is called in its own form, streamed and not.", () => {
    const { chunks, document } = answered({ tools }, [
      {
        delta: {
          tool_calls: [
            { index: 0, id: "a", type: "function", isCustom: true, function: { name: "sh", arguments: "" } },
          ],
        },
      },
      { delta: { tool_calls: [{ index: 0, function: { arguments: "ls" } }] } },
    ]);
    const deltas = chunks.flatMap(({ choices }) => choices[0].delta.tool_calls ?? []);
    expect(deltas).toEqual([
      { index: 0, id: "a", type: "custom", custom: { name: "sh", input: "" } },
      { index: 0, custom: { input: "ls" } },
    ]);
    expect(document.choices[0].message.tool_calls).toEqual([
      { id: "a", type: "custom", custom: { name: "sh", input: "ls" } },
    ]);
  });
});

test("The allowed tools of a choice are the only ones that are offered.", () => {
  const tool = (name: string) => ({ type: "function", function: { name } });
  const allowed_tools = { mode: "required", tools: [tool("b")] };
  const { request } = decoded({
    tools: [tool("a"), tool("b")],
    tool_choice: { type: "allowed_tools", allowed_tools },
  });
  expect(request).toMatchObject({ tools: [tool("b")], tool_choice: "required" });
  expect(request.tools).toHaveLength(1);
});

describe("What an upstream adds to an answer", () => {
  const pieces: AnswerPiece[] = [
    { whole: { system_fingerprint: "fp", citations: ["https://a.example.com"] }, delta: { content: "a" } },
    { delta: { content: "b", annotations: [{ n: 1 }], others: { mood: "go" } }, choice: { native_finish_reason: "x" } },
    { delta: { annotations: [{ n: 2 }], audio: { id: "1", data: "AA", transcript: "he" }, others: { mood: "od" } } },
    { delta: { audio: { id: "1", data: "BB", transcript: "y" } } },
  ];

  test("is in the document.", () => {
    const { document } = answered({}, pieces);
    expect(document).toMatchObject({ system_fingerprint: "fp", citations: ["https://a.example.com"], model: "m" });
    expect(document.choices[0]).toMatchObject({
      native_finish_reason: "x",
      message: {
        content: "ab",
        annotations: [{ n: 1 }, { n: 2 }],
        audio: { id: "1", data: "AABB", transcript: "hey" },
        mood: "good",
      },
    });
  });

  test("is in the stream.", () => {
    const { chunks } = answered({}, pieces);
    const [, first, second, third] = chunks;
    expect(first).toMatchObject({ system_fingerprint: "fp", citations: ["https://a.example.com"] });
    expect(second).toMatchObject({ system_fingerprint: "fp", choices: [{ native_finish_reason: "x" }] });
    expect(second).not.toHaveProperty("citations");
    expect(second.choices[0].delta).toEqual({ content: "b", annotations: [{ n: 1 }], mood: "go" });
    expect(third.choices[0].delta).toMatchObject({ audio: { data: "AA" }, mood: "od" });
  });

  test("cannot replace the service's own fields.", () => {
    const { chunks, document } = answered({}, [
      { whole: { id: "x", model: "y", z: 1 }, choice: { index: 5 }, delta: { content: "a", others: { role: "user" } } },
    ]);
    expect(chunks[1]).toMatchObject({ id: `chatcmpl-${HEAD.id}`, model: "m", z: 1 });
    expect(document).toMatchObject({ id: `chatcmpl-${HEAD.id}`, model: "m" });
    expect(document.choices[0]).toMatchObject({ index: 0, message: { role: "assistant" } });
  });
});

describe("Parts that are not text", () => {
  const file = (fields: object) => ({ messages: [{ role: "user", content: [{ type: "file", file: fields }] }] });

  test.each([
    [{ file_data: "data:application/pdf;base64,AAAA", filename: "a.pdf" }],
    [{ file_url: "https://files.example.com/a.pdf" }],
    [{ file_data: "https://files.example.com/a.pdf" }],
  ])("%j is a file.", (fields) => expect(issueOf(file(fields))).toBeUndefined());

  test.each([["https://files.example.com/a.pdf"], [" HTTPS://files.example.com/a.pdf"]])(
    "%j as data is an address, which private upstreams are not sent.",
    (address) => {
      const { messages } = decoded(file({ file_data: address })).request;
      expect(messages[0]?.content).toEqual([{ type: "file", file: { file_url: address } }]);
      expect(firstAddress(messages)).toBe("messages[0].content[0].file.file_url");
    },
  );

  test.each([
    [{ file_id: "file-1" }, "unsupported_value", "file.file_id"],
    [{}, "invalid_value", "file"],
    [{ file_data: "data:application/pdf;base64,?" }, "invalid_value", "file.file_data"],
    [{ file_url: "http://127.0.0.1/a.pdf" }, "invalid_value", "file.file_url"],
    [{ file_url: "https://127.0.0.1/a.pdf" }, "invalid_value", "file.file_url"],
  ])("%j is refused.", (fields, code, field) => {
    expect(issueOf(file(fields))).toMatchObject({ code, param: `messages[0].content[0].${field}` });
  });

  test.each([
    [{ type: "video_url", video_url: { url: "https://10.0.0.1/a.mp4" } }, "video_url.url"],
    [{ type: "input_audio", input_audio: { data: "?", format: "wav" } }, "input_audio.data"],
    [{ type: "input_audio", input_audio: { data: "AAAA", format: "../x" } }, "input_audio.format"],
  ])("%j is refused.", (part, field) => {
    const issue = issueOf({ messages: [{ role: "user", content: [part] }] });
    expect(issue).toMatchObject({ code: "invalid_value", param: `messages[0].content[0].${field}` });
  });
});
