import OpenAI from "openai";
import { afterAll, beforeAll, beforeEach, describe, expect, test } from "vitest";
import {
  makeOrganization,
  type Organization,
  type RunningService,
  settledUsage,
  startService,
} from "../support/service.ts";
import { type ScriptedServer, startScriptedServer } from "../wires/scripted-server.ts";

/** OpenAI's completions from before chat completions. */

const PRICE = { input: 1, output: 1 };
const USAGE = { prompt_tokens: 40, completion_tokens: 12, total_tokens: 52 };
const COST = 0.000052;

let upstream: ScriptedServer;
let service: RunningService;
let rich: Organization;

beforeAll(async () => {
  upstream = await startScriptedServer();
  service = await startService({
    // Groq, whose API has chat completions alone.
    environment: { HTTP_PROXY: upstream.origin, NO_PROXY: "127.0.0.1" },
    config: {
      providers: [
        { id: "own", kind: "openai-compatible", baseUrl: `${upstream.origin}/v1`, apiKey: "key" },
        { id: "groq", kind: "openai-compatible", baseUrl: "http://api.groq.com/openai/v1", apiKey: "key" },
      ],
      models: [
        { id: "coder", price: PRICE, routes: [{ provider: "own", model: "coder-base" }] },
        {
          id: "finder",
          price: { ...PRICE, perSearch: 0.01 },
          contextWindow: 10_000,
          routes: [{ provider: "own", model: "finder", runsTools: true, callsMost: 3 }],
        },
        { id: "chatty", price: PRICE, routes: [{ provider: "groq", model: "chatty" }] },
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

const client = () => new OpenAI({ baseURL: service.baseUrl, apiKey: rich.token, maxRetries: 0 });
const spent = async () => (await settledUsage(service, rich.token)).creditsUsed;
const stream = (events: readonly object[]) => ({
  headers: { "content-type": "text/event-stream" },
  body: `${events.map((event) => `data: ${JSON.stringify(event)}\n\n`).join("")}data: [DONE]\n\n`,
});
const choiceOf = (text: string, finish_reason: string | null) => ({ index: 0, text, logprobs: null, finish_reason });

describe("A text completion at a provider that serves them", () => {
  const asked = {
    model: "coder",
    prompt: "def add(",
    suffix: "return c",
    max_tokens: 50,
    temperature: 1.5,
    stop: ["\n"],
  };

  test("passes its prompt and its suffix as they are, and is charged as reported.", async () => {
    const before = await spent();
    upstream.answer({ body: JSON.stringify({ id: "cmpl-9", choices: [choiceOf("a, b):", "stop")], usage: USAGE }) });
    const { data, response } = await client().completions.create(asked).withResponse();
    expect(data).toMatchObject({
      id: expect.stringMatching(/^cmpl-[0-9a-f]{32}$/),
      object: "text_completion",
      model: "coder",
      choices: [choiceOf("a, b):", "stop")],
      usage: { ...USAGE, cost: COST },
    });
    expect(response.headers.get("x-credits-charged")).toBe("0.000052");
    expect(upstream.requests[0]?.path).toBe("/v1/completions");
    expect(upstream.requests[0]?.body).toEqual({ ...asked, model: "coder-base", stream: false });
    expect((await spent()) - before).toBeCloseTo(COST, 9);
  });

  test.each([true, false])("streams its text, with usage at the end: include_usage %s.", async (include_usage) => {
    const before = await spent();
    const events = [choiceOf("a, ", null), choiceOf("b):", null), choiceOf("", "length")].map((choice) => ({
      id: "cmpl-9",
      choices: [choice],
    }));
    upstream.answer(stream([...events, { choices: [], usage: USAGE }]));
    const heard = [];
    const options = { stream_options: { include_usage } };
    for await (const event of await client().completions.create({ ...asked, stream: true, ...options }))
      heard.push(event);
    expect(heard.map(({ choices }) => choices[0]?.text ?? null)).toEqual([
      "a, ",
      "b):",
      "",
      ...(include_usage ? [null] : []),
    ]);
    expect(heard[2]?.choices[0]?.finish_reason).toBe("length");
    expect(heard.at(-1)?.usage).toMatchObject(USAGE);
    expect(heard[0]?.usage).toBe(include_usage ? null : undefined);
    expect(upstream.requests[0]?.body).toMatchObject({ stream: true, stream_options: { include_usage: true } });
    expect((await spent()) - before).toBeCloseTo(COST, 9);
  });
});

test("A text completion of a model that searches by itself needs credits for all searches and a full context window.", async () => {
  const poor = await makeOrganization(service, "0.039");
  const own = new OpenAI({ baseURL: service.baseUrl, apiKey: poor.token, maxRetries: 0 });
  const asked = { model: "finder", prompt: "Who won?", max_tokens: 50 };
  await expect(own.completions.create(asked)).rejects.toMatchObject({ status: 402 });
  expect(upstream.requests).toEqual([]);
  upstream.answer({ body: JSON.stringify({ id: "c", choices: [choiceOf("They.", "stop")], usage: USAGE }) });
  expect((await client().completions.create(asked)).choices).toEqual([choiceOf("They.", "stop")]);
});

describe("A text completion at another provider", () => {
  test("becomes a message of a chat completion.", async () => {
    const message = { role: "assistant", content: "there" };
    upstream.answer({
      body: JSON.stringify({ choices: [{ index: 0, message, finish_reason: "stop" }], usage: USAGE }),
    });
    const { choices } = await client().completions.create({ model: "chatty", prompt: ["Hello"] });
    expect(choices).toEqual([choiceOf("there", "stop")]);
    expect(upstream.requests[0]?.path).toMatch(/\/chat\/completions$/);
    expect(upstream.requests[0]?.body).toMatchObject({
      messages: [{ role: "user", content: "Hello" }],
      max_completion_tokens: 16,
    });
  });

  test("has at most 16 tokens where it states no bound.", async () => {
    const { choices, usage } = await client().completions.create({ model: "sandbox/story", prompt: "Tell" });
    expect(usage?.completion_tokens).toBe(16);
    expect(choices[0]?.finish_reason).toBe("length");
  });

  test("is refused with a suffix.", async () => {
    const refused = client().completions.create({ model: "chatty", prompt: "a", suffix: "c" });
    await expect(refused).rejects.toMatchObject({ status: 400, code: "unsupported_value", param: "suffix" });
  });
});

test.each([
  ["best_of", { best_of: 3 }],
  ["echo", { echo: true }],
  ["logprobs", { logprobs: 1 }],
  ["prompt", { prompt: ["a", "b"] }],
  ["prompt", { prompt: [1, 2] }],
])("Nothing is left out without a word: %s.", async (param, fields) => {
  const refused = client().completions.create({ model: "coder", prompt: "a", ...fields });
  await expect(refused).rejects.toMatchObject({ status: 400, code: "unsupported_value", param });
  const neutral = { model: "sandbox/echo", prompt: "a", n: 1, best_of: 1, echo: false };
  expect((await client().completions.create(neutral)).choices[0]?.text).toBe("a");
});
