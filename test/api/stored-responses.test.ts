import { createOpenAI } from "@ai-sdk/openai";
import { generateText, jsonSchema, stepCountIs, tool } from "ai";
import OpenAI from "openai";
import { afterAll, beforeAll, expect, test } from "vitest";
import { operator } from "../support/admin.ts";
import { makeOrganization, type Organization, type RunningService, send, startService } from "../support/service.ts";
import { answering, sendJson, startUpstream, type Upstream } from "../support/upstream.ts";

const usage = { prompt_tokens: 7, completion_tokens: 3, total_tokens: 10 };
const TOOLS = [
  { type: "function" as const, name: "look", strict: null, parameters: { type: "object" } },
  { type: "custom" as const, name: "patch" },
];
const PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==";

let upstream: Upstream;
let service: RunningService;
let keeping: Organization;
let client: OpenAI;
let stranger: OpenAI;

beforeAll(async () => {
  upstream = await startUpstream();
  const price = { input: 1_000, output: 1_000 };
  const capabilities = ["chat", "streaming", "tools", "vision"];
  service = await startService({
    config: {
      providers: [upstream.provider],
      models: ["talk", "act"].map((id) => ({ id, price, capabilities, routes: [{ provider: "up", model: id }] })),
    },
  });
  upstream.behave("talk", answering({ words: ["Good ", "day."], usage }));
  upstream.behave("act", (request) => {
    const messages = request.body.messages as { role: string }[];
    if (messages.some(({ role }) => role === "tool")) return answering({ words: ["Done."], usage })(request);
    const tool_calls = ["look", "patch"].map((name) => {
      return { id: `call_${name}`, type: "function", function: { name, arguments: '{"input":"x"}' } };
    });
    const message = { role: "assistant", content: "I act.", reasoning_content: "Hm.", tool_calls };
    sendJson(request.response, 200, { choices: [{ index: 0, message, finish_reason: "tool_calls" }], usage });
  });
  keeping = await makeOrganization(service, "100000");
  const other = await makeOrganization(service, "100000");
  for (const { id } of [keeping, other]) {
    const { headers } = operator(service);
    const options = { method: "PATCH", headers: { ...headers } };
    const turned = await send(service, `/admin/v1/organizations/${id}`, null, { keeps_conversations: true }, options);
    expect(turned.status).toBe(200);
  }
  const connect = (apiKey: string) => new OpenAI({ apiKey, baseURL: service.baseUrl, maxRetries: 0 });
  client = connect(keeping.token);
  stranger = connect(other.token);
});

afterAll(async () => {
  await service?.end();
  await upstream?.close();
});

const sentMessages = () => upstream.requests.at(-1)?.body.messages;
const codeOf = (promise: Promise<unknown>) =>
  promise.then(
    () => undefined,
    ({ status, code }: { status: number; code: string }) => `${status} ${code}`,
  );

test("A stored response is continued, retrieved and deleted by its organization only.", async () => {
  const asked = { model: "talk", input: "Hello", instructions: "Be kind.", metadata: { a: "b" } };
  const first = await client.responses.create(asked);
  expect(first).toMatchObject({ store: true });
  const previous = { model: "talk", input: "And now?", previous_response_id: first.id };
  const second = await client.responses.stream(previous).finalResponse();
  expect(second.previous_response_id).toBe(first.id);
  expect(sentMessages()).toEqual([
    { role: "user", content: "Hello" },
    { role: "assistant", content: [{ type: "text", text: "Good day." }] },
    { role: "user", content: "And now?" },
  ]);
  expect(await client.responses.retrieve(first.id)).toEqual(first);
  expect(await client.responses.retrieve(second.id)).toMatchObject({ previous_response_id: first.id });
  expect(await codeOf(stranger.responses.create(previous))).toBe("400 previous_response_not_found");
  expect(await codeOf(stranger.responses.retrieve(first.id))).toBe("404 not_found");
  expect(await codeOf(stranger.responses.delete(first.id))).toBe("404 not_found");
  expect(await client.responses.delete(first.id)).toEqual({ id: first.id, object: "response", deleted: true });
  expect(await codeOf(client.responses.retrieve(first.id))).toBe("404 not_found");
  expect(await codeOf(client.responses.create(previous))).toBe("400 previous_response_not_found");
});

test("A stored response is used by the token that created it and by its successor only.", async () => {
  const { headers } = operator(service);
  const admin = async (path: string, body: object) => {
    const answer = await send(service, path, null, body, { headers: { ...headers } });
    expect(answer.ok).toBe(true);
    return (await answer.json()) as { id: string; secret: string };
  };
  const connect = ({ secret }: { secret: string }) =>
    new OpenAI({ apiKey: secret, baseURL: service.baseUrl, maxRetries: 0 });
  const [creator, other] = await Promise.all(
    ["creator", "neighbour"].map((name) => admin("/admin/v1/tokens", { organization_id: keeping.id, name })),
  );
  if (creator === undefined || other === undefined) throw new Error("There are no tokens");
  const neighbour = connect(other);
  const { id, output } = await connect(creator).responses.create({ model: "talk", input: "Hello" });
  const successor = await admin(`/admin/v1/tokens/${creator.id}/rotate`, { overlap_seconds: 3600 });
  const unknown = await codeOf(neighbour.responses.retrieve(`resp_${"0".repeat(32)}`));
  expect(unknown).toBe("404 not_found");
  expect(await codeOf(neighbour.responses.retrieve(id))).toBe(unknown);
  expect(await codeOf(neighbour.responses.delete(id))).toBe(unknown);
  expect(await codeOf(connect(creator).responses.retrieve(id))).toBeUndefined();
  const previous = { model: "talk", input: "And now?", previous_response_id: id };
  const reference = { type: "item_reference" as const, id: output[0]?.id ?? "" };
  const referring = { model: "talk", input: [reference, { role: "user" as const, content: "And now?" }] };
  const sent = upstream.requests.length;
  expect(await codeOf(neighbour.responses.create(previous))).toBe("400 previous_response_not_found");
  expect(await codeOf(neighbour.responses.create(referring))).toBe("400 invalid_value");
  expect(upstream.requests).toHaveLength(sent);
  for (const own of [connect(creator), connect(successor)]) {
    for (const body of [previous, referring]) {
      expect(await codeOf(own.responses.create(body))).toBeUndefined();
      expect(JSON.stringify(sentMessages())).toContain("Good day.");
    }
  }
  expect((await connect(successor).responses.retrieve(id)).id).toBe(id);
  const subject_id = id.replace(/^resp_(.{8})(.{4})(.{4})(.{4})(.{12})$/, "$1-$2-$3-$4-$5");
  const conversation = async () => {
    const path = `/admin/v1/requests/${subject_id}/conversation`;
    return (await send(service, path, null, undefined, { headers: { ...headers } })).status;
  };
  await expect.poll(conversation).toBe(200);
  expect(await connect(successor).responses.delete(id)).toMatchObject({ deleted: true });
  expect(await conversation()).toBe(404);
  const path = `/admin/v1/audit?action=conversations.remove&organization_id=${keeping.id}&limit=1`;
  const audit = await send(service, path, null, undefined, { headers: { ...headers } });
  expect(await audit.json()).toMatchObject({ data: [{ actor: { kind: "member", id: successor.id }, subject_id }] });
});

test("Calls of stored responses keep their tools, and their items can be sent by reference.", async () => {
  const first = await client.responses.create({ model: "act", input: "Go", tools: TOOLS });
  expect(first.output.map(({ type }) => type)).toEqual(["reasoning", "message", "function_call", "custom_tool_call"]);
  expect((await client.responses.retrieve(first.id)).output).toEqual(first.output);
  const results = [
    { type: "function_call_output" as const, call_id: "call_look", output: "seen" },
    { type: "custom_tool_call_output" as const, call_id: "call_patch", output: "done" },
  ];
  const previous_response_id = first.id;
  await client.responses.create({ model: "act", input: results, tools: TOOLS, previous_response_id });
  const continued = sentMessages();
  const references = first.output.map(({ id = "" }) => ({ type: "item_reference" as const, id }));
  const input = [{ role: "user" as const, content: "Go" }, ...references, ...results];
  await client.responses.create({ model: "act", input, tools: TOOLS });
  const [, called, ...rest] = sentMessages() as { content: unknown }[];
  expect(called).toMatchObject({ reasoning_content: "Hm.", content: [{ type: "text", text: "I act." }] });
  const [user] = continued as object[];
  expect([user, called, ...rest]).toEqual(continued);
});

test("Operations on stored responses that are not offered are named.", async () => {
  const { id } = await client.responses.create({ model: "talk", input: "Hello" });
  const absent = {
    status: 404,
    error: { message: expect.stringMatching(/'(input_items|cancel|compact)' of responses/) },
  };
  await expect(client.responses.inputItems.list(id)).rejects.toMatchObject(absent);
  await expect(client.responses.cancel(id)).rejects.toMatchObject(absent);
  await expect(client.responses.compact({ model: "talk" as never, input: "x" })).rejects.toMatchObject(absent);
  const streamed = client.responses.retrieve(id, { stream: true });
  await expect(streamed).rejects.toMatchObject({ status: 400, code: "unsupported_value", param: "stream" });
});

test("Too many references are refused before they are looked up.", async () => {
  const input = Array.from({ length: 33_000 }, (_, index) => ({ type: "item_reference", id: `msg_${index}` }));
  const answer = await send(service, "/v1/responses", keeping.token, { model: "talk", input });
  expect([answer.status, await answer.json()]).toMatchObject([
    413,
    { error: { code: "body_too_large", param: "input" } },
  ]);
});

test("A response to an image is continued with the image.", async () => {
  const image = { type: "input_image" as const, image_url: `data:image/png;base64,${PNG}`, detail: "auto" as const };
  const { id } = await client.responses.create({ model: "talk", input: [{ role: "user", content: [image] }] });
  await client.responses.create({ model: "talk", input: "Go on", previous_response_id: id });
  expect(JSON.stringify(sentMessages())).toContain(PNG);
});

test("The AI SDK runs tools with its default settings, which send items by reference.", async () => {
  const model = createOpenAI({ baseURL: service.baseUrl, apiKey: keeping.token })("act");
  const inputSchema = jsonSchema<object>({ type: "object" });
  const look = tool({ inputSchema, execute: async () => "seen" });
  const patch = tool({ inputSchema, execute: async () => "done" });
  const asked = { model, prompt: "Go", tools: { look, patch }, stopWhen: stepCountIs(3), maxRetries: 0 };
  const { text, steps } = await generateText(asked);
  expect([text, steps.length]).toEqual(["Done.", 2]);
});
