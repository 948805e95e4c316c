import { afterAll, beforeAll, beforeEach, describe, expect, test } from "vitest";
import type { Model } from "../../src/api/model.ts";
import { buildCatalog } from "../../src/catalog/build.ts";
import { makeOrganization, type RunningService, send, startService } from "../support/service.ts";
import { sendJson, startUpstream, type Upstream } from "../support/upstream.ts";

const PRICE = { input: 1, output: 1 };
/** Names that are similar to known ones, by their provider's address. */
const SIMILAR = [
  ["https://api.openai.com/v1", "gpt-5-nano-next"],
  ["https://api.openai.com/v1", "gpt-4o-audio-preview-mine"],
  ["https://api.anthropic.com/v1", "claude-2.0"],
  ["https://api.anthropic.com/v1", "claude-opus-4-10"],
  ["https://openrouter.ai/api/v1", "acme/gpt-4o-tuned"],
  ["http://127.0.0.1:9/v1", "deepseek-r1:8b"],
  ["http://127.0.0.1:9/v1", "phi-4:14b-fp16"],
] as const;
const credits = { perDollar: "1", markup: "0" };
const price = { input: "1", output: "1" };

let upstream: Upstream;
let service: RunningService;
let token: string;

beforeAll(async () => {
  upstream = await startUpstream();
  const provider = { id: "up", kind: "openai-compatible", baseUrl: upstream.baseUrl, apiKey: "k" };
  const route = { provider: "up", model: "gpt-5-nano-next" };
  service = await startService({
    config: {
      providers: [provider],
      models: [
        { id: "unknown", price: PRICE, routes: [route] },
        { id: "stated", price: PRICE, contextWindow: 16_000, routes: [route] },
      ],
    },
  });
  ({ token } = await makeOrganization(service, "1000"));
});
afterAll(async () => {
  await service?.end();
  await upstream?.close();
});
beforeEach(() => {
  const choices = [{ index: 0, message: { role: "assistant", content: "done" }, finish_reason: "stop" }];
  const usage = { prompt_tokens: 200_000, completion_tokens: 1 };
  upstream.behave("gpt-5-nano-next", ({ response }) => {
    sendJson(response, 200, { id: "c", object: "chat.completion", created: 1, model: "m", choices, usage });
  });
});

const ask = (model: string, content: unknown) => {
  return send(service, "/v1/chat/completions", token, { model, messages: [{ role: "user", content }] });
};

describe("unknown models with a wrong context window", () => {
  test.each(SIMILAR)("At %s the model %s has no context window of a similar one.", (baseUrl, model) => {
    const providers = [{ id: "p", kind: "openai-compatible", baseUrl }];
    const models = [{ id: "m", price, routes: [{ provider: "p", model }] }];
    const found = buildCatalog({ providers, models, credits }, Date.parse("2026-11-23")).find("m");
    expect(found).toMatchObject({ hasUnknownWindow: true, contextWindow: 1_048_576, maxOutputTokens: 1_048_576 });
    expect(found?.routes[0]).not.toHaveProperty("contextWindow");
  });

  test("The list says null for an unknown context window, and the number of a stated one.", async () => {
    const answer = await send(service, "/v1/models", token);
    const { data } = (await answer.json()) as { data: Model[] };
    const windowOf = (id: string) => {
      const { context_window, context_length, max_input_tokens } = data.find((one) => one.id === id) as Model;
      return { context_window, context_length, max_input_tokens };
    };
    expect(windowOf("unknown")).toEqual({ context_window: 32_768, context_length: null, max_input_tokens: null });
    const stated = { context_window: 16_000, context_length: 16_000, max_input_tokens: 16_000 };
    expect(windowOf("stated")).toEqual(stated);
    const messages = await send(service, "/v1/models/unknown", token, undefined, {
      headers: { "anthropic-version": "2023-06-01" },
    });
    expect(await messages.json()).toMatchObject({ max_input_tokens: null, max_tokens: 32_768 });
  });

  test("A prompt longer than the number that is listed reaches the upstream, with room for the answer.", async () => {
    const long = "word ".repeat(120_000);
    const answer = await ask("unknown", long);
    expect(answer.status).toBe(200);
    expect(upstream.requests.at(-1)?.body.max_tokens).toBe(4_096);
    expect((await ask("stated", long)).status).toBe(400);
  });

  test("A file is held and charged within a bound that the upstream's report does not exceed.", async () => {
    const file = { filename: "a.pdf", file_data: "data:application/pdf;base64,AAAA" };
    const answer = await ask("unknown", [{ type: "file", file }]);
    expect(await answer.json()).toMatchObject({ usage: { prompt_tokens: 200_000, cost: 0.200001 } });
    const stated = await ask("stated", [{ type: "file", file }]);
    expect(await stated.json()).toMatchObject({ usage: { cost: 0.016001 } });
  });
});
