import OpenAI from "openai";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { makeOrganization, type RunningService, send, settledUsage, startService } from "../support/service.ts";
import { answering, sendJson, startUpstream, type Upstream } from "../support/upstream.ts";

/** The bodies have the form of those that Cursor sends. */
const usage = { prompt_tokens: 10, completion_tokens: 2, total_tokens: 12 };
const parameters = { type: "object", properties: { path: { type: "string" } } };
const nested = { type: "function", function: { name: "read", description: "Reads.", parameters } };
const flat = { type: "function", name: "read", description: "Reads.", parameters };
const format = { type: "grammar", syntax: "lark", definition: "start: /.+/" };
const custom = { type: "custom", name: "patch", description: "Patches.", format };
const nestedCustom = { type: "custom", custom: { name: "patch", description: "Patches.", format } };

let upstream: Upstream;
let service: RunningService;
let token: string;

beforeAll(async () => {
  upstream = await startUpstream();
  const price = { input: 1_000_000, output: 1_000_000 };
  const models = ["text", "calling"].map((id) => ({ id, price, routes: [{ provider: "up", model: id }] }));
  service = await startService({ config: { providers: [upstream.provider], models } });
  upstream.behave("text", answering({ words: ["a ", "b"], usage }));
  upstream.behave("calling", ({ response }) => {
    const call = { id: "call_1", type: "custom", custom: { name: "patch", input: "*** Begin" } };
    const message = { role: "assistant", content: null, tool_calls: [call] };
    sendJson(response, 200, {
      id: "up",
      model: "up",
      choices: [{ index: 0, message, finish_reason: "tool_calls" }],
      usage,
    });
  });
  ({ token } = await makeOrganization(service, "1000000"));
});
afterAll(async () => {
  await service?.end();
  await upstream?.close();
});

const post = (body: object) => send(service, "/v1/chat/completions", token, { model: "text", ...body });
const lastRequest = () => upstream.requests.at(-1)?.body;
const issueOf = async (answer: Response) => {
  const { error } = (await answer.json()) as { error: { code: string; param: string } };
  return [answer.status, error.code, error.param];
};

describe("Tools in the form of the Responses API", () => {
  const messages = [{ role: "user", content: "go" }];

  test("reach the upstream in that of chat completions, with their choice.", async () => {
    const tool_choice = { type: "function", name: "read" };
    const answer = await post({ messages, tools: [flat, custom, nested], tool_choice });
    expect([answer.status, answer.headers.get("x-tollgate-ignored")]).toEqual([200, null]);
    expect(lastRequest()).toMatchObject({
      tools: [nested, nestedCustom, nested],
      tool_choice: { type: "function", function: { name: "read" } },
    });
  });

  test("are refused without a name.", async () => {
    expect(await issueOf(await post({ messages, tools: [{ type: "function", parameters }] }))).toEqual([
      400,
      "missing_required_parameter",
      "tools[0].function",
    ]);
  });
});

describe("A body of the Responses API", () => {
  const input = [
    { role: "system", content: "Be short." },
    { role: "user", content: [{ type: "input_text", text: "go" }] },
    { type: "custom_tool_call", call_id: "call_0", name: "patch", input: "*** Begin" },
    { type: "custom_tool_call_output", call_id: "call_0", output: "done" },
    { type: "function_call", call_id: "call_1", name: "read", arguments: '{"path":"a"}' },
    { type: "function_call_output", call_id: "call_1", output: "x" },
  ];
  const body = {
    input,
    tools: [flat, custom],
    stream: true,
    store: false,
    user: "someone",
    include: ["reasoning.encrypted_content"],
    max_output_tokens: 100,
  };

  test("reaches the upstream as a chat completion, and its answer is one, streamed.", async () => {
    const before = await settledUsage(service, token);
    const client = new OpenAI({ apiKey: token, baseURL: service.baseUrl, maxRetries: 0 });
    const sent = { model: "text", ...body } as unknown as OpenAI.ChatCompletionCreateParamsStreaming;
    const chunks: OpenAI.ChatCompletionChunk[] = [];
    for await (const chunk of await client.chat.completions.create(sent)) chunks.push(chunk);
    expect(chunks.map(({ choices }) => choices[0]?.delta.content ?? "").join("")).toBe("a b");
    expect(chunks.at(-1)).toMatchObject({
      object: "chat.completion.chunk",
      choices: [{ finish_reason: "stop" }],
      usage,
    });
    expect(lastRequest()).toMatchObject({
      max_tokens: 100,
      stream: true,
      tools: [nested, nestedCustom],
      messages: [
        { role: "system", content: "Be short." },
        { role: "user" },
        {
          role: "assistant",
          tool_calls: [{ id: "call_0", type: "custom", custom: { name: "patch", input: "*** Begin" } }],
        },
        { role: "tool", tool_call_id: "call_0", content: "done" },
        { role: "assistant", tool_calls: [{ id: "call_1", type: "function", function: { name: "read" } }] },
        { role: "tool", tool_call_id: "call_1", content: "x" },
      ],
    });
    const after = await settledUsage(service, token);
    expect(after.creditsUsed - before.creditsUsed).toBe(12);
  });

  test("is answered in one piece, with the calls of custom tools.", async () => {
    const answer = await post({ ...body, model: "calling", stream: false });
    expect(await answer.json()).toMatchObject({
      object: "chat.completion",
      choices: [
        {
          finish_reason: "tool_calls",
          message: { tool_calls: [{ id: "call_1", type: "custom", custom: { name: "patch", input: "*** Begin" } }] },
        },
      ],
      usage,
    });
  });

  test("is refused under its own names of fields.", async () => {
    const image = { role: "user", content: [{ type: "input_image", image_url: "x" }] };
    expect(await issueOf(await post({ input: [image] }))).toEqual([
      400,
      "invalid_value",
      "input[0].content[0].image_url",
    ]);
    const search = { type: "tool_search", execution: "client" };
    expect(await issueOf(await post({ input, tools: [flat, search] }))).toEqual([
      400,
      "unsupported_value",
      "tools[1].type",
    ]);
    expect(await issueOf(await post({ input, temperature: 1.5 }))).toEqual([
      400,
      "decimal_above_max_value",
      "temperature",
    ]);
    expect(await issueOf(await post({}))).toEqual([400, "missing_required_parameter", "messages"]);
  });
});
