import { createOpenAI } from "@ai-sdk/openai";
import { generateText, jsonSchema, Output, stepCountIs, streamText, tool } from "ai";
import OpenAI7 from "openai";
import OpenAI6 from "openai6";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { AnswerFold } from "../../src/api/answer-fold.ts";
import { makeOrganization, type Organization, type RunningService, send, startService } from "../support/service.ts";
import { type Behaviour, breaking, sendJson, startUpstream, type Upstream } from "../support/upstream.ts";
import { USAGE } from "./scripted-answers.ts";

const PRICE = { input: 1_000, cachedInput: 100, output: 2_000 };
const TEXT = "Grüße from far away.";
const JSON_TEXT = '{"city":"Bern","warm":true}';
const SCHEMA = {
  type: "object",
  properties: { city: { type: "string" }, warm: { type: "boolean" } },
  required: ["city", "warm"],
  additionalProperties: false,
};

/** Responses that are requested at the same time. */
const CONCURRENT = 20;

type Delta = Record<string, unknown>;

const call = (index: number, id: string, name: string, text: string) => [
  { tool_calls: [{ index, id, type: "function", function: { name, arguments: text.slice(0, 4) } }] },
  { tool_calls: [{ index, function: { arguments: text.slice(4) } }] },
];
const ANSWERS = {
  text: { deltas: [{ content: "Grüße from " }, { content: "far away." }], reason: "stop" },
  thinking: {
    deltas: [{ reasoning_content: "They " }, { reasoning_content: "greet." }, { content: TEXT }],
    reason: "stop",
  },
  json: { deltas: [{ content: JSON_TEXT.slice(0, 9) }, { content: JSON_TEXT.slice(9) }], reason: "stop" },
  calling: {
    deltas: [...call(0, "call_a", "weather", '{"city":"Bern"}'), ...call(1, "call_b", "patch", '{"input":"+ Zürich"}')],
    reason: "tool_calls",
  },
  cut: { deltas: [{ content: "Too lo" }], reason: "length" },
  filtered: { deltas: [{ refusal: "I cannot say." }], reason: "content_filter" },
  empty: { deltas: [], reason: "stop" },
} satisfies Record<string, ScriptedAnswer>;

interface ScriptedAnswer {
  deltas: Delta[];
  reason: string;
}

function bytesOf({ deltas, reason }: ScriptedAnswer): Buffer {
  const event = (delta: Delta, finish_reason: string | null = null) =>
    `data: ${JSON.stringify({ id: "up", model: "up", choices: [{ index: 0, delta, finish_reason }] })}\n\n`;
  const events = [{ role: "assistant" }, ...deltas].map((delta) => event(delta));
  const usage = `data: ${JSON.stringify({ choices: [], usage: USAGE })}\n\ndata: [DONE]\n\n`;
  return Buffer.from([...events, event({}, reason), usage].join(""));
}

/** Streams an answer, in two writes if the request's `user` is the offset of a byte in it. */
function streaming(answer: ScriptedAnswer): Behaviour {
  const bytes = bytesOf(answer);
  return async ({ body, response }) => {
    response.writeHead(200, { "content-type": "text/event-stream" });
    const offset = Number(body.user ?? 0);
    if (offset > 0) {
      await new Promise<void>((resolve) => response.write(bytes.subarray(0, offset), () => resolve()));
      await new Promise((resolve) => setTimeout(resolve, 2));
    }
    response.end(bytes.subarray(offset));
  };
}

function whole({ deltas, reason }: ScriptedAnswer): Behaviour {
  const fold = new AnswerFold();
  fold.add(deltas.map((delta) => ({ delta })));
  const choices = [{ index: 0, message: fold.message(), finish_reason: reason }];
  return ({ response }) => sendJson(response, 200, { id: "up", model: "up", choices, usage: USAGE });
}

const answering =
  (answer: ScriptedAnswer): Behaviour =>
  (request) =>
    (request.body.stream === true ? streaming(answer) : whole(answer))(request);

let upstream: Upstream;
let service: RunningService;
let rich: Organization;
let poor: Organization;

beforeAll(async () => {
  upstream = await startUpstream();
  const names = [...Object.keys(ANSWERS), "breaking", "weather"];
  const capabilities = ["chat", "streaming", "tools", "structured_output", "vision", "reasoning"];
  service = await startService({
    config: {
      limits: { requestsPerMinute: 100_000, tokensPerMinute: 1_000_000_000, concurrentRequests: 100 },
      providers: [upstream.provider],
      models: names.map((id) => ({ id, price: PRICE, capabilities, routes: [{ provider: "up", model: id }] })),
    },
  });
  for (const [name, answer] of Object.entries(ANSWERS)) upstream.behave(name, answering(answer));
  upstream.behave("breaking", breaking);
  upstream.behave("weather", (request) => {
    const results = (request.body.messages as { role: string }[]).filter(({ role }) => role === "tool");
    const first = { deltas: call(0, "call_a", "weather", '{"city":"Bern"}'), reason: "tool_calls" };
    return answering(results.length === 0 ? first : { deltas: [{ content: "It is warm." }], reason: "stop" })(request);
  });
  rich = await makeOrganization(service, "1000000");
  poor = await makeOrganization(service, "0");
});

afterAll(async () => {
  await service?.end();
  await upstream?.close();
});

const lastRequest = () => upstream.requests.at(-1)?.body;
const WEATHER = {
  type: "function" as const,
  name: "weather",
  strict: true,
  parameters: {
    type: "object",
    properties: { city: { type: "string" } },
    required: ["city"],
    additionalProperties: false,
  },
};

describe.each([
  ["openai 6", OpenAI6],
  ["openai 7", OpenAI7],
])("%s", (_name, OpenAI) => {
  const connect = ({ token } = rich) =>
    new OpenAI({ apiKey: token, baseURL: service.baseUrl, maxRetries: 0 }) as OpenAI7;

  test("The client receives a text with its usage and its settings.", async () => {
    const asked = { model: "text", input: "Hello", instructions: "Be kind.", temperature: 1.5, metadata: { a: "b" } };
    const response = await connect().responses.create(asked);
    expect(response).toMatchObject({
      object: "response",
      status: "completed",
      output_text: TEXT,
      model: "text",
      error: null,
    });
    expect(response).toMatchObject({ instructions: "Be kind.", temperature: 1.5, metadata: { a: "b" }, store: true });
    expect(response.id).toMatch(/^resp_[0-9a-f]{32}$/);
    expect(response.usage).toMatchObject({
      input_tokens: 40,
      input_tokens_details: { cached_tokens: 8 },
      output_tokens: 12,
      output_tokens_details: { reasoning_tokens: 5 },
      total_tokens: 52,
    });
    expect(lastRequest()).toMatchObject({
      temperature: 1.5,
      messages: [
        { role: "system", content: "Be kind." },
        { role: "user", content: "Hello" },
      ],
    });
  });

  test("The client's stream helper reads the events, and ends with the same response.", async () => {
    const stream = connect().responses.stream({ model: "thinking", input: "Hello" });
    const types: string[] = [];
    let text = "";
    let number = 0;
    for await (const event of stream) {
      expect(event.sequence_number).toBe(number);
      number += 1;
      types.push(event.type);
      if (event.type === "response.output_text.delta") text += event.delta;
    }
    expect(text).toBe(TEXT);
    expect(types).toEqual([
      "response.created",
      "response.in_progress",
      "response.output_item.added",
      "response.reasoning_summary_part.added",
      "response.reasoning_summary_text.delta",
      "response.reasoning_summary_text.delta",
      "response.reasoning_summary_text.done",
      "response.reasoning_summary_part.done",
      "response.output_item.done",
      "response.output_item.added",
      "response.content_part.added",
      "response.output_text.delta",
      "response.output_text.done",
      "response.content_part.done",
      "response.output_item.done",
      "response.completed",
    ]);
    const final = await stream.finalResponse();
    expect(final).toMatchObject({ output_text: TEXT, usage: { total_tokens: 52 } });
    expect(final.output).toMatchObject([
      { type: "reasoning", summary: [{ type: "summary_text", text: "They greet." }] },
      { type: "message", role: "assistant", status: "completed", content: [{ type: "output_text", text: TEXT }] },
    ]);
  });

  test.each([false, true])("Function and custom tools make a round trip; streamed: %s.", async (stream) => {
    const client = connect();
    const tools = [WEATHER, { type: "custom" as const, name: "patch" }];
    const asked = { model: "calling", input: "Go", tools, store: false };
    const response = stream
      ? await client.responses.stream(asked).finalResponse()
      : await client.responses.create(asked);
    expect(response.output).toMatchObject([
      { type: "function_call", call_id: "call_a", name: "weather", arguments: '{"city":"Bern"}', status: "completed" },
      { type: "custom_tool_call", call_id: "call_b", name: "patch", input: "+ Zürich" },
    ]);
    const outputs = [
      { type: "function_call_output" as const, call_id: "call_a", output: "12 degrees" },
      { type: "custom_tool_call_output" as const, call_id: "call_b", output: "done" },
    ];
    const input = [{ role: "user" as const, content: "Go" }, ...response.output, ...outputs];
    await client.responses.create({ model: "text", input: input as OpenAI7.Responses.ResponseInput, tools });
    expect(lastRequest()?.messages).toEqual([
      { role: "user", content: "Go" },
      {
        role: "assistant",
        content: null,
        tool_calls: [
          { id: "call_a", type: "function", function: { name: "weather", arguments: '{"city":"Bern"}' } },
          { id: "call_b", type: "function", function: { name: "patch", arguments: '{"input":"+ Zürich"}' } },
        ],
      },
      { role: "tool", tool_call_id: "call_a", content: "12 degrees" },
      { role: "tool", tool_call_id: "call_b", content: "done" },
    ]);
  });

  test("Structured output is parsed by the client.", async () => {
    const format = { type: "json_schema" as const, name: "place", schema: SCHEMA, strict: true };
    const response = await connect().responses.parse({ model: "json", input: "Where?", text: { format } });
    expect(response.output_text).toBe(JSON_TEXT);
    expect(response.text).toEqual({ format });
    const { type: _type, ...json_schema } = format;
    expect(lastRequest()?.response_format).toEqual({ type: "json_schema", json_schema });
  });

  test.each([
    ["cut", "max_output_tokens", [{ type: "output_text", text: "Too lo" }]],
    ["filtered", "content_filter", [{ type: "refusal", refusal: "I cannot say." }]],
  ])("An answer that is %s is incomplete because of %s.", async (model, reason, content) => {
    const streamed = await connect().responses.stream({ model, input: "Go" }).finalResponse();
    const response = await connect().responses.create({ model, input: "Go" });
    for (const one of [streamed, response]) {
      expect(one).toMatchObject({ status: "incomplete", incomplete_details: { reason }, usage: { total_tokens: 52 } });
      expect(one.output).toMatchObject([{ type: "message", status: "incomplete", content }]);
    }
  });

  test("A failure in the middle of a stream ends it with an error event and response.failed.", async () => {
    const answer = await send(service, "/v1/responses", rich.token, { model: "breaking", input: "Go", stream: true });
    const blocks = (await answer.text()).trim().split("\n\n").slice(-2);
    const [error, failed] = blocks.map((block) => JSON.parse(block.split("\ndata: ")[1] ?? ""));
    const told = { code: "upstream_error", message: expect.stringContaining("provider"), param: null };
    expect(error).toEqual({
      type: "error",
      sequence_number: failed.sequence_number - 1,
      ...told,
      error: { type: "server_error", ...told },
    });
    expect(failed).toMatchObject({
      type: "response.failed",
      response: {
        status: "failed",
        error: { code: "server_error", message: error.message },
        output: [{ type: "message", content: [{ type: "output_text", text: "Half an" }] }],
      },
    });
  });

  test("Errors are on the client's error object.", async () => {
    const refused = (promise: Promise<unknown>) =>
      promise.then(
        () => undefined,
        (error: unknown) => error,
      );
    expect(await refused(connect(poor).responses.create({ model: "text", input: "Go" }))).toMatchObject({
      status: 402,
      code: "insufficient_credits",
    });
    const tools = [{ type: "web_search" as const }];
    expect(await refused(connect().responses.create({ model: "text", input: "Go", tools }))).toMatchObject({
      status: 400,
      code: "unsupported_value",
      param: "tools[0].type",
    });
    const followUp = { model: "text", input: "Go", previous_response_id: `resp_${"0".repeat(32)}` };
    expect(await refused(connect().responses.create(followUp))).toMatchObject({
      status: 400,
      code: "previous_response_not_found",
      param: "previous_response_id",
    });
  });
});

describe("@ai-sdk/openai with its default wire", () => {
  const model = (id: string) => createOpenAI({ baseURL: service.baseUrl, apiKey: rich.token })(id);

  test("generateText runs a tool and reads the answer.", async () => {
    const inputSchema = jsonSchema<{ city: string }>(WEATHER.parameters as object);
    const weather = tool({ inputSchema, execute: async ({ city }) => `${city}: 20 degrees` });
    const { text, steps, totalUsage } = await generateText({
      model: model("weather"),
      prompt: "How is the weather?",
      tools: { weather },
      stopWhen: stepCountIs(3),
      maxRetries: 0,
    });
    expect(text).toBe("It is warm.");
    expect(steps).toHaveLength(2);
    expect(totalUsage.inputTokens).toBe(80);
    expect(lastRequest()?.messages).toContainEqual({
      role: "tool",
      tool_call_id: "call_a",
      content: "Bern: 20 degrees",
    });
  });

  test("streamText streams text and reasoning.", async () => {
    const result = streamText({ model: model("thinking"), prompt: "Hello", maxRetries: 0 });
    let reasoning = "";
    let text = "";
    for await (const part of result.fullStream) {
      if (part.type === "reasoning-delta") reasoning += part.text;
      if (part.type === "text-delta") text += part.text;
    }
    expect({ reasoning, text, reason: await result.finishReason }).toEqual({
      reasoning: "They greet.",
      text: TEXT,
      reason: "stop",
    });
  });

  test("Structured output is an object.", async () => {
    const schema = jsonSchema<{ city: string; warm: boolean }>(SCHEMA as object);
    const { output } = await generateText({
      model: model("json"),
      prompt: "Where?",
      output: Output.object({ schema }),
    });
    expect(output).toEqual({ city: "Bern", warm: true });
  });
});

describe("The charge", () => {
  const post = (path: string, body: object) => send(service, path, rich.token, body);

  test.each(["text", "thinking", "calling"])(
    "of a response of %s is that of the same chat completion.",
    async (model) => {
      const chat = await post("/v1/chat/completions", { model, messages: [{ role: "user", content: "Hello" }] });
      const response = await post("/v1/responses", { model, input: "Hello" });
      const { usage: chatUsage } = (await chat.json()) as { usage: { cost: number; total_tokens: number } };
      const { usage } = (await response.json()) as { usage: { cost: number; total_tokens: number } };
      expect(usage.cost).toBeGreaterThan(0);
      expect(usage.cost).toBe(chatUsage.cost);
      expect(usage.total_tokens).toBe(chatUsage.total_tokens);
      expect(response.headers.get("x-credits-charged")).toBe(chat.headers.get("x-credits-charged"));
    },
  );

  test.each(["thinking", "calling"] as const)(
    "and the answer of %s do not depend on how the upstream's bytes arrive.",
    async (model) => {
      const client = new OpenAI7({ apiKey: rich.token, baseURL: service.baseUrl, maxRetries: 0 });
      const tools = [WEATHER, { type: "custom" as const, name: "patch" }];
      const ask = async (user: string) => {
        const response = await client.responses.stream({ model, input: "Hello", tools, user }).finalResponse();
        const { output, usage, status } = response;
        return { status, usage, output: output.map((item) => ({ ...item, id: "" })) };
      };
      const expected = await ask("0");
      const offsets = Array.from(bytesOf(ANSWERS[model]), (_byte, offset) => String(offset));
      while (offsets.length > 0) {
        const answers = await Promise.all(offsets.splice(0, CONCURRENT).map(ask));
        for (const answer of answers) expect(answer).toEqual(expected);
      }
    },
    120_000,
  );
});
