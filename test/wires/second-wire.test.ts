import OpenAI from "openai";
import { afterAll, beforeAll, beforeEach, expect, test } from "vitest";
import type { ChatCompletionRequest } from "../../src/api/chat/request.ts";
import { type JsonEvent, sse } from "../support/second-wire.ts";
import { makeOrganization, type Organization, type RunningService, send, startService } from "../support/service.ts";
import { type ScriptedServer, startScriptedServer } from "./scripted-server.ts";

const PRICE = { input: 1.251, cachedInput: 0.127, output: 10.003 };
const USAGE = {
  input_tokens: 328,
  input_tokens_details: { cached_tokens: 64 },
  output_tokens: 152,
  output_tokens_details: { reasoning_tokens: 128 },
};
const COST = Math.ceil((264 * 1_251 + 64 * 127 + 152 * 10_003) / 1_000) / 1e6;
const REASONING = { id: "rs_1", type: "reasoning", summary: [], encrypted_content: "gAAAAABn" };
const CALL = { id: "fc_1", type: "function_call", call_id: "call_1", name: "weather", arguments: '{"city":"Paris"}' };
const TOOLS: ChatCompletionRequest["tools"] = [
  { type: "function", function: { name: "weather", parameters: { type: "object", properties: {} } } },
];

let upstream: ScriptedServer;
let service: RunningService;
let rich: Organization;
let poor: Organization;

beforeAll(async () => {
  upstream = await startScriptedServer();
  service = await startService({
    // The upstream is the proxy of the service, because the second wire belongs to OpenAI's own address.
    environment: { HTTP_PROXY: upstream.origin },
    config: {
      providers: [{ id: "openai", kind: "openai-compatible", baseUrl: "http://api.openai.com/v1", apiKey: "sk-ours" }],
      models: [{ id: "codex", price: PRICE, routes: [{ provider: "openai", model: "gpt-5.3-codex" }] }],
    },
  });
  rich = await makeOrganization(service, "10");
  poor = await makeOrganization(service, "0");
});
afterAll(async () => {
  await service?.end();
  await upstream?.end();
});
beforeEach(() => upstream.reset());

const answerOf = (output: readonly object[]) => ({ id: "resp_1", status: "completed", output, usage: USAGE });
const ask = (fields: object, { token }: Organization = rich) =>
  send(service, "/v1/chat/completions", token, {
    model: "codex",
    messages: [{ role: "user", content: "How is the weather?" }],
    ...fields,
  });

test("A chat completion of a model that only the Responses API serves is charged by its usage, class by class.", async () => {
  const text = { type: "message", content: [{ type: "output_text", text: '{"sunny":true}' }] };
  upstream.answer({ body: JSON.stringify(answerOf([REASONING, text])) });
  const schema = { type: "object", properties: { sunny: { type: "boolean" } } };
  const response_format = { type: "json_schema", json_schema: { name: "weather", schema } };
  const url = "data:image/png;base64,iVBORw0KGgo=";
  const messages = [{ role: "user", content: [{ type: "image_url", image_url: { url } }] }];
  const answer = await ask({ response_format, messages, max_tokens: 500, temperature: 0.5, seed: 7 });
  expect(answer.headers.get("x-tollgate-ignored")).toBe("temperature, seed");
  expect(await answer.json()).toMatchObject({
    choices: [{ message: { content: '{"sunny":true}' }, finish_reason: "stop" }],
    usage: { prompt_tokens: 328, completion_tokens: 152, cost: COST },
  });
  expect(upstream.requests).toHaveLength(1);
  expect(upstream.requests[0]).toMatchObject({
    path: "http://api.openai.com/v1/responses",
    headers: { authorization: "Bearer sk-ours" },
    body: {
      model: "gpt-5.3-codex",
      max_output_tokens: 500,
      store: false,
      input: [{ role: "user", content: [{ type: "input_image", image_url: url }] }],
      text: { format: { type: "json_schema", name: "weather", schema } },
    },
  });
});

test("A client that sends the message back sends the reasoning back too, streamed and unstreamed.", async () => {
  const events: JsonEvent[] = [
    { type: "response.created", response: { id: "resp_1" } },
    { type: "response.output_item.done", output_index: 0, item: REASONING },
    { type: "response.output_item.added", output_index: 1, item: { ...CALL, arguments: "" } },
    { type: "response.function_call_arguments.delta", output_index: 1, delta: CALL.arguments },
    { type: "response.output_item.done", output_index: 1, item: CALL },
    { type: "response.completed", response: answerOf([REASONING, CALL]) },
  ];
  upstream.answer({ headers: { "content-type": "text/event-stream" }, body: sse(events) });
  const streamed = await (await ask({ stream: true, stream_options: { include_usage: true }, tools: TOOLS })).text();
  expect(streamed).toContain('"finish_reason":"tool_calls"');
  expect(streamed).toContain('"data":"gAAAAABn"');
  expect(streamed).toContain(`"cost":${COST}`);
  expect(streamed).not.toContain("response.");

  upstream.answer({ body: JSON.stringify(answerOf([REASONING, CALL])) }, { body: JSON.stringify(answerOf([])) });
  const client = new OpenAI({ apiKey: rich.token, baseURL: service.baseUrl, maxRetries: 0 });
  const question = { role: "user", content: "How is the weather?" } as const;
  const tools = TOOLS as OpenAI.ChatCompletionTool[];
  const { choices } = await client.chat.completions.create({ model: "codex", messages: [question], tools });
  const [choice] = choices;
  if (choice === undefined) throw new Error("There is no choice");
  const result = { role: "tool", tool_call_id: "call_1", content: "12 degrees" } as const;
  await client.chat.completions.create({ model: "codex", messages: [question, choice.message, result], tools });
  expect(upstream.requests.at(-1)?.body.input).toEqual([
    { type: "message", role: "user", content: [{ type: "input_text", text: "How is the weather?" }] },
    { type: "reasoning", id: "rs_1", encrypted_content: "gAAAAABn", summary: [] },
    { type: "function_call", call_id: "call_1", name: "weather", arguments: CALL.arguments },
    { type: "function_call_output", call_id: "call_1", output: "12 degrees" },
  ]);
});

test("A field that the Responses API does not have is refused before anything is held.", async () => {
  for (const [fields, param] of [
    [{ stop: ["END"] }, "stop"],
    [{ logprobs: true }, "logprobs"],
  ] as const) {
    const answer = await ask(fields, poor);
    expect(answer.status).toBe(400);
    expect(await answer.json()).toMatchObject({ error: { code: "unsupported_value", param } });
  }
  expect(upstream.requests).toEqual([]);
});
