import { createGoogle } from "@ai-sdk/google";
import { streamText } from "ai";
import { afterAll, beforeAll, beforeEach, expect, test } from "vitest";
import { GenerateContentResponse } from "../../src/api/gemini/encode.ts";
import { compileCheck } from "../../src/api/validation.ts";
import { sse } from "../support/second-wire.ts";
import {
  eventsOf,
  makeOrganization,
  type Organization,
  type RunningService,
  send,
  settledUsage,
  startService,
} from "../support/service.ts";
import { type ScriptedServer, startScriptedServer } from "../wires/scripted-server.ts";

/** Requests of Gemini's wire on a route of Google, which pass as they are. */

const PRICE = { input: 1.251, cachedInput: 0.127, output: 10.003 };
const USAGE = {
  ...{ promptTokenCount: 100, cachedContentTokenCount: 40, toolUsePromptTokenCount: 10 },
  ...{ candidatesTokenCount: 24, thoughtsTokenCount: 128, totalTokenCount: 262 },
};
const COST = Math.ceil((70 * 1_251 + 40 * 127 + 152 * 10_003) / 1_000) / 1e6;
const RATINGS = [{ category: "HARM_CATEGORY_HARASSMENT", probability: "LOW" }];

let upstream: ScriptedServer;
let service: RunningService;
let rich: Organization;

beforeAll(async () => {
  upstream = await startScriptedServer();
  const route = (provider: string) => [{ provider, model: "gemini-2.5-flash" }];
  service = await startService({
    config: {
      providers: [
        { id: "google", kind: "google", baseUrl: `${upstream.origin}/v1beta`, apiKey: "key-of-the-operator" },
        { id: "other", kind: "openai-compatible", baseUrl: `${upstream.origin}/v1`, apiKey: "k" },
      ],
      models: [
        { id: "gemini", price: PRICE, contextWindow: 100_000, routes: route("google") },
        { id: "other", price: PRICE, contextWindow: 100_000, routes: route("other") },
      ],
    },
  });
  rich = await makeOrganization(service, "10");
});
afterAll(async () => {
  await service?.end();
  await upstream?.end();
});
beforeEach(() => upstream.reset());

const responseOf = (parts: object[], fields: object = {}, usageMetadata?: object) => ({
  candidates: [{ content: { parts, role: "model" }, index: 0, ...fields }],
  ...(usageMetadata && { usageMetadata }),
  modelVersion: "gemini-2.5-flash-001",
  responseId: "wXQqafjLB4WVqtsP",
});
const contents = [{ role: "user", parts: [{ text: "Hello" }] }];
const generate = (body: object, method = "generateContent", model = "gemini") =>
  send(service, `/v1beta/models/${model}:${method}`, rich.token, { contents, ...body });
/** Returns what a response breaks of the schema that the service publishes. */
const faultOf = compileCheck(GenerateContentResponse);
const spent = async () => (await settledUsage(service, rich.token)).creditsUsed;

test("An answer returns as it came, and is charged by its usage, class by class.", async () => {
  const before = await spent();
  const parts = [{ text: "Hi", thoughtSignature: "c2lnbmVk" }, { executableCode: { code: "1+1" } }];
  const ended = {
    finishReason: "RECITATION",
    safetyRatings: RATINGS,
    citationMetadata: { citations: [{ endIndex: 2 }] },
  };
  upstream.answer({ body: JSON.stringify(responseOf(parts, ended, USAGE)) });
  const safetySettings = [{ category: "HARM_CATEGORY_HARASSMENT", threshold: "BLOCK_NONE" }];
  const body = {
    safetySettings,
    labels: { team: "red" },
    generation_config: { thinking_config: { thinking_budget: 100 }, max_output_tokens: 500 },
  };
  const answer = await generate(body);
  const document = await answer.json();
  expect(faultOf(document)).toBeUndefined();
  expect(document).toEqual({
    candidates: [{ content: { role: "model", parts }, index: 0, ...ended }],
    usageMetadata: expect.objectContaining({ promptTokenCount: 110, thoughtsTokenCount: 128, cost: COST }),
    modelVersion: "gemini",
    responseId: expect.not.stringMatching("wXQqafjLB4WVqtsP"),
  });
  expect(answer.headers.get("x-tollgate-ignored")).toBeNull();
  expect((await spent()) - before).toBeCloseTo(COST, 9);
  expect(upstream.requests[0]).toMatchObject({
    path: "/v1beta/models/gemini-2.5-flash:generateContent",
    headers: { "x-goog-api-key": "key-of-the-operator" },
  });
  expect(upstream.requests[0]?.body).toEqual({
    contents,
    safetySettings,
    generationConfig: { thinkingConfig: { thinkingBudget: 100 }, maxOutputTokens: 500 },
  });
});

test("A stream returns event by event, and its last one waits for the charge.", async () => {
  const before = await spent();
  const call = { functionCall: { name: "look", args: { at: "a" } }, thoughtSignature: "c2lnbmVk" };
  const events = [
    responseOf([{ text: "Let me ", thought: true }]),
    responseOf([{ text: "see." }, call], { safetyRatings: RATINGS }, { promptTokenCount: 100 }),
    responseOf([{ text: "" }], { finishReason: "STOP" }, USAGE),
  ];
  upstream.answer({ headers: { "content-type": "text/event-stream" }, body: sse(events) });
  const tools = [{ functionDeclarations: [{ name: "look", parameters: { type: "OBJECT", properties: {} } }] }];
  const answer = await generate({ tools }, "streamGenerateContent?alt=sse");
  const received = (await answer.text()).split("\r\n\r\n").filter((event) => event.startsWith("data: "));
  const responses = received.map((event) => JSON.parse(event.slice("data: ".length)));
  expect(responses.map(({ candidates }) => candidates)).toEqual(events.map(({ candidates }) => candidates));
  expect(responses.map(({ usageMetadata }) => usageMetadata?.cost)).toEqual([undefined, undefined, COST]);
  expect(responses.map(faultOf)).toEqual([undefined, undefined, undefined]);
  expect(new Set(responses.map(({ modelVersion }) => modelVersion))).toEqual(new Set(["gemini"]));
  expect((await spent()) - before).toBeCloseTo(COST, 9);
  // Its schema is not translated.
  expect(upstream.requests[0]?.body.tools).toEqual(tools);
});

test("A stream as one list in JSON is one list.", async () => {
  const events = [responseOf([{ text: "a" }]), responseOf([{ text: "b" }], { finishReason: "STOP" }, USAGE)];
  upstream.answer({ headers: { "content-type": "text/event-stream" }, body: sse(events) });
  const listed = JSON.parse(await (await generate({}, "streamGenerateContent")).text());
  expect(listed).toMatchObject([{ candidates: events[0]?.candidates }, { usageMetadata: { cost: COST } }]);
});

test("A stream that breaks off is charged by its text and ends with an error.", async () => {
  const before = await spent();
  const body = sse([responseOf([{ text: "one two three four" }], {}, { promptTokenCount: 100 })]);
  upstream.answer({ headers: { "content-type": "text/event-stream" }, body, ending: "reset" });
  const text = await (await generate({}, "streamGenerateContent?alt=sse")).text();
  expect(text).toContain("one two three four");
  expect(text).toContain('"reason":"upstream_error"');
  const charged = (await spent()) - before;
  expect(charged).toBeGreaterThan(0);
  expect(charged).toBeLessThan(COST);
});

test("A prompt that Google blocks is answered with its feedback.", async () => {
  const promptFeedback = { blockReason: "PROHIBITED_CONTENT" };
  upstream.answer({ body: JSON.stringify({ promptFeedback, usageMetadata: { promptTokenCount: 100 } }) });
  const document = await (await generate({})).json();
  expect(faultOf(document)).toBeUndefined();
  expect(document).toMatchObject({
    ...{ promptFeedback, candidates: [] },
    usageMetadata: { promptTokenCount: 100, candidatesTokenCount: 0 },
  });
});

test("Thoughts and signatures that another model made do not reach Google.", async () => {
  const detail = { type: "reasoning.text", text: "Hm.", signature: "of Claude", format: "anthropic-claude-v1" };
  const called = { name: "look", arguments: "{}" };
  const calls = [{ index: 0, id: "call_1", type: "function", function: called, extra_content: { other: 1 } }];
  const message = { role: "assistant", content: "I look.", reasoning_details: [detail], tool_calls: calls };
  const choices = [{ index: 0, message, finish_reason: "tool_calls" }];
  const usage = { prompt_tokens: 7, completion_tokens: 3, total_tokens: 10 };
  upstream.answer({ body: JSON.stringify({ choices, usage }) });
  const tools = [{ functionDeclarations: [{ name: "look" }] }];
  const first = (await (await generate({ tools }, undefined, "other")).json()) as {
    candidates: [{ content: Content }];
  };
  const [{ content }] = first.candidates;
  expect(content.parts.filter((part) => part.thoughtSignature !== undefined).length).toBeGreaterThan(0);
  upstream.answer({ body: JSON.stringify(responseOf([{ text: "Done." }], { finishReason: "STOP" }, USAGE)) });
  const result = { functionResponse: { id: "call_1", name: "look", response: { seen: "a" } } };
  const turns = [...contents, content, { role: "user", parts: [result] }];
  expect((await generate({ contents: turns, tools })).status).toBe(200);
  expect(upstream.requests.at(-1)?.body.contents).toEqual([
    ...contents,
    { role: "model", parts: [{ text: "I look." }, { functionCall: { id: "call_1", name: "look", args: {} } }] },
    { role: "user", parts: [result] },
  ]);
});

interface Content {
  parts: { thoughtSignature?: string }[];
}

test("Media in the result of a function reach Google, and others as the media of a tool's result.", async () => {
  const inlineData = { mimeType: "image/png", data: "iVBORw0KGgo=", displayName: "shot" };
  const called = { role: "model", parts: [{ functionCall: { name: "look", args: {} } }] };
  const functionResponse = { name: "look", response: { image: { $ref: "shot" } }, parts: [{ inlineData }] };
  const body = {
    contents: [...contents, called, { role: "user", parts: [{ functionResponse }] }],
    tools: [{ functionDeclarations: [{ name: "look" }] }],
    systemInstruction: { role: "system", parts: [{ text: "Be brief." }] },
  };
  upstream.answer({ body: JSON.stringify(responseOf([{ text: "Seen." }], { finishReason: "STOP" }, USAGE)) });
  expect((await generate(body)).headers.get("x-tollgate-ignored")).toBeNull();
  expect(upstream.requests[0]?.body).toMatchObject(body);
  const message = { role: "assistant", content: "Seen." };
  upstream.answer({ body: JSON.stringify({ choices: [{ index: 0, message, finish_reason: "stop" }] }) });
  expect((await generate(body, "generateContent", "other")).status).toBe(200);
  expect(upstream.requests[1]?.body).toMatchObject({
    messages: [
      { role: "system", content: "Be brief." },
      { role: "user", content: "Hello" },
      { role: "assistant" },
      { role: "tool", content: [{ type: "text", text: '{"image":{"$ref":"shot"}}' }] },
      { role: "user", content: [{ type: "image_url", image_url: { url: "data:image/png;base64,iVBORw0KGgo=" } }] },
    ],
  });
  const broken = { ...functionResponse, parts: [{ inlineData: { mimeType: "image/png", data: "?" } }] };
  const refused = await generate({ contents: [...contents, called, { parts: [{ functionResponse: broken }] }] });
  const { error } = (await refused.json()) as { error: { details: { metadata: object }[] } };
  expect(error.details[0]?.metadata).toMatchObject({
    param: "contents[2].parts[0].functionResponse.parts[0].inlineData",
  });
});

test("Elsewhere safety settings are named as ignored.", async () => {
  const choices = [{ index: 0, message: { role: "assistant", content: "Hi" }, finish_reason: "stop" }];
  upstream.answer({ body: JSON.stringify({ choices, usage: { prompt_tokens: 7, completion_tokens: 3 } }) });
  const answer = await generate({ safetySettings: [] }, undefined, "other");
  expect([answer.status, answer.headers.get("x-tollgate-ignored")]).toEqual([200, "safetySettings"]);
});

test("The AI SDK's package for Google reads such a stream, and chat completions of the model are translated.", async () => {
  const events = [responseOf([{ text: "Hel" }]), responseOf([{ text: "lo" }], { finishReason: "STOP" }, USAGE)];
  const stream = { headers: { "content-type": "text/event-stream" }, body: sse(events) };
  upstream.answer(stream, stream);
  const model = createGoogle({ baseURL: `${service.url}/v1beta`, apiKey: rich.token })("gemini");
  const { text, usage } = streamText({ model, prompt: "Hello", maxRetries: 0 });
  expect([await text, (await usage).inputTokens]).toEqual(["Hello", 110]);
  const messages = [{ role: "user", content: "Hello" }];
  const body = { model: "gemini", messages, stream: true };
  const chunks = eventsOf(await (await send(service, "/v1/chat/completions", rich.token, body)).text());
  expect(chunks.join("")).toContain('"content":"Hel"');
  expect(chunks.join("")).not.toContain("candidates");
});
