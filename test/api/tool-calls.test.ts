import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { ChatOpenAI } from "@langchain/openai";
import { jsonSchema, stepCountIs, streamText, tool } from "ai";
import OpenAI from "openai";
import OpenAI6 from "openai6";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { makeOrganization, type RunningService, send, startService } from "../support/service.ts";
import { type Behaviour, sendJson, startUpstream, type Upstream } from "../support/upstream.ts";

const PRICE = { input: 1, output: 1 };
const usage = { prompt_tokens: 10, completion_tokens: 5, total_tokens: 15 };
const CITIES = ["Bern", "Chur"];
const TOOLS = [
  {
    type: "function" as const,
    function: {
      name: "weather",
      parameters: { type: "object", properties: { city: { type: "string" } }, required: ["city"] },
    },
  },
];

interface Sent {
  role: string;
  content?: unknown;
  refusal?: unknown;
  tool_call_id?: string;
  tool_calls?: { id: string; type: string; function: { name: string; arguments: string } }[];
}

/** Fields of two tool calls in addition to their function, by index. */
const NAMINGS: Record<string, (place: number) => object> = {
  "empty-ids": (index) => ({ index, id: "", type: "function" }),
  "null-ids": (index) => ({ index, id: null }),
  "no-ids": (index) => ({ index }),
  "no-indexes": () => ({}),
  "one-index": () => ({ index: 0, id: null, type: "function" }),
  "equal-ids": (index) => ({ index, id: "call_same", type: "function" }),
  // As Ollama and Gemini's compatible API.
  "stop-as-the-finish-reason": (index) => ({ index, id: `call_${index}`, type: "function" }),
};

/** Calls the tool for both cities, streamed in pieces, and then answers with the results. */
function calling(naming: (place: number) => object, reason: string): Behaviour {
  return ({ body, response }) => {
    const results = (body.messages as Sent[]).filter(({ role }) => role === "tool").map(({ content }) => content);
    const calls = CITIES.map((city, place) => ({
      ...naming(place),
      function: { name: "weather", arguments: JSON.stringify({ city }) },
    }));
    const content = results.length === 0 ? null : results.join(" and ");
    const finish_reason = results.length === 0 ? reason : "stop";
    if (body.stream !== true) {
      const message = { role: "assistant", content, ...(results.length === 0 && { tool_calls: calls }) };
      sendJson(response, 200, { id: "x", model: "m", choices: [{ index: 0, message, finish_reason }], usage });
      return;
    }
    response.writeHead(200, { "content-type": "text/event-stream" });
    const event = (delta: object, reason: string | null = null) =>
      response.write(`data: ${JSON.stringify({ choices: [{ index: 0, delta, finish_reason: reason }] })}\n\n`);
    event({ role: "assistant", content: results.length === 0 ? null : "" });
    if (content !== null) event({ content });
    else {
      for (const [place, call] of calls.entries()) {
        const { arguments: text } = call.function;
        event({ tool_calls: [{ ...naming(place), function: { name: "weather", arguments: "" } }] });
        for (const piece of [text.slice(0, 5), text.slice(5)]) {
          event({ tool_calls: [{ ...naming(place), function: { arguments: piece } }] });
        }
      }
    }
    event({}, finish_reason);
    response.write(`data: ${JSON.stringify({ choices: [], usage })}\n\n`);
    response.end("data: [DONE]\n\n");
  };
}

/** Streams the given choices one by one, or answers with the message. */
function saying(choices: object[], message: object, logprobs: unknown = null): Behaviour {
  return ({ body, response }) => {
    if (body.stream !== true) {
      sendJson(response, 200, { choices: [{ index: 0, message, logprobs, finish_reason: "stop" }], usage });
      return;
    }
    response.writeHead(200, { "content-type": "text/event-stream" });
    for (const choice of choices) response.write(`data: ${JSON.stringify({ choices: [{ index: 0, ...choice }] })}\n\n`);
    response.end(`data: ${JSON.stringify({ choices: [], usage })}\n\ndata: [DONE]\n\n`);
  };
}

const TOKENS = ["a", "", "b"].map((token) => ({ token, logprob: -1, bytes: null, top_logprobs: [] }));
const REFUSAL = "I cannot help with that.";

let upstream: Upstream;
let service: RunningService;
let token: string;

beforeAll(async () => {
  upstream = await startUpstream();
  for (const [name, naming] of Object.entries(NAMINGS)) {
    upstream.behave(name, calling(naming, name.startsWith("stop") ? "stop" : "tool_calls"));
  }
  const logprobs = TOKENS.map((one) => ({ content: [one], refusal: null }));
  upstream.behave(
    "logprobs",
    saying(
      [
        { delta: { role: "assistant", content: "" } },
        { delta: { content: "a" }, logprobs: logprobs[0] },
        { delta: { content: "" }, logprobs: logprobs[1] },
        { delta: {}, logprobs: logprobs[2], finish_reason: "stop" },
      ],
      { role: "assistant", content: "a" },
      { content: TOKENS, refusal: null },
    ),
  );
  const refusing = REFUSAL.split(/(?<= )/).map((refusal) => ({ delta: { refusal } }));
  upstream.behave(
    "refusal",
    saying(
      [{ delta: { role: "assistant", content: "", refusal: null } }, ...refusing, { delta: {}, finish_reason: "stop" }],
      { role: "assistant", content: null, refusal: REFUSAL },
    ),
  );
  upstream.behave(
    "silent",
    saying([{ delta: { role: "assistant", content: "" } }, { delta: {}, finish_reason: "stop" }], {
      role: "assistant",
      content: "",
    }),
  );
  const ids = [...Object.keys(NAMINGS), "logprobs", "refusal", "silent"];
  service = await startService({
    config: {
      limits: { requestsPerMinute: 100_000 },
      providers: [upstream.provider],
      models: ids.map((id) => ({ id, price: PRICE, routes: [{ provider: "up", model: id }] })),
    },
  });
  ({ token } = await makeOrganization(service, "1000"));
});

afterAll(async () => {
  await service?.end();
  await upstream?.close();
});

const models = Object.keys(NAMINGS);
const QUESTION = { role: "user" as const, content: "What is the weather?" };
const weatherIn = ({ city }: { city: string }) => `${city} is sunny`;
const ANSWER = "Bern is sunny and Chur is sunny";
const asOpenAi = () => new OpenAI({ apiKey: token, baseURL: service.baseUrl, maxRetries: 0 });

/** Expects that the last upstream request contains both calls, each with its own result. */
function expectSentBack(): void {
  const messages = upstream.requests.at(-1)?.body.messages as Sent[];
  const calls = messages.flatMap((message) => message.tool_calls ?? []);
  expect(calls.map((call) => JSON.parse(call.function.arguments))).toEqual(CITIES.map((city) => ({ city })));
  expect(calls.map(({ type }) => type)).toEqual(["function", "function"]);
  const ids = calls.map(({ id }) => id);
  expect(new Set(ids).size).toBe(2);
  for (const id of ids) expect(id.length).toBeGreaterThan(0);
  expect(messages.filter(({ role }) => role === "tool").map(({ tool_call_id: id }) => id)).toEqual(ids);
}

describe.each(models)("Two tool calls of an upstream that sends %s", (model) => {
  test.each([
    ["openai 7", () => asOpenAi()],
    ["openai 6", () => new OpenAI6({ apiKey: token, baseURL: service.baseUrl, maxRetries: 0 }) as unknown as OpenAI],
  ])(
    "%s: stream() and create() give the same two calls, and runTools() ends with both results",
    async (_name, open) => {
      const client = open();
      const asked = { model, messages: [QUESTION], tools: TOOLS };
      const streamed = await client.chat.completions.stream(asked).finalChatCompletion();
      const whole = await client.chat.completions.create(asked);
      for (const { message, finish_reason } of [...streamed.choices, ...whole.choices]) {
        expect(finish_reason).toBe("tool_calls");
        expect(message.content).toBeNull();
        const calls = message.tool_calls ?? [];
        expect(calls.map((call) => call.type === "function" && JSON.parse(call.function.arguments))).toEqual(
          CITIES.map((city) => ({ city })),
        );
        expect(new Set(calls.map(({ id }) => id)).size).toBe(2);
      }
      for (const stream of [false, true]) {
        const called = { ...TOOLS[0]?.function, function: weatherIn, parse: JSON.parse } as never;
        const tools = [{ type: "function" as const, function: called }];
        const runner = stream
          ? client.chat.completions.runTools({ model, messages: [QUESTION], tools, stream })
          : client.chat.completions.runTools({ model, messages: [QUESTION], tools });
        expect(await runner.finalContent()).toBe(ANSWER);
        expectSentBack();
      }
    },
  );

  test("The AI SDK runs both in streamText().", async () => {
    const provider = createOpenAICompatible({ name: "tollgate", baseURL: service.baseUrl, apiKey: token });
    const weather = tool({
      inputSchema: jsonSchema<{ city: string }>(TOOLS[0]?.function.parameters as object),
      execute: weatherIn,
    });
    const asked = { model: provider(model), prompt: QUESTION.content, tools: { weather }, stopWhen: stepCountIs(3) };
    expect(await streamText(asked).text).toBe(ANSWER);
    expectSentBack();
  });

  test("LangChain accepts both, streamed and not, and sends them back.", async () => {
    const options = { model, apiKey: token, maxRetries: 0, configuration: { baseURL: service.baseUrl } };
    const client = new ChatOpenAI(options).bindTools(TOOLS);
    const pieces = [];
    for await (const piece of await client.stream([QUESTION])) pieces.push(piece);
    const streamed = pieces.reduce((whole, piece) => whole.concat(piece));
    for (const first of [streamed, await client.invoke([QUESTION])]) {
      expect(first.tool_calls?.map(({ args }) => args)).toEqual(CITIES.map((city) => ({ city })));
      const results = (first.tool_calls ?? []).map(({ id, args }) => ({
        role: "tool" as const,
        tool_call_id: id ?? "",
        content: weatherIn(args as { city: string }),
      }));
      expect((await client.invoke([QUESTION, first, ...results])).content).toBe(ANSWER);
      expectSentBack();
    }
  });
});

interface Event {
  choices: { delta: Record<string, unknown>; logprobs?: { content: unknown[] } | null }[];
}
async function eventsFor(model: string): Promise<Event[]> {
  const body = { model, messages: [QUESTION], stream: true };
  const text = await (await send(service, "/v1/chat/completions", token, body)).text();
  const events = text.split("\n\n").filter((event) => event.startsWith("data: {"));
  return events.map((event) => JSON.parse(event.slice("data: ".length)));
}

test("Null content with tool calls reaches the upstream as null, as does absent content.", async () => {
  const call = { id: "call_1", type: "function", function: { name: "weather", arguments: "{}" } };
  for (const content of [{ content: null }, {}]) {
    const messages = [
      QUESTION,
      { role: "assistant", ...content, tool_calls: [call] },
      { role: "tool", tool_call_id: "call_1", content: "sunny" },
    ];
    expect((await send(service, "/v1/chat/completions", token, { model: "silent", messages })).status).toBe(200);
    const [, sent] = (upstream.requests.at(-1)?.body.messages ?? []) as Sent[];
    expect(sent).toEqual({ role: "assistant", content: null, tool_calls: [call] });
  }
});

test("Streamed log probabilities are kept on chunks without text and on the chunk with the finish reason.", async () => {
  const events = await eventsFor("logprobs");
  expect(events.flatMap(({ choices }) => choices.flatMap(({ logprobs }) => logprobs?.content ?? []))).toEqual(TOKENS);
  const asked = { model: "logprobs", messages: [QUESTION], logprobs: true };
  const streamed = await asOpenAi().chat.completions.stream(asked).finalChatCompletion();
  const whole = await asOpenAi().chat.completions.create(asked);
  expect(whole.choices[0]?.logprobs?.content).toEqual(TOKENS);
  expect(streamed.choices[0]?.logprobs?.content).toEqual(TOKENS);
});

describe("The content of an answer without text is that of OpenAI", () => {
  test.each(["no-ids", "refusal"])("%s: no event has content, and that of the message is null.", async (model) => {
    const events = await eventsFor(model);
    expect(events[0]?.choices[0]?.delta).toEqual({ role: "assistant" });
    for (const { delta } of events.flatMap(({ choices }) => choices)) expect(delta.content ?? null).toBeNull();
    const stream = asOpenAi().chat.completions.stream({ model, messages: [QUESTION] });
    const [streamed] = (await stream.finalChatCompletion()).choices;
    const [whole] = (await asOpenAi().chat.completions.create({ model, messages: [QUESTION] })).choices;
    expect([streamed?.message.content, whole?.message.content]).toEqual([null, null]);
    expect(streamed?.message.refusal).toBe(whole?.message.refusal);
  });

  test("An empty answer has empty content, streamed and not.", async () => {
    const asked = { model: "silent", messages: [QUESTION] };
    const [streamed] = (await asOpenAi().chat.completions.stream(asked).finalChatCompletion()).choices;
    const [whole] = (await asOpenAi().chat.completions.create(asked)).choices;
    expect([streamed?.message.content, whole?.message.content]).toEqual(["", ""]);
  });
});

test("An answer with a refusal can be sent back unchanged, with null content.", async () => {
  const client = asOpenAi();
  const [choice] = (await client.chat.completions.create({ model: "refusal", messages: [QUESTION] })).choices;
  expect(choice?.message).toMatchObject({ content: null, refusal: REFUSAL });
  const messages = [QUESTION, choice?.message ?? QUESTION, { role: "user" as const, content: "Why?" }];
  for (const model of ["silent", "sandbox/echo"]) {
    const answer = await client.chat.completions.create({ model, messages });
    expect(answer.choices[0]?.message.content).toBe(model === "silent" ? "" : "Why?");
  }
  const sent = upstream.requests.findLast(({ body }) => body.model === "silent")?.body.messages as Sent[];
  expect(sent[1]).toEqual({ role: "assistant", content: null, refusal: REFUSAL });
});

test("An assistant message without content, refusal and tool calls is rejected.", async () => {
  for (const refusal of [null, undefined]) {
    const messages = [{ role: "assistant", content: null, refusal }];
    const answer = await send(service, "/v1/chat/completions", token, { model: "silent", messages });
    expect(answer.status).toBe(400);
    expect(await answer.json()).toMatchObject({ error: { param: "messages[0].content" } });
  }
});
