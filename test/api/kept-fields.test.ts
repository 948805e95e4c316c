import Anthropic from "@anthropic-ai/sdk";
import OpenAI from "openai";
import { afterAll, beforeAll, beforeEach, describe, expect, test } from "vitest";
import { sse } from "../support/second-wire.ts";
import { makeOrganization, type Organization, type RunningService, send, startService } from "../support/service.ts";
import { answering, startUpstream, type Upstream } from "../support/upstream.ts";
import { type ScriptedServer, startScriptedServer } from "../wires/scripted-server.ts";

/** Fields that providers want back, or that clients read, and that no wire may lose. */

const PRICE = { input: 1, cachedInput: 1, output: 1 };
const SIGNATURE = "CiQBjz1rX0pnb29nbGU=";
const USER = { role: "user" as const, content: "Go" };
const STREAM = { "content-type": "text/event-stream" };

let upstream: Upstream;
let makers: ScriptedServer;
let service: RunningService;
let rich: Organization;

beforeAll(async () => {
  upstream = await startUpstream();
  upstream.behave("m", answering({ words: ["Hello"] }));
  makers = await startScriptedServer();
  const maker = (id: string, kind: string, host: string) => ({ id, kind, baseUrl: `http://${host}`, apiKey: "key" });
  const modelOf = (id: string, provider: string, model: string) => {
    return { id, price: PRICE, contextWindow: 100_000, routes: [{ provider, model }] };
  };
  service = await startService({
    // The second wires belong to the makers' own addresses.
    environment: { HTTP_PROXY: makers.origin, NO_PROXY: "127.0.0.1" },
    config: {
      providers: [
        { id: "up", kind: "openai-compatible", baseUrl: upstream.baseUrl, apiKey: "key" },
        maker("openai", "openai-compatible", "api.openai.com/v1"),
        maker("anthropic", "anthropic", "api.anthropic.com/v1"),
        { id: "google", kind: "google", baseUrl: `${makers.origin}/v1beta`, apiKey: "key" },
      ],
      models: [
        modelOf("plain", "up", "m"),
        modelOf("gpt", "openai", "gpt-6-astra"),
        modelOf("claude", "anthropic", "claude-opus-5"),
        modelOf("gemini", "google", "gemini-3-flash-preview"),
      ],
    },
  });
  rich = await makeOrganization(service, "10");
});
afterAll(async () => {
  await service?.end();
  await upstream?.close();
  await makers?.end();
});
beforeEach(() => makers.reset());

const openai = () => new OpenAI({ baseURL: service.baseUrl, apiKey: rich.token, maxRetries: 0 });
const anthropic = () => new Anthropic({ apiKey: rich.token, authToken: null, baseURL: service.url, maxRetries: 0 });

/** Scripts an answer of Gemini whose text is signed: at its end in a stream, as Google does. */
function answerSigned(isStreamed: boolean): void {
  const usageMetadata = { promptTokenCount: 40, candidatesTokenCount: 12, totalTokenCount: 52 };
  const candidate = (parts: object[], more = {}) => ({ candidates: [{ content: { role: "model", parts }, ...more }] });
  const end = { finishReason: "STOP" };
  const signed = { thoughtSignature: SIGNATURE };
  if (!isStreamed) {
    makers.answer({ body: JSON.stringify({ ...candidate([{ text: "Hello", ...signed }], end), usageMetadata }) });
    return;
  }
  const events = [
    candidate([{ text: "Hel" }]),
    candidate([{ text: "lo" }]),
    { ...candidate([{ text: "", ...signed }], end), usageMetadata },
  ];
  const body = events.map((event) => `data: ${JSON.stringify(event)}\r\n\r\n`).join("");
  makers.answer({ headers: STREAM, body });
}

/** Answers with the text on a wire, and returns the conversation with the next question on the same wire. */
const CONVERSATIONS: Record<string, (stream: boolean) => Promise<() => Promise<unknown>>> = {
  chat: async (stream) => {
    const asked = { model: "gemini", messages: [USER] as OpenAI.ChatCompletionMessageParam[] };
    const { message } = (
      stream
        ? await openai().chat.completions.stream(asked).finalChatCompletion()
        : await openai().chat.completions.create(asked)
    ).choices[0] as OpenAI.ChatCompletion.Choice;
    expect(message.content).toBe("Hello");
    return () => openai().chat.completions.create({ ...asked, messages: [USER, message, USER] });
  },
  responses: async (stream) => {
    const asked = { model: "gemini", input: [USER] as OpenAI.Responses.ResponseInput };
    const answer = await (stream
      ? openai().responses.stream(asked).finalResponse()
      : openai().responses.create({ ...asked, stream: false }));
    expect(answer.output_text).toBe("Hello");
    const items = answer.output as OpenAI.Responses.ResponseInput;
    return () => openai().responses.create({ ...asked, input: [USER, ...items, USER] });
  },
  messages: async (stream) => {
    const asked = { model: "gemini", max_tokens: 100, messages: [USER] };
    const answer = await (stream
      ? anthropic().messages.stream(asked).finalMessage()
      : anthropic().messages.create({ ...asked, stream: false }));
    expect(answer.content.find(({ type }) => type === "text")).toMatchObject({ text: "Hello" });
    const said = { role: "assistant" as const, content: answer.content };
    return () => anthropic().messages.create({ ...asked, messages: [USER, said, USER] });
  },
  gemini: async (stream) => {
    const path = "/v1beta/models/gemini:";
    const asked = { role: "user", parts: [{ text: "Go" }] };
    const ask = (method: string, contents: object[]) => send(service, path + method, rich.token, { contents });
    const answer = await ask(stream ? "streamGenerateContent" : "generateContent", [asked]);
    const answers = [await answer.json()].flat() as { candidates: { content: { parts: { text: string }[] } }[] }[];
    const parts = answers.flatMap(({ candidates }) => candidates.flatMap(({ content }) => content.parts));
    expect(parts.map(({ text }) => text).join("")).toBe("Hello");
    return () => ask("generateContent", [asked, { role: "model", parts }, asked]);
  },
};

describe("The signature of Gemini's text returns to Google with the text", () => {
  test.each(
    Object.keys(CONVERSATIONS).flatMap((wire) => [
      [wire, "whole"],
      [wire, "streamed"],
    ]),
  )("on the wire of %s, %s.", async (wire, form) => {
    answerSigned(form === "streamed");
    const next = await CONVERSATIONS[wire]?.(form === "streamed");
    answerSigned(false);
    await next?.();
    const contents = makers.requests.at(-1)?.body.contents as { role: string; parts: { text: string }[] }[];
    const parts = contents.filter(({ role }) => role === "model").flatMap((content) => content.parts);
    // Parts of Gemini's own wire pass as they came.
    expect(parts.map(({ text }) => text).join("")).toBe("Hello");
    expect(parts.at(-1)).toEqual({ text: expect.any(String), thoughtSignature: SIGNATURE });
    for (const part of parts) expect(part).not.toHaveProperty("thought");
  });
});

test("A chat completion with audio is continued by the audio's id, and OpenAI gets no more of it.", async () => {
  const audio = { id: "audio_1", data: "AAAA", expires_at: 1, transcript: "Hello" };
  const message = { role: "assistant" as const, content: null, refusal: null, audio };
  makers.answer({ body: JSON.stringify({ choices: [{ index: 0, message, finish_reason: "stop" }] }) });
  const messages = [USER, message, USER];
  const { response } = await openai().chat.completions.create({ model: "gpt", messages }).withResponse();
  expect(response.headers.get("x-tollgate-ignored")).toBeNull();
  expect(makers.requests[0]?.body.messages).toEqual([
    USER,
    { role: "assistant", content: null, audio: { id: "audio_1" } },
    USER,
  ]);
});

describe("Fields of a native answer", () => {
  const edits = { applied_edits: [{ type: "clear_tool_uses_20250919", cleared_tool_uses: 3 }] };

  test("context_management of Anthropic reaches the client, whole and streamed.", async () => {
    const usage = { input_tokens: 40, output_tokens: 12 };
    const content = [{ type: "text", text: "Hello" }];
    const message = { id: "m", type: "message", role: "assistant", content, stop_reason: "end_turn" };
    makers.answer({ body: JSON.stringify({ ...message, usage, context_management: edits }) });
    const asked = { model: "claude", max_tokens: 100, messages: [USER], betas: ["context-management-2025-06-27"] };
    expect((await anthropic().beta.messages.create(asked)).context_management).toEqual(edits);
    const events = [
      { type: "message_start", message: { ...message, content: [], stop_reason: null, usage } },
      { type: "content_block_start", index: 0, content_block: { type: "text", text: "" } },
      { type: "content_block_delta", index: 0, delta: { type: "text_delta", text: "Hello" } },
      { type: "content_block_stop", index: 0 },
      { type: "message_delta", delta: { stop_reason: "end_turn" }, usage, context_management: edits },
      { type: "message_stop" },
    ];
    makers.answer({ headers: STREAM, body: sse(events) });
    const final = await anthropic().beta.messages.stream(asked).finalMessage();
    expect(final).toMatchObject({ content, stop_reason: "end_turn", context_management: edits });
  });

  test("The beginning of a stream has the prompt as Anthropic has counted it.", async () => {
    const usage = { input_tokens: 40, cache_read_input_tokens: 7, cache_creation_input_tokens: 5, output_tokens: 1 };
    const events = [
      { type: "message_start", message: { id: "m", type: "message", role: "assistant", content: [], usage } },
      { type: "message_delta", delta: { stop_reason: "end_turn" }, usage: { output_tokens: 12 } },
      { type: "message_stop" },
    ];
    makers.answer({ headers: STREAM, body: sse(events) });
    const stream = anthropic().messages.stream({ model: "claude", max_tokens: 100, messages: [USER] });
    const begun = new Promise((resolve) => stream.once("streamEvent", resolve));
    expect(await begun).toMatchObject({ message: { usage: { ...usage, output_tokens: 0 } } });
    expect((await stream.finalMessage()).usage).toMatchObject({ ...usage, output_tokens: 12 });
  });

  test("phase of OpenAI reaches the client, whole and streamed, and OpenAI again from what is kept.", async () => {
    const content = [{ type: "output_text", text: "Hello", annotations: [], logprobs: [] }];
    const item = {
      ...{ id: "msg_1", type: "message", role: "assistant", status: "completed" },
      ...{ phase: "commentary", content },
    };
    const response = { id: "r", status: "completed", output: [item], usage: { input_tokens: 40, output_tokens: 12 } };
    const body = JSON.stringify(response);
    makers.answer({ body });
    const asked = { model: "gpt", input: "Go" };
    const whole = await openai().responses.create(asked);
    expect(whole.output).toMatchObject([{ phase: "commentary" }]);
    const events = [
      { type: "response.created", response: { id: "r" } },
      { type: "response.output_item.added", output_index: 0, item: { ...item, content: [] } },
      { type: "response.output_text.delta", output_index: 0, content_index: 0, item_id: "msg_1", delta: "Hello" },
      { type: "response.output_item.done", output_index: 0, item },
      { type: "response.completed", response },
    ];
    makers.answer({ headers: STREAM, body: sse(events) });
    const heard: object[] = [];
    for await (const event of await openai().responses.create({ ...asked, stream: true })) {
      if (event.type === "response.output_item.added" || event.type === "response.completed") heard.push(event);
    }
    const said = { phase: "commentary" };
    expect(heard).toMatchObject([{ item: said }, { response: { output: [said] } }]);
    makers.answer({ body });
    await openai().responses.create({ ...asked, previous_response_id: whole.id });
    expect(makers.requests.at(-1)?.body.input).toMatchObject([{ role: "user" }, said, { role: "user" }]);
  });

  test("phase is named where the provider has no such field.", async () => {
    const input = [USER, { role: "assistant", content: "Hm.", phase: "commentary" }, USER];
    const named = await send(service, "/v1/responses", rich.token, { model: "plain", input });
    expect(named.status).toBe(200);
    expect(named.headers.get("x-tollgate-ignored")).toBe("input.phase");
  });
});

test("cache_control, prompt_cache_retention and store reach a compatible server that no row describes.", async () => {
  const mark = { cache_control: { type: "ephemeral" } };
  const fields = { prompt_cache_retention: "24h", store: true };
  const messages = [{ role: "user", content: [{ type: "text", text: "Go", ...mark }] }];
  const response = await send(service, "/v1/chat/completions", rich.token, {
    ...{ model: "plain", messages, ...fields, ...mark },
  });
  expect([response.status, response.headers.get("x-tollgate-ignored")]).toEqual([200, null]);
  expect(upstream.requests.at(-1)?.body).toMatchObject({ messages, ...fields, ...mark });
});

test("Schemas of what Gemini's functions return are named, and a second result of a call is refused.", async () => {
  const path = "/v1beta/models/plain:generateContent";
  const look = { name: "look", response: { type: "OBJECT" }, responseJsonSchema: { type: "object" } };
  const tools = [{ functionDeclarations: [look] }];
  const asked = { role: "user", parts: [{ text: "Go" }] };
  const named = await send(service, path, rich.token, { contents: [asked], tools });
  expect(named.status).toBe(200);
  const place = "tools.functionDeclarations";
  const ignored = named.headers.get("x-tollgate-ignored")?.split(", ");
  expect(ignored).toEqual([`${place}.response`, `${place}.responseJsonSchema`]);
  const result = { functionResponse: { name: "look", response: {}, willContinue: true } };
  const called = { role: "model", parts: [{ functionCall: { name: "look", args: {} } }] };
  const contents = [asked, called, { role: "user", parts: [result, result] }];
  const refused = await send(service, path, rich.token, { contents, tools });
  expect([refused.status, await refused.text()]).toEqual([
    400,
    expect.stringContaining("contents[2].parts[1].functionResponse"),
  ]);
});
