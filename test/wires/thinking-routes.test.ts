import { afterAll, beforeAll, beforeEach, describe, expect, test } from "vitest";
import { makeOrganization, type RunningService, send, startService } from "../support/service.ts";
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
