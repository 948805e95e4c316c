import OpenAI from "openai";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import {
  eventsOf,
  makeOrganization,
  type Organization,
  type RunningService,
  send,
  settledUsage,
  startService,
} from "../support/service.ts";
import { type Behaviour, sendJson, startUpstream, type Upstream } from "../support/upstream.ts";

/** A credit per output token, the input almost nothing. */
const PRICE = { input: 0.000001, output: 1_000_000 };
const messages = [{ role: "user" as const, content: "go" }];
const usage = { prompt_tokens: 10, completion_tokens: 9, total_tokens: 19 };

/** Leaves out one of three, repeats a finish reason, and sends more content after it. */
const odd: Behaviour = ({ body, response }) => {
  const end = { finish_reason: "length" };
  if (body.stream !== true) {
    const choices = [2, 0].map((index) => ({
      index,
      message: { role: "assistant", content: `text ${index}` },
      ...end,
    }));
    return sendJson(response, 200, { id: "u", object: "chat.completion", created: 1, model: "m", choices, usage });
  }
  response.writeHead(200, { "content-type": "text/event-stream" });
  const event = (index: number, content: string | undefined, fields = {}) =>
    response.write(`data: ${JSON.stringify({ choices: [{ index, delta: { content }, ...fields }] })}\n\n`);
  event(2, "text");
  event(0, "text", end);
  event(2, undefined, end);
  event(2, " 2", end);
  event(0, " 0", end);
  response.end(`data: ${JSON.stringify({ choices: [], usage })}\n\ndata: [DONE]\n\n`);
};
/** Numbers choices from 1. */
const fromOne: Behaviour = ({ body, response }) => {
  const one = (index: number, part: "message" | "delta") => {
    return { index, [part]: { role: "assistant", content: `text ${index}` }, finish_reason: "length" };
  };
  if (body.stream !== true) {
    const choices = [one(1, "message"), one(2, "message")];
    return sendJson(response, 200, { id: "u", object: "chat.completion", created: 1, model: "m", choices, usage });
  }
  response.writeHead(200, { "content-type": "text/event-stream" });
  response.write(`data: ${JSON.stringify({ choices: [one(1, "delta")] })}\n\n`);
  response.end(`data: ${JSON.stringify({ choices: [], usage })}\n\ndata: [DONE]\n\n`);
};

let upstream: Upstream;
let service: RunningService;

beforeAll(async () => {
  upstream = await startUpstream();
  upstream.behave("odd", odd);
  upstream.behave("from-one", fromOne);
  const modelOf = (id: string) => ({ id, price: PRICE, routes: [{ provider: "up", model: id }] });
  service = await startService({
    config: { providers: [upstream.provider], models: ["odd", "from-one"].map(modelOf) },
  });
});

afterAll(async () => {
  await service?.end();
  await upstream?.close();
});

const clientOf = ({ token }: Organization) => new OpenAI({ apiKey: token, baseURL: service.baseUrl, maxRetries: 0 });
const choicesIn = (text: string) =>
  eventsOf(text).flatMap((event) => (event === "[DONE]" ? [] : JSON.parse(event).choices));
const spentBy = async ({ token }: Organization) => Math.floor((await settledUsage(service, token)).creditsUsed);

describe("Where a provider leaves out a choice between others and repeats finish reasons,", () => {
  const request = { model: "odd", messages, n: 3, max_tokens: 50 };

  test("each keeps its index in the answer and in its replay.", async () => {
    const payer = await makeOrganization(service, "1000");
    for (const _time of ["first", "replay"]) {
      const headers = { "idempotency-key": "one" };
      const answer = await clientOf(payer).chat.completions.create(request, { headers });
      expect(answer.choices.map(({ index, message }) => [index, message.content])).toEqual([
        [0, "text 0"],
        [2, "text 2"],
      ]);
    }
  });

  test.each([false, true])(
    "each ends once in a stream, after all its content (text completion: %s).",
    async (isText) => {
      const payer = await makeOrganization(service, "1000");
      const path = isText ? "/v1/completions" : "/v1/chat/completions";
      const body = { ...request, stream: true, ...(isText ? { prompt: "go", messages: undefined } : {}) };
      for (const _time of ["first", "replay"]) {
        const answer = await send(service, path, payer.token, body, { headers: { "idempotency-key": "one" } });
        const choices = choicesIn(await answer.text());
        const ends = choices.slice(-2).map(({ index, finish_reason }) => [index, finish_reason]);
        expect(ends).toEqual([
          [2, "length"],
          [0, "length"],
        ]);
        expect(choices.filter(({ finish_reason }) => finish_reason !== null)).toHaveLength(2);
        for (const index of [0, 2]) {
          const texts = choices.filter((choice) => choice.index === index);
          expect(texts.map(({ delta, text }) => delta?.content ?? text ?? "").join("")).toBe(`text ${index}`);
        }
        expect(choices.filter(({ index }) => index === 1)).toEqual([]);
      }
    },
  );
});

describe("An answer of a provider that numbers choices from 1", () => {
  test("is complete, and stored under an idempotency key.", async () => {
    const payer = await makeOrganization(service, "1000");
    for (const _time of ["first", "replay"]) {
      const headers = { "idempotency-key": "one" };
      const request = { model: "from-one", messages, n: 3, max_tokens: 50 };
      const answer = await clientOf(payer).chat.completions.create(request, { headers });
      expect(
        answer.choices.map(({ index, message, finish_reason }) => [index, message.content, finish_reason]),
      ).toEqual([
        [0, "", "stop"],
        [1, "text 1", "length"],
        [2, "text 2", "length"],
      ]);
    }
    expect(await spentBy(payer)).toBe(9);
  });

  test("is complete in a stream.", async () => {
    const payer = await makeOrganization(service, "1000");
    const request = { model: "from-one", messages, n: 3, stream: true };
    const text = await (await send(service, "/v1/chat/completions", payer.token, request)).text();
    expect(eventsOf(text).at(-1)).toBe("[DONE]");
    const ends = choicesIn(text).filter(({ finish_reason }) => finish_reason !== null);
    expect(ends.map(({ index, finish_reason }) => [index, finish_reason])).toEqual([
      [1, "length"],
      [0, "stop"],
    ]);
    expect(await spentBy(payer)).toBe(9);
  });
});
