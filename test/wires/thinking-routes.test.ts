import { afterAll, beforeAll, beforeEach, describe, expect, test } from "vitest";
import { createProvider } from "../../src/providers/index.ts";
import { sse } from "../support/second-wire.ts";
import { makeOrganization, type RunningService, send, startService } from "../support/service.ts";
import { settingsOf } from "../support/wire.ts";
import { type ScriptedServer, startScriptedServer } from "./scripted-server.ts";

const PRICE = { input: 1, output: 1 };
const THINKING = { type: "enabled", budget_tokens: 2_000 };
const MESSAGE = {
  ...{ id: "msg_1", type: "message", role: "assistant", model: "m", content: [{ type: "text", text: "native" }] },
  ...{ stop_reason: "end_turn", stop_sequence: null, usage: { input_tokens: 5, output_tokens: 1 } },
};
const COMPLETION = {
  ...{ id: "c", object: "chat.completion", created: 1, model: "m" },
  choices: [{ index: 0, message: { role: "assistant", content: "translated" }, finish_reason: "stop" }],
  usage: { prompt_tokens: 5, completion_tokens: 1 },
};

let upstream: ScriptedServer;
let service: RunningService;
let token: string;

beforeAll(async () => {
  upstream = await startScriptedServer();
  const providers = [
    { id: "open", kind: "openai-compatible", baseUrl: `${upstream.origin}/open/v1`, apiKey: "k" },
    { id: "claude", kind: "anthropic", baseUrl: `${upstream.origin}/claude/v1`, apiKey: "k" },
  ];
  const route = (provider: string, weight?: number) => ({ provider, model: "m", ...(weight && { weight }) });
  const limits = { price: PRICE, capabilities: ["reasoning"], contextWindow: 200_000, maxOutputTokens: 8_000 };
  service = await startService({
    config: {
      providers,
      models: [
        { id: "both", ...limits, routes: [route("open"), route("claude")] },
        { id: "weighted", ...limits, routes: [route("open", 1_000), route("claude", 1)] },
        { id: "foreign", ...limits, routes: [route("open")] },
      ],
    },
  });
  ({ token } = await makeOrganization(service, "1000"));
});
afterAll(async () => {
  await service?.end();
  await upstream?.end();
});
beforeEach(() => upstream.reset());

const json = (body: object) => ({ body: JSON.stringify(body) });

async function ask(model: string, fields: object, headers: Record<string, string> = {}) {
  const body = { model, max_tokens: 4_000, messages: [{ role: "user", content: "go" }], ...fields };
  const answer = await send(service, "/v1/messages", token, body, { headers });
  const ignored = answer.headers.get("x-tollgate-ignored");
  return { status: answer.status, route: answer.headers.get("x-tollgate-route"), ignored };
}

describe("A budget of thinking", () => {
  test.each(["both", "weighted"])("prefers the route that takes it, whatever the order: %s.", async (model) => {
    upstream.answer(json(MESSAGE));
    expect(await ask(model, { thinking: THINKING })).toEqual({ status: 200, route: "claude/m", ignored: null });
    expect(upstream.requests[0]?.body.thinking).toEqual(THINKING);
  });

  test("falls back to the other route as an effort.", async () => {
    upstream.answer({ status: 500, body: "{}" }, json(COMPLETION));
    expect(await ask("both", { thinking: THINKING })).toMatchObject({ status: 200, route: "open/m" });
    expect(upstream.requests[1]?.body).toMatchObject({ reasoning_effort: "low", max_tokens: 4_000 });
  });

  test("is an effort where no route takes it.", async () => {
    upstream.answer(json(COMPLETION));
    expect(await ask("foreign", { thinking: THINKING })).toMatchObject({ status: 200, route: "open/m" });
    expect(upstream.requests[0]?.body).toMatchObject({ reasoning_effort: "low" });
    expect(upstream.requests[0]?.body).not.toHaveProperty("thinking");
  });

  test.each(["both", "foreign"])(
    "above max_tokens is refused before anything is held, also with interleaved thinking: %s.",
    async (model) => {
      const headers = { "anthropic-beta": "interleaved-thinking-2025-05-14" };
      const tools = [{ name: "look", input_schema: { type: "object" } }];
      const thinking = { type: "enabled", budget_tokens: 6_000 };
      expect(await ask(model, { thinking, tools }, headers)).toEqual({ status: 400, route: null, ignored: null });
      expect(upstream.requests).toEqual([]);
    },
  );

  test.each([{}, { thinking: { type: "disabled" } }])("is no preference where there is none: %j.", async (fields) => {
    upstream.answer(json(COMPLETION));
    expect(await ask("both", fields)).toMatchObject({ status: 200, route: "open/m" });
  });
});

describe("The effort max", () => {
  const asked = { thinking: { type: "adaptive" }, output_config: { effort: "max" } };

  test("is lowered for a provider that lacks it, under the name of each wire.", async () => {
    upstream.answer(json(COMPLETION), json(COMPLETION), json(COMPLETION));
    expect(await ask("foreign", asked)).toMatchObject({ status: 200, ignored: "output_config.effort.max" });
    const chat = { model: "foreign", messages: [{ role: "user", content: "go" }], reasoning_effort: "max" };
    const chatAnswer = await send(service, "/v1/chat/completions", token, chat);
    expect(chatAnswer.headers.get("x-tollgate-ignored")).toBe("reasoning_effort.max");
    const response = await send(service, "/v1/responses", token, {
      ...{ model: "foreign", input: "go" },
      reasoning: { effort: "max" },
    });
    expect(response.headers.get("x-tollgate-ignored")).toBe("reasoning.effort.max");
    expect(upstream.requests.map(({ body }) => body.reasoning_effort)).toEqual(["xhigh", "xhigh", "xhigh"]);
  });
});

test("A stream of another provider begins with the estimate of its prompt, which LangChain takes as the input tokens.", async () => {
  const choices = [{ index: 0, delta: { content: "Yes" }, finish_reason: null }];
  const end = { choices: [{ index: 0, delta: {}, finish_reason: "stop" }] };
  const body = `${sse([{ choices }, end])}data: [DONE]\n\n`;
  upstream.answer({ headers: { "content-type": "text/event-stream" }, body });
  const messages = [{ role: "user", content: "x".repeat(400) }];
  const answer = await send(service, "/v1/messages", token, {
    model: "foreign",
    max_tokens: 10,
    stream: true,
    messages,
  });
  const events = [...(await answer.text()).matchAll(/^data: (.*)$/gm)].map(([, data = ""]) => JSON.parse(data));
  // A token for each four bytes, and seven of the template.
  expect(events[0]).toMatchObject({
    type: "message_start",
    message: { usage: { input_tokens: 107, output_tokens: 0 } },
  });
});

describe("anthropic-beta", () => {
  const headers = { "anthropic-beta": "interleaved-thinking-2025-05-14,context-1m-2025-08-07" };

  test("passes to Anthropic without the values that change the price, which the answer names.", async () => {
    upstream.answer(json(MESSAGE));
    const answer = await ask("both", { thinking: THINKING }, { ...headers, "anthropic-version": "2023-06-01" });
    expect(answer).toEqual({ status: 200, route: "claude/m", ignored: "anthropic-beta.context-1m-2025-08-07" });
    expect(upstream.requests[0]?.headers).toMatchObject({
      "anthropic-beta": "interleaved-thinking-2025-05-14",
      "anthropic-version": "2023-06-01",
    });
  });

  test("does not pass to other providers, and the answer names it.", async () => {
    upstream.answer(json(COMPLETION));
    expect(await ask("foreign", {}, headers)).toMatchObject({ status: 200, ignored: "anthropic-beta" });
    expect(upstream.requests[0]?.headers).not.toHaveProperty("anthropic-beta");
  });
});

/** By how they think: with a number of tokens, with an effort, or not at all. */
const MODELS = {
  budget: [
    ...["claude-3-7-sonnet-20250219", "claude-3.7-sonnet", "claude-sonnet-4-0", "claude-sonnet-4@20250514"],
    ...["claude-opus-4-1", "claude-opus-4-20250514", "claude-sonnet-4-5", "claude-haiku-4-5", "claude-sonnet-4-7"],
  ],
  effort: ["claude-sonnet-4-6", "claude-opus-4-7", "claude-opus-4-8", "claude-sonnet-5-5", "claude-fable-5"],
  none: ["claude-instant-1.2", "claude-2.1", "claude-3-haiku-20240307", "claude-3-5-sonnet-latest", "claude-3-opus"],
  foreign: ["kimi-k2-thinking", "MiniMax-M2", "glm-4.6", "deepseek-reasoner", "m"],
};

describe.each([
  ["anthropic", { apiKey: "k" }, (model: string) => model],
  ["bedrock", { apiKey: "k", region: "eu-central-1" }, (model: string) => `anthropic.${model}-v1:0`],
])("On the wire of %s", (kind, settings, nameOf) => {
  const kinds = kind === "anthropic" ? MODELS : { ...MODELS, foreign: [] };
  test.each(Object.entries(kinds).flatMap(([how, models]) => models.map((model) => [how, model] as const)))(
    "an effort (%s) never makes the bound of %s larger.",
    async (how, name) => {
      const provider = createProvider(settingsOf(`${upstream.origin}/v1`, { kind, ...settings }), {});
      const model = nameOf(name);
      upstream.answer({ status: 500, body: "{}" });
      const messages = [{ role: "user" as const, content: "go" }];
      const request = { model, messages, max_tokens: 5_000, stream: false, reasoning_effort: "high" as const };
      await expect(provider.complete({ request, signal: new AbortController().signal })).rejects.toThrow();
      const { body } = upstream.requests[0] ?? {};
      const { inferenceConfig, additionalModelRequestFields: own } = body as Record<string, Record<string, unknown>>;
      const sent = body?.max_tokens ?? inferenceConfig?.maxTokens;
      // The package knows that the longest answer of one of them is 4,096 tokens.
      expect([4_096, 5_000]).toContain(sent);
      const thinking = (body?.thinking ?? own?.thinking) as { type: string } | undefined;
      expect(thinking?.type).toBe({ budget: "enabled", foreign: "enabled", effort: "adaptive", none: undefined }[how]);
      await provider.close();
    },
  );
});
