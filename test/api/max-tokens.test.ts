import { countTokens } from "gpt-tokenizer/encoding/o200k_base";
import OpenAI from "openai";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import type { ModelList } from "../../src/api/model.ts";
import { operator } from "../support/admin.ts";
import { makeOrganization, makeToken, type RunningService, send, startService } from "../support/service.ts";
import { answering, startUpstream, type Upstream } from "../support/upstream.ts";

/** An output token costs one credit, the input almost nothing. */
const PRICE = { input: 0.000001, output: 1_000_000 };
const usage = { prompt_tokens: 10, completion_tokens: 2, total_tokens: 12 };
const MODELS = [
  { id: "large", contextWindow: 200_000, maxOutputTokens: 64_000 },
  { id: "small", contextWindow: 8_000, maxOutputTokens: 2_000 },
  { id: "unknown", contextWindow: 100_000 },
  { id: "all-output", contextWindow: 20_000, maxOutputTokens: 20_000 },
  { id: "undescribed" },
  { id: "seeing", contextWindow: 32_768, maxOutputTokens: 8_192, capabilities: ["vision"] },
];

const SENTENCE = "When the rain had stopped, the old gardener walked along the river and counted the boats below. ";
/** Returns prose of about so many tokens, and its exact number of them. */
function proseOf(tokens: number): { text: string; tokens: number } {
  const text = SENTENCE.repeat(Math.round((tokens * 100) / countTokens(SENTENCE.repeat(100))));
  return { text, tokens: countTokens(text) };
}

let upstream: Upstream;
const running: RunningService[] = [];

interface Asker {
  service: RunningService;
  token: string;
  ask(fields: Record<string, unknown>, token?: string): Promise<Response>;
}

/** Starts a service with the setting and an organization with many credits. */
async function serve(completions?: object): Promise<Asker> {
  const service = await startService({
    config: {
      ...(completions && { completions }),
      providers: [upstream.provider],
      models: MODELS.map((model) => ({
        ...model,
        price: PRICE,
        playground: true,
        routes: [{ provider: "up", model: model.id }],
      })),
    },
  });
  running.push(service);
  const { token } = await makeOrganization(service, "1000000");
  const messages = [{ role: "user", content: "go" }];
  const ask = (fields: Record<string, unknown>, by = token) =>
    send(service, "/v1/chat/completions", by, { model: "large", messages, ...fields });
  return { service, token, ask };
}

beforeAll(async () => {
  upstream = await startUpstream();
  for (const { id } of MODELS) upstream.behave(id, answering({ words: ["a ", "b"], usage }));
});

afterAll(async () => {
  for (const service of running) await service.end();
  await upstream?.close();
});

interface Failure {
  error: { message: string; code: string; param: string; affordable_max_tokens?: number };
}
const failureOf = async (answer: Response) => ((await answer.json()) as Failure).error;

/** The `max_tokens` that reached the upstream. */
async function sentFor({ ask }: Asker, fields: Record<string, unknown>, token?: string): Promise<unknown> {
  return (await boundOf(() => ask(fields, token))).sent;
}

/** The `max_tokens` that reached the upstream, and the bound that the answer's header states. */
async function boundOf(ask: () => Promise<Response>): Promise<{ sent: unknown; header: string | null }> {
  const before = upstream.requests.length;
  const answer = await ask();
  expect([answer.status, await answer.text()]).toEqual([200, expect.any(String)]);
  expect(upstream.requests.length).toBe(before + 1);
  return { sent: upstream.requests[before]?.body.max_tokens, header: answer.headers.get("x-tollgate-max-tokens") };
}

describe("By default", () => {
  let asker: Asker;
  beforeAll(async () => {
    asker = await serve();
  });

  test("max_tokens may be up to 4096, and the 400 above it names the limit and the setting.", async () => {
    expect(await sentFor(asker, { max_tokens: 4096 })).toBe(4096);
    for (const asked of [4097, 16_384, 32_000]) {
      const answer = await asker.ask({ max_tokens: asked });
      expect(answer.status).toBe(400);
      expect(await failureOf(answer)).toMatchObject({
        code: "invalid_value",
        param: "max_tokens",
        message: `max_tokens is too large: ${asked}. This service allows at most 4096 (its setting completions.maxTokens). Use max_completion_tokens to ask for up to the model's own maximum.`,
      });
    }
  });

  test("max_tokens is validated before the model.", async () => {
    expect(await failureOf(await asker.ask({ model: "none", max_tokens: 4097 }))).toMatchObject({
      param: "max_tokens",
    });
  });

  test.each([
    ["large", 64_000, 64_000],
    ["large", 64_001, 64_000],
    ["small", 1e15, 2_000],
    ["unknown", 64_000, 64_000],
    ["undescribed", 64_000, 64_000],
  ])("A bound of %s of %i on any other field or wire reaches the upstream as %i.", async (model, asked, bound) => {
    const found = { sent: bound, header: bound < asked ? String(bound) : null };
    const messages = [{ role: "user", content: "go" }];
    const post = (path: string, body: object) => () => send(asker.service, path, asker.token, { model, ...body });
    const chat = { messages, max_completion_tokens: asked };
    expect(await boundOf(post("/v1/chat/completions", chat))).toEqual(found);
    expect(await boundOf(post("/v1/chat/completions", { ...chat, stream: true }))).toEqual(found);
    expect(await boundOf(post("/v1/messages", { messages, max_tokens: asked }))).toEqual(found);
    expect(await boundOf(post("/v1/responses", { input: "go", max_output_tokens: asked }))).toEqual(found);
    const gemini = { contents: { parts: { text: "go" } }, generationConfig: { maxOutputTokens: asked } };
    expect(await boundOf(post(`/v1beta/models/${model}:generateContent`, gemini))).toEqual(found);
  });

  test("max_completion_tokens is lowered to what the context window leaves.", async () => {
    const { text, tokens } = proseOf(30_000);
    const messages = [{ role: "user", content: text }];
    const { sent, header } = await boundOf(() =>
      asker.ask({ model: "unknown", messages, max_completion_tokens: 90_000 }),
    );
    expect(sent).toBeGreaterThan(100_000 - tokens * 1.1);
    expect(sent).toBeLessThan(100_000 - tokens);
    expect(header).toBe(String(sent));
    expect(await sentFor(asker, { model: "unknown", messages, max_completion_tokens: 60_000 })).toBe(60_000);
  });

  test("A budget of thinking that is not below a lowered bound is lowered with it.", async () => {
    const thinking = { type: "enabled", budget_tokens: 32_000 };
    expect(await sentFor(asker, { model: "small", max_completion_tokens: 64_000, thinking })).toBe(2_000);
    expect(upstream.requests.at(-1)?.body.thinking).toEqual({ type: "enabled", budget_tokens: 1_024 });
  });

  test("A max_tokens of -1 counts as absent, and other negative numbers are rejected.", async () => {
    expect(await sentFor(asker, { max_tokens: -1 })).toBe(4096);
    expect(await failureOf(await asker.ask({ max_tokens: -2 }))).toMatchObject({ param: "max_tokens" });
  });

  test("A temperature above 1 is rejected.", async () => {
    expect(await sentFor(asker, { temperature: 1 })).toBe(4096);
    expect(await failureOf(await asker.ask({ temperature: 1.1 }))).toEqual({
      type: "invalid_request_error",
      code: "decimal_above_max_value",
      param: "temperature",
      message:
        "Invalid 'temperature': decimal above maximum value. Expected a value <= 1, but got 1.1 instead. The service's setting completions.maxTemperature bounds it.",
    });
    expect(await documented(asker, "temperature")).toBe(1);
  });

  test("max_tokens above the model's own maximum is rejected with that maximum.", async () => {
    const { message } = await failureOf(await asker.ask({ model: "small", max_tokens: 2_001 }));
    expect(message).toContain("This model supports at most 2000 completion tokens");
  });

  test("Both fields together are rejected.", async () => {
    const answer = await asker.ask({ max_tokens: 10, max_completion_tokens: 10 });
    expect(answer.status).toBe(400);
    expect(await failureOf(answer)).toMatchObject({ code: "invalid_value", param: "max_tokens" });
  });

  test("A request without either field gets the smallest of 4096, the model's maximum and the rest of the context window.", async () => {
    expect(await sentFor(asker, {})).toBe(4096);
    expect(await sentFor(asker, { model: "small" })).toBe(2000);
    const { text, tokens } = proseOf(6_500);
    const left = await boundOf(() => asker.ask({ model: "small", messages: [{ role: "user", content: text }] }));
    expect(left.sent).toBeLessThan(8_000 - tokens);
    expect(left.sent).toBeGreaterThan(8_000 - tokens * 1.1);
    expect(left.header).toBe(String(left.sent));
  });

  const WIRES: Record<string, (asked: number | undefined, text: string) => [path: string, body: object]> = {
    chat: (max_completion_tokens, content) => [
      "/v1/chat/completions",
      { messages: [{ role: "user", content }], max_completion_tokens },
    ],
    messages: (max_tokens, content) => [
      "/v1/messages",
      { messages: [{ role: "user", content }], max_tokens: max_tokens ?? 8_192 },
    ],
    responses: (max_output_tokens, input) => ["/v1/responses", { input, max_output_tokens }],
  };

  test.each(Object.keys(WIRES))(
    "A long prompt has the whole answer that fits beside it, on the wire of %s.",
    async (wire) => {
      const ask = (asked: number | undefined, text: string) => {
        const [path, body] = WIRES[wire]?.(asked, text) ?? [];
        return send(asker.service, path ?? "", asker.token, { model: "seeing", ...body });
      };
      const { text } = proseOf(22_134);
      expect(await boundOf(() => ask(500, text))).toEqual({ sent: 500, header: null });
      const whole = wire === "messages" ? 8_192 : 4_096;
      expect(await boundOf(() => ask(undefined, text))).toEqual({ sent: whole, header: null });
      const long = proseOf(32_000);
      expect(await boundOf(() => ask(500, long.text))).toEqual({ sent: 500, header: null });
      const { sent, header } = await boundOf(() => ask(undefined, long.text));
      expect(sent).toBeGreaterThan(100);
      expect(sent).toBeLessThan(32_768 - long.tokens);
      expect(header).toBe(String(sent));
      // Tokenizers differ, so that the provider decides about these.
      for (const tokens of [32_800, 40_000]) {
        expect(await boundOf(() => ask(500, proseOf(tokens).text))).toEqual({ sent: 500, header: null });
      }
      const before = upstream.requests.length;
      for (const tokens of [44_500, 50_000, 200_000]) {
        const refused = await ask(500, proseOf(tokens).text);
        expect(refused.status).toBe(400);
        expect(await refused.text()).toContain("maximum context length is 32768 tokens");
      }
      expect(upstream.requests.length).toBe(before);
      expect(await boundOf(() => ask(1, long.text))).toEqual({ sent: 1, header: null });
    },
  );

  test("Many images at low detail, or small ones, do not shorten the answer.", async () => {
    const png = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==";
    for (const detail of ["low", "auto"]) {
      const image = { type: "image_url", image_url: { url: `data:image/png;base64,${png}`, detail } };
      const content = [{ type: "text", text: "Which?" }, ...Array.from({ length: 60 }, () => image)];
      const asked = { model: "seeing", messages: [{ role: "user", content }] };
      expect(await boundOf(() => asker.ask(asked))).toEqual({ sent: 4_096, header: null });
    }
  });

  test("The models have their own maximum; the OpenAPI document and the facts for the console have the service's.", async () => {
    const { data } = (await (await send(asker.service, "/v1/models", asker.token)).json()) as ModelList;
    const found = Object.fromEntries(data.map(({ id, max_output_tokens }) => [id, max_output_tokens]));
    expect(found).toMatchObject({
      large: 64_000,
      small: 2_000,
      unknown: 100_000,
      "all-output": 20_000,
      undescribed: 32_768,
    });
    expect(await documentedBound(asker)).toBe(4096);
    const facts = await (await send(asker.service, "/admin/v1/service", null)).json();
    expect(facts).toMatchObject({ completions: { max_tokens: 4096 } });
  });

  test("The hold covers max_completion_tokens, and 402 has the affordable number of tokens.", async () => {
    const { token } = await makeOrganization(asker.service, "20000.5");
    const refused = await asker.ask({ max_completion_tokens: 30_000 }, token);
    expect(refused.status).toBe(402);
    const { message, affordable_max_tokens: affordable } = await failureOf(refused);
    expect(affordable).toBe(20_000);
    expect(message).toContain("They pay for a max_completion_tokens of 20000.");
    expect(await sentFor(asker, { max_completion_tokens: affordable }, token)).toBe(20_000);
    const lowered = await asker.ask({ model: "small", max_completion_tokens: 1e9 }, token);
    expect([lowered.status, lowered.headers.get("x-tollgate-max-tokens")]).toEqual([200, "2000"]);
    expect(await asker.service.tollgate("ledger", "verify")).toMatchObject({ ok: true });
  });

  test("Guests of the playground have their own limit for both fields.", async () => {
    const { token } = await makeToken(asker.service, "org_playground");
    expect(await sentFor(asker, { max_tokens: 4096 }, token)).toBe(512);
    expect(await sentFor(asker, { max_completion_tokens: 32_000 }, token)).toBe(512);
    expect(await sentFor(asker, {}, token)).toBe(512);
  });
});

describe("With completions.maxTokens: 32000", () => {
  let asker: Asker;
  beforeAll(async () => {
    asker = await serve({ maxTokens: 32_000 });
  });

  test("max_tokens may be up to the setting, which is also the default.", async () => {
    expect(await sentFor(asker, { max_tokens: 16_384 })).toBe(16_384);
    expect(await sentFor(asker, { max_tokens: 32_000 })).toBe(32_000);
    expect(await sentFor(asker, {})).toBe(32_000);
    expect(await sentFor(asker, { model: "small" })).toBe(2_000);
    const { message } = await failureOf(await asker.ask({ max_tokens: 32_001 }));
    expect(message).toContain("at most 32000 (its setting completions.maxTokens)");
    expect(await documentedBound(asker)).toBe(32_000);
  });

  test("A request without max_tokens gets as many tokens as its credits cover.", async () => {
    const { token } = await makeOrganization(asker.service, "9000.5");
    expect(await sentFor(asker, {}, token)).toBe(9_000);
  });

  test("A request without max_tokens fits into its token's limit of tokens per minute.", async () => {
    const { id, token } = await makeOrganization(asker.service, "100000");
    const limits = { tokens_per_minute: 10_000 };
    const changed = await operator(asker.service).call("PATCH", `/organizations/${id}`, { limits });
    expect(changed.status).toBe(200);
    const sent = await sentFor(asker, {}, token);
    expect(sent).toBeGreaterThan(9_900);
    expect(sent).toBeLessThan(10_000);
  });

  test("The OpenAI client works unchanged with 16,384 tokens, streamed and not.", async () => {
    const client = new OpenAI({ apiKey: asker.token, baseURL: asker.service.baseUrl, maxRetries: 0 });
    const fields = { model: "large", messages: [{ role: "user" as const, content: "go" }], max_tokens: 16_384 };
    expect((await client.chat.completions.create(fields)).choices[0]?.message.content).toBe("a b");
    const stream = client.chat.completions.stream(fields);
    expect(await stream.finalContent()).toBe("a b");
  });
});

describe("With completions.maxTokens: model", () => {
  let asker: Asker;
  beforeAll(async () => {
    asker = await serve({ maxTokens: "model" });
  });

  test("max_tokens may be up to each model's own maximum, which is also the default.", async () => {
    expect(await sentFor(asker, { max_tokens: 64_000 })).toBe(64_000);
    expect(await sentFor(asker, {})).toBe(64_000);
    const rest = await sentFor(asker, { model: "unknown" });
    expect(rest).toBeGreaterThan(99_900);
    expect(await sentFor(asker, { model: "undescribed" })).toBe(4_096);
    expect(await sentFor(asker, { model: "undescribed", max_tokens: 32_000 })).toBe(32_000);
    const { message } = await failureOf(await asker.ask({ max_tokens: 64_001 }));
    expect(message).toContain("This model supports at most 64000 completion tokens");
    expect(await documentedBound(asker)).toBeUndefined();
    const facts = await (await send(asker.service, "/admin/v1/service", null)).json();
    expect(facts).toMatchObject({ completions: { max_tokens: null } });
  });

  test("A request without max_tokens leaves room for its prompt.", async () => {
    const { text, tokens } = proseOf(4_000);
    const messages = [{ role: "user", content: text }];
    const sent = await sentFor(asker, { model: "all-output", messages });
    expect(sent).toBeGreaterThan(20_000 - tokens * 1.1);
    expect(sent).toBeLessThan(20_000 - tokens);
  });

  test("max_tokens that does not fit with the prompt is refused.", async () => {
    const { text, tokens } = proseOf(15_000);
    const messages = [{ role: "user", content: text }];
    const answer = await asker.ask({ model: "all-output", messages, max_tokens: 20_000 - Math.floor(tokens * 0.74) });
    expect(answer.status).toBe(400);
    expect(await failureOf(answer)).toMatchObject({ code: "context_length_exceeded", param: "messages" });
    expect(await sentFor(asker, { model: "all-output", messages, max_tokens: 20_000 - tokens })).toBe(20_000 - tokens);
  });
});

describe("With completions.maxTokens: clamp and maxTemperature: 2", () => {
  let asker: Asker;
  beforeAll(async () => {
    asker = await serve({ maxTokens: "clamp", maxTemperature: 2 });
  });

  test("max_tokens above the model's own maximum is lowered to it, and the header says so.", async () => {
    expect(await boundOf(() => asker.ask({ max_tokens: 64_001 }))).toEqual({ sent: 64_000, header: "64000" });
    expect(await boundOf(() => asker.ask({ max_tokens: 64_000 }))).toEqual({ sent: 64_000, header: null });
    expect(await sentFor(asker, {})).toBe(64_000);
    expect(await documentedBound(asker)).toBeUndefined();
  });

  test("A lowered request holds no more than it may write.", async () => {
    const { token } = await makeOrganization(asker.service, "2000.5");
    expect(await sentFor(asker, { model: "small", max_tokens: 50_000 }, token)).toBe(2_000);
    const { token: poor } = await makeOrganization(asker.service, "1999");
    expect((await asker.ask({ model: "small", max_tokens: 50_000 }, poor)).status).toBe(402);
  });

  test("The temperature may be up to 2.", async () => {
    await sentFor(asker, { temperature: 2 });
    expect(upstream.requests.at(-1)?.body.temperature).toBe(2);
    const { message } = await failureOf(await asker.ask({ temperature: 2.1 }));
    expect(message).toContain("Expected a value <= 2");
    expect(await documented(asker, "temperature")).toBe(2);
  });
});

const documentedBound = (asker: Asker) => documented(asker, "max_tokens");

async function documented({ service }: Asker, field: string): Promise<number | undefined> {
  const document = (await (await fetch(`${service.url}/openapi.json`)).json()) as {
    paths: Record<string, { post: { requestBody: { content: Record<string, { schema: Schema }> } } }>;
  };
  interface Schema {
    properties: Record<string, { anyOf: { maximum?: number }[] }>;
  }
  const body = document.paths["/v1/chat/completions"]?.post.requestBody.content["application/json"]?.schema;
  return body?.properties[field]?.anyOf[0]?.maximum;
}
