import { createOpenAI } from "@ai-sdk/openai";
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { jsonSchema, streamText, tool } from "ai";
import { afterAll, beforeAll, beforeEach, describe, expect, test } from "vitest";
import { makeOrganization, type Organization, type RunningService, send, startService } from "../support/service.ts";
import { TOOLS, type WireFixture } from "./fixture.ts";
import { FIXTURES } from "./fixtures.ts";
import { type ScriptedServer, scripted, startScriptedServer } from "./scripted-server.ts";

const PRICE = { input: 1, output: 10 };
/** Routes by which a conversation with signed reasoning moves to another provider: the first one, and the next. */
const SWITCHES = [
  ["anthropic", "google"],
  ["anthropic", "openai-compatible"],
  ["anthropic", "xai"],
  ["bedrock", "google"],
  ["google", "anthropic"],
  ["google", "bedrock"],
  ["xai", "anthropic"],
  ["xai", "google"],
] as const;

const fixtureOf = (kind: string) => FIXTURES.find((fixture) => fixture.kind === kind) as WireFixture;
const QUESTION = { role: "user" as const, content: "hello" };

let upstream: ScriptedServer;
let service: RunningService;
let organization: Organization;

beforeAll(async () => {
  upstream = await startScriptedServer();
  const providers = FIXTURES.map(({ kind, basePath, settings }) => {
    return { id: kind, kind, baseUrl: `${upstream.origin}${basePath}`, ...settings };
  });
  const routesOf = (kinds: readonly string[]) =>
    kinds.map(fixtureOf).map(({ kind, model }) => ({ provider: kind, model }));
  const routes = [...SWITCHES, ["anthropic"], ["bedrock"], ["google"], ["openai-compatible"]];
  const models = routes.map((kinds) => {
    return { id: kinds.join("-then-"), capabilities: ["tools"], price: PRICE, routes: routesOf(kinds) };
  });
  service = await startService({ config: { providers, models } });
  organization = await makeOrganization(service, "10");
});
afterAll(async () => {
  await service?.end();
  await upstream?.end();
});
beforeEach(() => upstream.reset());

type Turn = Record<string, unknown>;
const [WEATHER] = (TOOLS ?? []).map((tool) => tool.function);

/** Conversations on each inbound wire: the first question, and the next with the answer sent back and the results. */
const CONVERSATIONS: Record<string, { path: string; first: Turn; next(answer: Turn): Turn }> = {
  chat: {
    path: "/v1/chat/completions",
    first: { messages: [QUESTION], tools: TOOLS },
    next: ({ choices }) => {
      const [{ message }] = choices as [{ message: { tool_calls: { id: string }[] } }];
      const results = message.tool_calls.map(({ id }) => ({ role: "tool", tool_call_id: id, content: "12 degrees" }));
      return { messages: [QUESTION, message, ...results], tools: TOOLS };
    },
  },
  responses: {
    path: "/v1/responses",
    first: { input: [QUESTION], tools: [{ type: "function", ...WEATHER }] },
    next: ({ output }) => {
      const items = output as { type: string; call_id: string }[];
      const calls = items.filter(({ type }) => type === "function_call");
      const results = calls.map(({ call_id }) => ({ type: "function_call_output", call_id, output: "12 degrees" }));
      return { input: [QUESTION, ...items, ...results], tools: [{ type: "function", ...WEATHER }] };
    },
  },
  messages: {
    path: "/v1/messages",
    first: { max_tokens: 100, messages: [QUESTION], tools: [{ name: "weather", input_schema: WEATHER?.parameters }] },
    next: ({ content }) => {
      const blocks = content as { type: string; id: string }[];
      const calls = blocks.filter(({ type }) => type === "tool_use");
      const results = calls.map(({ id }) => ({ type: "tool_result", tool_use_id: id, content: "12 degrees" }));
      const messages = [QUESTION, { role: "assistant", content: blocks }, { role: "user", content: results }];
      return { max_tokens: 100, messages, tools: [{ name: "weather", input_schema: WEATHER?.parameters }] };
    },
  },
};

/** Sends a question and the turn after its calls; returns the body of the last request to the upstream. */
async function converseOn(wire: string, model: string): Promise<string> {
  const { path, first, next } = CONVERSATIONS[wire] as (typeof CONVERSATIONS)[string];
  const asked = await send(service, path, organization.token, { model, ...first });
  expect([wire, asked.status]).toEqual([wire, 200]);
  const answer = (await asked.json()) as Turn;
  const answered = await send(service, path, organization.token, { model, ...next(answer) });
  expect([wire, answered.status, await answered.text()]).toEqual([wire, 200, expect.anything()]);
  return JSON.stringify(upstream.requests.at(-1)?.body);
}

/** Signatures and encrypted thoughts in the fixture of a provider. */
function thoughtsOf({ tools }: WireFixture): string[] {
  const found = JSON.stringify(tools.whole).matchAll(
    /"(?:signature|data|thoughtSignature|encrypted_content)":"([^"]+)"/g,
  );
  const thoughts = [...found].map(([, thought = ""]) => thought);
  expect(thoughts).not.toEqual([]);
  return thoughts;
}

describe("Thought signatures are not replayed on another route", () => {
  test.each(SWITCHES)("%s, then %s", async (kind, other) => {
    const [from, to] = [fixtureOf(kind), fixtureOf(other)];
    for (const wire of Object.keys(CONVERSATIONS)) {
      upstream.reset();
      upstream.answer(scripted(from, from.tools, false), { status: 500, body: "{}" }, scripted(to, to.text, false));
      const sent = await converseOn(wire, `${kind}-then-${other}`);
      expect(upstream.requests.map(({ path }) => path)).toHaveLength(3);
      expect(sent).toContain("12 degrees");
      for (const thought of thoughtsOf(from)) expect([wire, sent.includes(thought)]).toEqual([wire, false]);
      expect([wire, sent.includes("tollgate:")]).toEqual([wire, false]);
    }
  });
});

describe("Thinking is not re-encoded: it returns to its provider byte for byte", () => {
  const thinking = ' é e\u0301 \u2028 "quoted" \\ \\n / <b>&amp;</b> \u{1F642}\t\n\n ';
  const signature = "Eq+/QBCg=IY\u00e4%2B==";

  test.each(Object.keys(CONVERSATIONS))("on the wire of %s", async (wire) => {
    const block = { type: "thinking", thinking, signature };
    const redacted = { type: "redacted_thinking", data: signature };
    const call = { type: "tool_use", id: "toolu_1", name: "weather", input: { city: "Bern" } };
    const fixture = fixtureOf("anthropic");
    const whole = { ...(fixture.tools.whole as object), content: [block, redacted, call] };
    upstream.answer({ body: JSON.stringify(whole) }, scripted(fixture, fixture.text, false));
    const sent = await converseOn(wire, "anthropic");
    expect(sent).toContain(JSON.stringify([block, redacted]).slice(1, -1));
  });

  test.each(Object.keys(CONVERSATIONS))("by Bedrock, on the wire of %s", async (wire) => {
    const fixture = fixtureOf("bedrock");
    const reasoning = { reasoningContent: { reasoningText: { text: thinking, signature } } };
    const call = { toolUse: { toolUseId: "tooluse_1", name: "weather", input: { city: "Bern" } } };
    const message = { role: "assistant", content: [reasoning, call] };
    const whole = { ...(fixture.tools.whole as object), output: { message } };
    upstream.answer({ body: JSON.stringify(whole) }, scripted(fixture, fixture.text, false));
    expect(await converseOn(wire, "bedrock")).toContain(JSON.stringify(reasoning));
  });
});

const ROUTED_USAGE = { prompt_tokens: 20, completion_tokens: 9, total_tokens: 29 };
/** A streamed call with signed reasoning as OpenRouter sends it. */
const ROUTED = [
  {
    role: "assistant",
    content: "",
    reasoning: "Hm.",
    reasoning_details: [{ type: "reasoning.text", text: "Hm.", index: 0 }],
  },
  { reasoning_details: [{ type: "reasoning.text", signature: "c2lnbmVk", format: "anthropic-claude-v1", index: 0 }] },
  {
    tool_calls: [
      { index: 0, id: "call_1", type: "function", function: { name: "weather", arguments: '{"city":"Bern"}' } },
    ],
  },
].map((delta) => ({ choices: [{ index: 0, delta, finish_reason: null }] }));

describe("Vercel's AI SDK reads streamed calls with signed reasoning", () => {
  const CLIENTS = {
    "@ai-sdk/openai": (model: string) =>
      createOpenAI({ baseURL: service.baseUrl, apiKey: organization.token }).chat(model),
    "@ai-sdk/openai-compatible": (model: string) =>
      createOpenAICompatible({ name: "tollgate", baseURL: service.baseUrl, apiKey: organization.token })(model),
  };
  const weather = tool({ inputSchema: jsonSchema<{ city: string }>(WEATHER?.parameters as object) });

  test.each(["anthropic", "google", "openai-compatible"])(
    "%s",
    async (kind) => {
      const fixture = fixtureOf(kind);
      for (const [name, client] of Object.entries(CLIENTS)) {
        upstream.reset();
        const end = { choices: [{ index: 0, delta: {}, finish_reason: "stop" }] };
        const events = kind === "openai-compatible" ? [...ROUTED, end] : fixture.tools.events;
        upstream.answer(scripted(fixture, { ...fixture.tools, events }, true));
        const errors: unknown[] = [];
        const onError = ({ error }: { error: unknown }) => void errors.push(error);
        const asked = { model: client(kind), prompt: "hello", tools: { weather }, maxRetries: 0, onError };
        const answer = streamText(asked);
        const [calls, reason] = [await answer.toolCalls, await answer.finishReason];
        expect([name, errors]).toEqual([name, []]);
        expect([name, calls.map(({ toolName }) => toolName)]).toContainEqual(expect.arrayContaining(["weather"]));
        expect([name, reason]).toEqual([name, "tool-calls"]);
      }
    },
    180_000,
  );
});

describe("Signed reasoning of OpenRouter is streamed once, before what it led to", () => {
  const end = { choices: [{ index: 0, delta: {}, finish_reason: "tool_calls" }], usage: ROUTED_USAGE };
  const said = { choices: [{ index: 0, delta: { content: "I look." }, finish_reason: null }] };
  const [thought, signature, call] = ROUTED;
  const events = [thought, signature, said, call, end];
  const { tool_calls } = call?.choices[0]?.delta ?? {};
  const detail = {
    type: "reasoning.text",
    text: "Hm.",
    index: 0,
    signature: "c2lnbmVk",
    format: "anthropic-claude-v1",
  };
  const message = {
    ...{ role: "assistant", content: "I look.", reasoning: "Hm.", reasoning_details: [detail] },
    tool_calls: tool_calls?.map(({ index: _index, ...others }) => others),
  };
  const whole = { choices: [{ index: 0, message, finish_reason: "tool_calls" }], usage: ROUTED_USAGE };

  /** Content blocks of a streamed answer on the wire of Messages. */
  function blocksOf(text: string): object[] {
    const blocks: Record<string, string>[] = [];
    for (const line of text.split("\n").filter((line) => line.startsWith("data: "))) {
      const { type, index, content_block, delta } = JSON.parse(line.slice("data: ".length));
      if (type === "content_block_start") blocks[index] = { ...content_block };
      if (type !== "content_block_delta") continue;
      const block = blocks[index] ?? {};
      for (const name of ["text", "thinking", "signature"]) {
        if (delta[name] !== undefined) block[name] = (block[name] ?? "") + delta[name];
      }
      if (delta.partial_json !== undefined) block.input = JSON.parse(delta.partial_json);
    }
    return blocks;
  }

  test("on the wire of Messages, as unstreamed.", async () => {
    const fixture = fixtureOf("openai-compatible");
    const { path, first } = CONVERSATIONS.messages as (typeof CONVERSATIONS)[string];
    const ask = (stream: boolean) => {
      upstream.answer(scripted(fixture, { whole, events }, stream));
      return send(service, path, organization.token, { model: "openai-compatible", ...first, stream });
    };
    const streamed = blocksOf(await (await ask(true)).text());
    const { content } = (await (await ask(false)).json()) as { content: object[] };
    expect(streamed).toEqual(content);
    expect(streamed.slice(0, 3)).toMatchObject([
      { type: "thinking", thinking: "Hm.", signature: "c2lnbmVk" },
      { type: "text", text: "I look." },
      { type: "tool_use", input: { city: "Bern" } },
    ]);
  });

  test("on the wire of chat completions.", async () => {
    upstream.answer(scripted(fixtureOf("openai-compatible"), { whole, events }, true));
    const body = { model: "openai-compatible", messages: [QUESTION], stream: true };
    const text = await (await send(service, "/v1/chat/completions", organization.token, body)).text();
    const deltas = text.split("\n\n").flatMap((event) => {
      const choices = event.startsWith("data: {") ? JSON.parse(event.slice("data: ".length)).choices : [];
      return choices.map(({ delta }: { delta: Turn }) => delta);
    });
    const signed = deltas.filter(({ reasoning_details: details }) => details !== undefined);
    expect(signed).toEqual([{ content: "I look.", reasoning_details: [detail] }]);
  });
});
