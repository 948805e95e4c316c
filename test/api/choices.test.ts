import { setTimeout as sleep } from "node:timers/promises";
import { countTokens } from "gpt-tokenizer/encoding/o200k_base";
import OpenAI from "openai";
import { afterAll, beforeAll, describe, expect, test, vi } from "vitest";
import {
  eventsOf,
  makeOrganization,
  type Organization,
  type RunningService,
  send,
  settledUsage,
  startService,
} from "../support/service.ts";
import { answering, type Behaviour, sendJson, startUpstream, type Upstream } from "../support/upstream.ts";

/** A credit per output token, the input almost nothing. */
const PRICE = { input: 0.000001, output: 1_000_000 };
const messages = [{ role: "user" as const, content: "go" }];
const usage = { prompt_tokens: 10, completion_tokens: 9, total_tokens: 19 };
const logprobs = { content: [{ token: "b", logprob: -0.5, bytes: null, top_logprobs: [] }], refusal: null };
const called = { name: "look", arguments: '{"a":1}' };
const MESSAGES = [
  { role: "assistant", content: "one", refusal: null },
  {
    role: "assistant",
    content: null,
    refusal: null,
    tool_calls: [{ id: "call_1", type: "function", function: called }],
  },
  { role: "assistant", content: null, refusal: "no" },
];
const REASONS = ["stop", "tool_calls", "length"];

/** Answers with three choices: a text, a call, and a refusal that is cut. */
const three: Behaviour = ({ body, response }) => {
  if (body.stream !== true) {
    const choices = MESSAGES.map((message, index) => ({
      ...{ index, message, finish_reason: REASONS[index] },
      logprobs: index === 0 ? logprobs : null,
    }));
    return sendJson(response, 200, { id: "u", object: "chat.completion", created: 1, model: "m", choices, usage });
  }
  response.writeHead(200, { "content-type": "text/event-stream" });
  const event = (...choices: object[]) => response.write(`data: ${JSON.stringify({ id: "u", choices })}\n\n`);
  const call = (fields: object) => ({ index: 1, delta: { tool_calls: [{ index: 0, ...fields }] } });
  event(call({ id: "call_1", type: "function", function: { name: "look", arguments: '{"a"' } }));
  // Some servers put what they have of several choices into one event.
  event({ index: 0, delta: { content: "o" }, logprobs }, { index: 2, delta: { refusal: "n" } });
  event(call({ function: { arguments: ":1}" } }));
  event({ index: 0, delta: {}, finish_reason: "stop" }, { index: 9, delta: { content: "never asked for" } });
  event({ index: 2, delta: { refusal: "o" } });
  event({ index: 1, delta: {}, finish_reason: "tool_calls" });
  event({ index: 2, delta: {}, finish_reason: "length" });
  response.write(`data: ${JSON.stringify({ id: "u", choices: [], usage })}\n\n`);
  response.end("data: [DONE]\n\n");
};

/** Sends words of two choices in turn, and then ends as `end` does. */
const words =
  (count: number, end: (response: Parameters<Behaviour>[0]["response"]) => void): Behaviour =>
  ({ response }) => {
    response.writeHead(200, { "content-type": "text/event-stream" });
    for (let word = 0; word < count; word += 1) {
      const choices = [{ index: word % 2, delta: { content: " word" } }];
      response.write(`data: ${JSON.stringify({ choices })}\n\n`);
    }
    end(response);
  };
const finish = (index: number) =>
  `data: ${JSON.stringify({ choices: [{ index, delta: {}, finish_reason: "stop" }] })}\n\n`;
const texts: Behaviour = ({ response }) => {
  const choices = ["first", "second"].map((text, index) => ({ index, text, logprobs: null, finish_reason: "stop" }));
  sendJson(response, 200, { id: "u", object: "text_completion", created: 1, model: "m", choices, usage });
};
const excessive = { prompt_tokens: 1, completion_tokens: 999, total_tokens: 1_000 };
/** More bytes than one choice may have: first with many tokens, then with few. */
const UNEVEN = ["x1".repeat(100), ...Array<string>(7).fill(" characteristics".repeat(20))];
const BEHAVIOURS: Record<string, Behaviour> = {
  three,
  texts,
  broken: words(6, (response) => void setTimeout(() => response.destroy(), 50)),
  "half-finished": words(6, (response) => response.end(finish(0))),
  uneven: ({ response }) => {
    response.writeHead(200, { "content-type": "text/event-stream" });
    const choices = UNEVEN.map((content, index) => ({ index, delta: { content }, finish_reason: "stop" }));
    response.end(`data: ${JSON.stringify({ choices })}\n\ndata: [DONE]\n\n`);
  },
  unreported: words(6, (response) => response.end(finish(0) + finish(1))),
  endless: words(6, () => {}),
  leaving: (request) => {
    // Only the requests that state a seed are answered.
    if (request.body.seed !== undefined) return answering({ words: ["a", " b"], usage })(request);
  },
  ignoring: answering({ words: ["a", " b"], usage }),
  excessive: answering({ words: ["a"], usage: excessive }),
};

let upstream: Upstream;
let service: RunningService;

beforeAll(async () => {
  upstream = await startUpstream();
  for (const [model, behaviour] of Object.entries(BEHAVIOURS)) upstream.behave(model, behaviour);
  const foreign = { provider: "foreign", model: "m" };
  service = await startService({
    config: {
      providers: [upstream.provider, { id: "foreign", kind: "anthropic", baseUrl: "http://127.0.0.1:9", apiKey: "k" }],
      models: [
        ...Object.keys(BEHAVIOURS).map((id) => ({ id, price: PRICE, routes: [{ provider: "up", model: id }] })),
        { id: "either", price: PRICE, routes: [foreign, { provider: "up", model: "three" }] },
        { id: "foreign", price: PRICE, routes: [foreign] },
      ],
    },
  });
});

afterAll(async () => {
  await service?.end();
  await upstream?.close();
});

const clientOf = ({ token }: Organization) => new OpenAI({ apiKey: token, baseURL: service.baseUrl, maxRetries: 0 });
const ask = ({ token }: Organization, fields: object, options: RequestInit = {}) =>
  send(service, "/v1/chat/completions", token, { messages, max_tokens: 50, ...fields }, options);
const choicesIn = (text: string) =>
  eventsOf(text).flatMap((event) => (event === "[DONE]" ? [] : JSON.parse(event).choices));
const spentBy = async ({ token }: Organization) => Math.floor((await settledUsage(service, token)).creditsUsed);

describe("With n, OpenAI's client", () => {
  const request = { model: "three", messages, n: 3, max_tokens: 50 };

  test("receives all choices at once, and their tokens are charged together.", async () => {
    const payer = await makeOrganization(service, "1000");
    const answer = await clientOf(payer).chat.completions.create(request);
    expect(upstream.requests.at(-1)?.body).toMatchObject({ n: 3, max_tokens: 50 });
    expect(answer.choices.map(({ index, finish_reason }) => [index, finish_reason])).toEqual([
      [0, "stop"],
      [1, "tool_calls"],
      [2, "length"],
    ]);
    expect(answer.choices.map(({ message }) => message)).toEqual(MESSAGES);
    expect(answer.choices.map((choice) => choice.logprobs)).toEqual([logprobs, null, null]);
    expect(answer).toMatchObject({
      usage: { completion_tokens: 9 },
      messages: [{ role: "assistant", content: "one" }],
    });
    expect(await spentBy(payer)).toBe(9);
  });

  test("receives them in a stream, each with its own index, role and finish reason.", async () => {
    const payer = await makeOrganization(service, "1000");
    const stream = clientOf(payer).chat.completions.stream(request);
    const roles: number[] = [];
    for await (const { choices } of stream) {
      for (const { index, delta } of choices) if (delta.role !== undefined) roles.push(index);
    }
    expect(roles).toEqual([0, 1, 2]);
    const { choices } = await stream.finalChatCompletion();
    expect(choices.map(({ index, finish_reason }) => [index, finish_reason])).toEqual([
      [0, "stop"],
      [1, "tool_calls"],
      [2, "length"],
    ]);
    expect(choices.map(({ message: { content, refusal } }) => content || refusal)).toEqual(["o", null, "no"]);
    expect(choices[1]?.message.tool_calls).toMatchObject([{ id: "call_1", function: called }]);
    expect(choices[0]?.logprobs?.content).toEqual(logprobs.content);
    expect(await spentBy(payer)).toBe(9);
  });

  test("receives all of them again under an idempotency key.", async () => {
    const payer = await makeOrganization(service, "1000");
    const headers = { "idempotency-key": "one" };
    const first = await (await ask(payer, request, { headers })).json();
    const again = await ask(payer, request, { headers });
    expect(again.headers.get("x-tollgate-idempotent-replay")).toBe("true");
    expect(await again.json()).toEqual(first);
    expect(await spentBy(payer)).toBe(9);
  });

  test("receives all of them again in a stream under an idempotency key.", async () => {
    const payer = await makeOrganization(service, "1000");
    const streamed = { ...request, stream: true };
    const headers = { "idempotency-key": "one" };
    const first = choicesIn(await (await ask(payer, streamed, { headers })).text());
    const again = await ask(payer, streamed, { headers });
    expect(again.headers.get("x-tollgate-idempotent-replay")).toBe("true");
    const repeated = choicesIn(await again.text());
    const textsIn = (choices: typeof first) =>
      REASONS.map((_reason, place) => {
        const deltas = choices.filter(({ index }) => index === place).map(({ delta }) => delta);
        return deltas
          .map((delta) => delta.content ?? delta.refusal ?? delta.tool_calls?.[0].function.arguments ?? "")
          .join("");
      });
    expect(textsIn(first)).toEqual(["o", called.arguments, "no"]);
    expect(textsIn(repeated)).toEqual(textsIn(first));
    for (const choices of [first, repeated]) {
      expect(choices.filter(({ delta }) => delta.role === "assistant")).toHaveLength(REASONS.length);
      const ends = choices.filter(({ finish_reason }) => finish_reason !== null);
      expect(new Map(ends.map(({ index, finish_reason }) => [index, finish_reason]))).toEqual(
        new Map(REASONS.entries()),
      );
      expect(ends).toHaveLength(REASONS.length);
    }
    expect(await spentBy(payer)).toBe(9);
  });
});

describe("A stream of two choices", () => {
  test.each([
    ["that breaks off", "broken"],
    ["that ends before both have a finish reason", "half-finished"],
    ["that reports no usage", "unreported"],
  ])("%s is charged for the words of both.", async (_how, model) => {
    const payer = await makeOrganization(service, "1000");
    const text = await (await ask(payer, { model, n: 2, stream: true })).text();
    expect(text.match(/ word/g)).toHaveLength(6);
    expect(text.includes("[DONE]")).toBe(model === "unreported");
    expect(await spentBy(payer)).toBe(6);
  });

  test("whose client disconnects is charged for what both had sent.", async () => {
    const payer = await makeOrganization(service, "1000");
    const leaving = new AbortController();
    const { signal } = leaving;
    const { body } = await ask(payer, { model: "endless", n: 2, stream: true }, { signal });
    let text = "";
    for await (const piece of body?.pipeThrough(new TextDecoderStream()) ?? []) {
      text += piece;
      if (text.match(/ word/g)?.length === 6) break;
    }
    expect(text.match(/ word/g)).toHaveLength(6);
    leaving.abort();
    expect(await spentBy(payer)).toBe(6);
  });
});

describe("The bound of an answer", () => {
  test("is held for each choice: a 402 names what is affordable for each, and that is admitted.", async () => {
    const payer = await makeOrganization(service, "100");
    const refused = await ask(payer, { model: "three", n: 3 });
    const { error } = (await refused.json()) as { error: { affordable_max_tokens: number; credits_required: number } };
    expect([refused.status, error.affordable_max_tokens]).toEqual([402, 33]);
    expect(error.credits_required).toBeCloseTo(150, 1);
    expect((await ask(payer, { model: "three", n: 3, max_tokens: 33 })).status).toBe(200);
  });

  test("is the same shorter one for each choice where the credits do not pay for the model's.", async () => {
    const payer = await makeOrganization(service, "1000");
    const answer = await ask(payer, { model: "three", n: 3, max_tokens: undefined });
    expect(answer.status).toBe(200);
    expect(answer.headers.get("x-tollgate-max-tokens")).toBe("333");
    expect(upstream.requests.at(-1)?.body).toMatchObject({ n: 3, max_tokens: 333 });
  });

  test("limits the charge of a report, for all choices together.", async () => {
    const payer = await makeOrganization(service, "1000");
    expect((await ask(payer, { model: "excessive", n: 4 })).status).toBe(200);
    expect(await spentBy(payer)).toBe(4 * 50);
  });
});

describe("A request with n", () => {
  test("uses only routes that support n.", async () => {
    const answer = await ask(await makeOrganization(service, "1000"), { model: "either", n: 3 });
    expect([answer.status, answer.headers.get("x-tollgate-route")]).toEqual([200, "up/three"]);
  });

  test("is refused if no route supports n; n: 1 is treated as absent.", async () => {
    const payer = await makeOrganization(service, "1000");
    const refused = await ask(payer, { model: "foreign", n: 2 });
    expect(refused.status).toBe(400);
    expect(await refused.json()).toMatchObject({ error: { code: "unsupported_value", param: "n" } });
    expect((await ask(payer, { model: "three", n: 1 })).status).toBe(200);
    expect(upstream.requests.at(-1)?.body).not.toHaveProperty("n");
    expect((await ask(payer, { model: "three", n: 9 })).status).toBe(400);
  });

  test("is charged for one choice if the provider ignores n.", async () => {
    const payer = await makeOrganization(service, "1000");
    for (const stream of [false, true]) {
      const answer = await ask(payer, { model: "ignoring", n: 2, stream });
      expect([answer.status, await answer.text()]).toEqual([200, expect.not.stringContaining('"index":1')]);
    }
    expect(await spentBy(payer)).toBe(2 * 9);
  });
});

test("An estimate of an upstream that ignores n is that of one choice, as measured by answers of one.", async () => {
  const others = await makeOrganization(service, "10000");
  const beganAtMs = performance.now();
  for (let count = 0; count < 100; count += 1) {
    const answer = await ask(others, { model: "leaving", n: 8, seed: 1 });
    expect(answer.status).toBe(200);
    await answer.arrayBuffer();
  }
  // Longer than any of these answers took, so that the estimate is their length.
  const answersMs = performance.now() - beganAtMs;
  for (const n of [1, 8]) {
    const payer = await makeOrganization(service, "1000");
    const leaving = new AbortController();
    const before = upstream.requests.length;
    const left = ask(payer, { model: "leaving", n }, { signal: leaving.signal }).catch(() => undefined);
    await vi.waitUntil(() => upstream.requests.length > before, { timeout: 60_000 });
    await sleep(answersMs);
    leaving.abort();
    await left;
    expect(await spentBy(payer)).toBe(usage.completion_tokens);
  }
}, 180_000);

test("The text of all choices is counted, as far as their bounds together need.", async () => {
  const payer = await makeOrganization(service, "1000");
  expect((await ask(payer, { model: "uneven", n: 8, stream: true })).status).toBe(200);
  expect(await spentBy(payer)).toBe(countTokens(UNEVEN.join("")));
});

test("A text completion has choices too, on its own wire and as a chat completion.", async () => {
  const payer = await makeOrganization(service, "1000");
  const own = await clientOf(payer).completions.create({ model: "texts", prompt: "go", n: 2 });
  expect(own.choices.map(({ index, text }) => [index, text])).toEqual([
    [0, "first"],
    [1, "second"],
  ]);
  const asked = { model: "sandbox/story", prompt: "go", n: 2, max_tokens: 3, seed: 1 };
  const whole = await clientOf(payer).completions.create(asked);
  const pieces: Record<number, string> = {};
  for await (const { choices } of await clientOf(payer).completions.create({ ...asked, stream: true })) {
    for (const { index, text } of choices) pieces[index] = (pieces[index] ?? "") + text;
  }
  expect(whole.choices.map(({ text }) => text)).toEqual(Object.values(pieces));
  expect(new Set(Object.values(pieces)).size).toBe(2);
  expect(whole.usage?.completion_tokens).toBe(6);
});

test("The sandbox writes several choices, and breaks within all of them.", async () => {
  const payer = await makeOrganization(service, "1000");
  const echo = await clientOf(payer).chat.completions.create({ model: "sandbox/echo", messages, n: 8 });
  expect(echo.choices.map(({ message }) => message.content)).toEqual(Array(8).fill("go"));
  expect(echo.usage?.completion_tokens).toBe(8);
  const fault = { model: "sandbox/fault", messages: [{ role: "user", content: "reset after 4 tokens" }] };
  const broken = await (await ask(payer, { ...fault, n: 2, stream: true })).text();
  for (const index of [0, 1]) expect(broken.split(`{"index":${index},"delta":{"content"`)).toHaveLength(3);
  expect(broken).not.toContain("[DONE]");
});
