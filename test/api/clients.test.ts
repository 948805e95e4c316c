import { createAnthropic } from "@ai-sdk/anthropic";
import { createOpenAI } from "@ai-sdk/openai";
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { ChatOpenAI } from "@langchain/openai";
import { APICallError, generateText, type LanguageModel, streamText } from "ai";
import OpenAI7 from "openai";
import OpenAI6 from "openai6";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import {
  makeOrganization,
  makeToken,
  type Organization,
  type RunningService,
  send,
  startService,
} from "../support/service.ts";

/** Enough for each client, and few enough to be exhausted. */
const REQUESTS_A_MINUTE = 25;
const PROMPT = "Hello there, wide world";

let service: RunningService;
let rich: Organization;
let poor: Organization;

beforeAll(async () => {
  service = await startService({ config: { limits: { requestsPerMinute: 1000 } } });
  rich = await makeOrganization(service, "100");
  poor = await makeOrganization(service, "0");
});

afterAll(async () => {
  await service?.end();
});

/** A client with only the base URL and the token changed. */
interface Client {
  complete(token: string, model: string, prompt: string, options?: { topP?: number }): Promise<string>;
  stream(
    token: string,
    model: string,
    prompt: string,
  ): Promise<{ text: string; pieces: number; promptTokens?: number }>;
  /** Status and code of the client's own error object. */
  errorOf(error: unknown): { status?: number; code?: string | null };
}

function openaiClient(OpenAI: typeof OpenAI7 | typeof OpenAI6): Client {
  const connect = (apiKey: string) => new OpenAI({ apiKey, baseURL: service.baseUrl, maxRetries: 0 }) as OpenAI7;
  const messagesOf = (content: string) => [{ role: "user" as const, content }];
  return {
    async complete(token, model, prompt, { topP } = {}) {
      const completion = await connect(token).chat.completions.create({
        model,
        messages: messagesOf(prompt),
        top_p: topP,
      });
      return completion.choices[0]?.message.content ?? "";
    },
    async stream(token, model, prompt) {
      const stream = await connect(token).chat.completions.create({
        model,
        messages: messagesOf(prompt),
        stream: true,
        stream_options: { include_usage: true },
      });
      let text = "";
      let pieces = 0;
      let promptTokens: number | undefined;
      for await (const chunk of stream) {
        text += chunk.choices[0]?.delta.content ?? "";
        pieces += 1;
        promptTokens = chunk.usage?.prompt_tokens ?? promptTokens;
      }
      return { text, pieces, promptTokens };
    },
    errorOf: (error) => {
      const { status, code } = error as InstanceType<typeof OpenAI7.APIError>;
      return { status, code };
    },
  };
}

function aiClient(connect: (token: string, model: string) => LanguageModel): Client {
  return {
    async complete(token, model, prompt, options) {
      const { text } = await generateText({ model: connect(token, model), prompt, maxRetries: 0, ...options });
      return text;
    },
    async stream(token, model, prompt) {
      const result = streamText({ model: connect(token, model), prompt, maxRetries: 0, onError: () => {} });
      let text = "";
      let pieces = 0;
      for await (const piece of result.textStream) {
        text += piece;
        pieces += 1;
      }
      return { text, pieces, promptTokens: (await result.usage).inputTokens };
    },
    errorOf: (error) => {
      if (!APICallError.isInstance(error)) return {};
      const { error: told } = JSON.parse(error.responseBody ?? "{}") as {
        error: { code?: string; details?: { error_code: string } };
      };
      return { status: error.statusCode, code: told.code ?? told.details?.error_code };
    },
  };
}

function langchainClient(useResponsesApi: boolean): Client {
  const connect = (apiKey: string, model: string, options: { topP?: number } = {}) =>
    new ChatOpenAI({
      apiKey,
      model,
      useResponsesApi,
      maxRetries: 0,
      configuration: { baseURL: service.baseUrl },
      ...options,
    });
  return {
    async complete(token, model, prompt, options) {
      const answer = await connect(token, model, options).invoke(prompt);
      return answer.text;
    },
    async stream(token, model, prompt) {
      let text = "";
      let pieces = 0;
      let promptTokens: number | undefined;
      for await (const piece of await connect(token, model).stream(prompt)) {
        text += piece.text;
        pieces += 1;
        promptTokens = piece.usage_metadata?.input_tokens ?? promptTokens;
      }
      return { text, pieces, promptTokens };
    },
    errorOf: (error) => error as { status?: number; code?: string },
  };
}

const clients: [string, Client][] = [
  ["openai 6", openaiClient(OpenAI6)],
  ["openai 7", openaiClient(OpenAI7)],
  [
    "ai with @ai-sdk/openai-compatible",
    aiClient((apiKey, model) =>
      createOpenAICompatible({ name: "tollgate", baseURL: service.baseUrl, apiKey, includeUsage: true })(model),
    ),
  ],
  [
    "ai with the chat completions of @ai-sdk/openai",
    aiClient((apiKey, model) => createOpenAI({ baseURL: service.baseUrl, apiKey }).chat(model)),
  ],
  [
    "ai with the default of @ai-sdk/openai",
    aiClient((apiKey, model) => createOpenAI({ baseURL: service.baseUrl, apiKey })(model)),
  ],
  [
    "ai with @ai-sdk/anthropic",
    aiClient((apiKey, model) => createAnthropic({ baseURL: service.baseUrl, apiKey })(model)),
  ],
  ["@langchain/openai", langchainClient(false)],
  ["@langchain/openai with useResponsesApi", langchainClient(true)],
];

describe.each(clients)("%s", (_name, client) => {
  test("The client receives a response.", async () => {
    expect(await client.complete(rich.token, "sandbox/echo", PROMPT)).toBe(PROMPT);
  });

  test("The client receives a streamed response in pieces, with its usage.", async () => {
    const { text, pieces, promptTokens } = await client.stream(rich.token, "sandbox/echo", PROMPT);
    expect(text).toBe(PROMPT);
    expect(pieces).toBeGreaterThanOrEqual(4);
    expect(promptTokens).toBeGreaterThan(0);
  });

  const failing = (promise: Promise<unknown>) => promise.then(() => ({}), client.errorOf);

  test("400 decimal_above_max_value", async () => {
    const refused = await failing(client.complete(rich.token, "sandbox/echo", PROMPT, { topP: 1.5 }));
    expect(refused).toMatchObject({ status: 400, code: "decimal_above_max_value" });
  });

  test("401 invalid_token", async () => {
    const refused = await failing(client.complete("sk-tg-none", "sandbox/echo", PROMPT));
    expect(refused).toMatchObject({ status: 401, code: "invalid_token" });
  });

  test("402 insufficient_credits", async () => {
    const refused = await failing(client.complete(poor.token, "sandbox/echo", PROMPT));
    expect(refused).toMatchObject({ status: 402, code: "insufficient_credits" });
  });

  test("403 insufficient_scope", async () => {
    const { token } = await makeToken(service, rich.id, { scopes: ["usage:read"] });
    const refused = await failing(client.complete(token, "sandbox/echo", PROMPT));
    expect(refused).toMatchObject({ status: 403, code: "insufficient_scope" });
  });

  test("404 model_not_found", async () => {
    const refused = await failing(client.complete(rich.token, "no-such-model", PROMPT));
    expect(refused).toMatchObject({ status: 404, code: "model_not_found" });
  });
});

describe("429 on a service with a low limit", () => {
  let small: RunningService;
  let organization: Organization;
  beforeAll(async () => {
    small = await startService({ config: { limits: { requestsPerMinute: REQUESTS_A_MINUTE } } });
    organization = await makeOrganization(small, "10");
    for (let count = 0; count < REQUESTS_A_MINUTE; count += 1) await send(small, "/v1/models", organization.token);
  });
  afterAll(async () => {
    await small?.end();
  });

  test.each(clients)("%s", async (_name, client) => {
    const before = service;
    service = small;
    try {
      const refused = await client
        .complete(organization.token, "sandbox/echo", PROMPT)
        .then(() => ({}), client.errorOf);
      expect(refused).toMatchObject({ status: 429, code: "rate_limit_exceeded" });
    } finally {
      service = before;
    }
  });
});

test.each([
  ["openai 6", OpenAI6],
  ["openai 7", OpenAI7],
])("%s lists and retrieves models.", async (_name, OpenAI) => {
  const client = new OpenAI({ apiKey: rich.token, baseURL: service.baseUrl }) as OpenAI7;
  const ids: string[] = [];
  for await (const model of client.models.list()) ids.push(model.id);
  expect(ids).toContain("sandbox/echo");
  expect((await client.models.retrieve("sandbox/echo")).id).toBe("sandbox/echo");
});
