import { afterAll, beforeAll, beforeEach, describe, expect, test } from "vitest";
import { AnswerFold } from "../../src/api/answer-fold.ts";
import { RARE, type RareField, treatmentOf } from "../../src/providers/fields.ts";
import { createProvider } from "../../src/providers/index.ts";
import { LOCAL_SERVERS } from "../../src/providers/local-servers.ts";
import { DEFAULT_REQUEST_FORMAT } from "../../src/providers/openai/request.ts";
import type { UpstreamRequest } from "../../src/providers/provider.ts";
import { KNOWN_PROVIDERS } from "../../src/providers/registry.ts";
import type { ProviderSettings } from "../../src/providers/settings.ts";
import { settingsOf } from "../support/wire.ts";
import type { WireFixture } from "./fixture.ts";
import { FIXTURES } from "./fixtures.ts";
import { type ScriptedServer, scripted, startScriptedServer } from "./scripted-server.ts";

const part = (content: object): Partial<UpstreamRequest> => ({
  messages: [{ role: "user", content: [{ type: "text", text: "go" }, content] }] as UpstreamRequest["messages"],
});

/** A request with each field. */
const SAMPLES: Record<RareField, Partial<UpstreamRequest>> = {
  n: { n: 2 },
  modalities: { modalities: ["text", "image"] },
  audio: { audio: { voice: "alloy", format: "mp3" } },
  web_search_options: { web_search_options: {} },
  service_tier: { service_tier: "flex" },
  prediction: { prediction: { type: "content", content: "x" } },
  verbosity: { verbosity: "low" },
  store: { store: true },
  safety_identifier: { safety_identifier: "someone" },
  prompt_cache_key: { prompt_cache_key: "key" },
  prompt_cache_retention: { prompt_cache_retention: "24h" },
  top_k: { top_k: 5 },
  thinking: { thinking: { type: "enabled", budget_tokens: 1_024 } },
  min_p: { min_p: 0.1 },
  repetition_penalty: { repetition_penalty: 1.1 },
  chat_template_kwargs: { chat_template_kwargs: { enable_thinking: false } },
  enable_thinking: { enable_thinking: false },
  guided_json: { guided_json: { type: "object" } },
  guided_regex: { guided_regex: "[a-z]+" },
  guided_choice: { guided_choice: ["yes", "no"] },
  guided_grammar: { guided_grammar: 'root ::= "yes"' },
  cache_control: { cache_control: { type: "ephemeral" } },
  "tools.custom": { tools: [{ type: "function", function: { name: "sh" }, custom: {} }] },
  "content.file": part({ type: "file", file: { filename: "a.pdf", file_data: "data:application/pdf;base64,AAAA" } }),
  "content.file.file_url": part({ type: "file", file: { file_url: "https://files.example.com/a.pdf" } }),
  "content.input_audio": part({ type: "input_audio", input_audio: { data: "AAAA", format: "wav" } }),
  "content.video_url": part({ type: "video_url", video_url: { url: "data:video/mp4;base64,AAAA" } }),
};

const compatible = FIXTURES.find(({ kind }) => kind === "openai-compatible") as WireFixture;
const ROWS = [
  ...FIXTURES.map((fixture) => {
    const { wire, requestFormat } = KNOWN_PROVIDERS.find(({ kind }) => kind === fixture.kind) ?? {};
    const fields = fixture === compatible ? undefined : (wire?.fields ?? requestFormat?.fields);
    return { name: fixture.kind, fixture, format: {}, fields };
  }),
  ...[...KNOWN_PROVIDERS.filter(({ wire }) => wire === undefined), ...LOCAL_SERVERS].map(
    ({ id, requestFormat = {} }) => {
      return { name: id, fixture: compatible, format: requestFormat, fields: requestFormat.fields };
    },
  ),
];

let server: ScriptedServer;
beforeAll(async () => {
  server = await startScriptedServer();
});
afterAll(() => server.end());
beforeEach(() => server.reset());

function providerOf(fixture: WireFixture, more: Partial<ProviderSettings>) {
  const { apiKey = null, ...settings } = fixture.settings;
  const baseUrl = `${server.origin}${fixture.basePath}`;
  return createProvider(settingsOf(baseUrl, { kind: fixture.kind, apiKey, ...settings, ...more }), {});
}

async function sent(fixture: WireFixture, more: Partial<ProviderSettings>, fields: Partial<UpstreamRequest>) {
  server.reset();
  server.answer(scripted(fixture, fixture.text, false));
  const provider = providerOf(fixture, more);
  const usual: UpstreamRequest = {
    model: fixture.model,
    messages: [{ role: "user", content: "go" }],
    max_tokens: 4_000,
    stream: false,
  };
  const request = { ...usual, ...fields };
  try {
    const refused = refusalOf(() => provider.convert?.(request));
    if (refused !== undefined) return { refused, ignored: [], body: "" };
    const { ignored = [] } = await provider.complete({ request, signal: new AbortController().signal });
    return { refused: undefined, ignored, body: JSON.stringify(server.requests[0]?.body) };
  } finally {
    await provider.close();
  }
}

function refusalOf(convert: () => unknown): unknown {
  try {
    convert();
    return undefined;
  } catch (error) {
    return error;
  }
}

describe.each(ROWS)("$name", ({ fixture, format, fields = DEFAULT_REQUEST_FORMAT.fields }) => {
  const more = { requestFormat: format };

  test.each(RARE)("%s does what the table says, and never vanishes.", async (field) => {
    const treatment = treatmentOf(fields, field);
    const { refused, ignored, body } = await sent(fixture, more, SAMPLES[field]);
    if (treatment === "refused") {
      expect(refused).toMatchObject({ failure: "unsupported", param: expect.any(String) });
      return;
    }
    expect(refused).toBeUndefined();
    expect(ignored).toEqual(treatment === "ignored" ? [field] : []);
    const plain = await sent(fixture, more, {});
    if (treatment === "ignored") expect(body).toBe(plain.body);
    else expect(body).not.toBe(plain.body);
  });

  test("a dear tier is refused, and values that mean nothing count as absent.", async () => {
    expect((await sent(fixture, more, { service_tier: "priority" })).refused).toMatchObject({ param: "service_tier" });
    const { refused, ignored } = await sent(fixture, more, {
      store: false,
      top_k: 0,
      min_p: 0,
      repetition_penalty: 1,
      modalities: ["text"],
    });
    expect([refused, ignored]).toEqual([undefined, []]);
  });
});

describe("Rows whose API differs from OpenAI's", () => {
  const formatOf = (id: string) => KNOWN_PROVIDERS.find((known) => known.id === id)?.requestFormat ?? {};

  test("Moonshot AI gets the bound of an answer under the name that it honors, and no effort where none is asked for.", async () => {
    const more = { requestFormat: formatOf("moonshotai") };
    const { body } = await sent(compatible, more, { reasoning_effort: "none" });
    expect(JSON.parse(body)).toMatchObject({ max_completion_tokens: 4_000, thinking: { type: "disabled" } });
    expect(JSON.parse(body)).not.toHaveProperty("max_tokens");
    expect(JSON.parse(body)).not.toHaveProperty("reasoning_effort");
  });

  test.each(["auto", "default"] as const)(
    "Groq, whose usual tier has another name, gets no service tier for %s.",
    async (tier) => {
      const { body, ignored } = await sent(compatible, { requestFormat: formatOf("groq") }, { service_tier: tier });
      expect([JSON.parse(body).service_tier, ignored]).toEqual([undefined, []]);
      const openai = await sent(compatible, { requestFormat: formatOf("openai") }, { service_tier: tier });
      expect(JSON.parse(openai.body).service_tier).toBe(tier);
    },
  );

  test.each([
    ["deepseek", ["logit_bias", "parallel_tool_calls", "seed", "user"]],
    ["perplexity", ["logit_bias", "seed", "user"]],
  ])("%s is not sent the hints that its reference does not have.", (id, hints) => {
    const known = KNOWN_PROVIDERS.find((provider) => provider.id === id);
    expect(known?.refuses).toEqual(expect.arrayContaining(hints));
  });
});

describe("The effort max", () => {
  const MAX = /"(?:reasoning_effort|effort|maxReasoningEffort)":"max"/;
  const LOWERED = /"(?:reasoning_effort|effort|thinkingLevel)":"x?high"/;

  test.each([
    ["openai-compatible", "", "openai", MAX],
    ["openai-compatible", "", "deepseek", MAX],
    ["openai-compatible", "", "groq", LOWERED],
    ["openai-compatible", "", "unknown", LOWERED],
    ["azure", "", "", LOWERED],
    ["anthropic", "claude-opus-5", "", MAX],
    ["bedrock", "eu.anthropic.claude-sonnet-4-6", "", MAX],
    ["google", "gemini-3-pro-preview", "", LOWERED],
    ["mistral", "magistral-medium-latest", "", LOWERED],
    ["xai", "grok-4.3", "", LOWERED],
  ])("%s %s %s gets it, or a lower one that is named.", async (kind, model, id, expected) => {
    const fixture = FIXTURES.find((one) => one.kind === kind) as WireFixture;
    const requestFormat = KNOWN_PROVIDERS.find((known) => known.id === id)?.requestFormat ?? {};
    const fields = { reasoning_effort: "max" as const, ...(model && { model }) };
    const { body, ignored } = await sent(fixture, { requestFormat }, fields);
    expect(body).toMatch(expected);
    expect(ignored).toEqual(expected === MAX ? [] : ["reasoning_effort.max"]);
  });
});

describe("Messages that an answer left behind", () => {
  const cut = [{ id: "c", type: "function" as const, function: { name: "f", arguments: '{"city":"Par' } }];
  const messages: UpstreamRequest["messages"] = [
    { role: "user", content: "go" },
    { role: "assistant", tool_calls: cut },
    { role: "tool", tool_call_id: "c", content: "invalid JSON" },
  ];

  test.each(FIXTURES)("with arguments that were cut off reach $kind as the wire takes them.", async (fixture) => {
    const { body, refused } = await sent(
      fixture,
      {},
      { messages, tools: [{ type: "function", function: { name: "f" } }] },
    );
    expect(refused).toBeUndefined();
    const isObject = ["anthropic", "bedrock", "google", "google-vertex"].includes(fixture.kind);
    const text = JSON.stringify('{"city":"Par');
    expect(body).toContain(isObject ? `{"INVALID_JSON":${text}}` : "city");
  });

  test.each([
    ["openai-compatible", "openai", true],
    ["openai-compatible", "groq", false],
    ["anthropic", "", false],
    ["google", "", false],
  ])("with audio reach only providers that have it: %s %s.", async (kind, id, isSent) => {
    const fixture = FIXTURES.find((one) => one.kind === kind) as WireFixture;
    const requestFormat = KNOWN_PROVIDERS.find((known) => known.id === id)?.requestFormat ?? {};
    const answered = { role: "assistant" as const, audio: { id: "audio_1" } };
    const turn = [messages[0], answered, { role: "user" as const, content: "on" }] as UpstreamRequest["messages"];
    const { body, ignored } = await sent(fixture, { requestFormat }, { messages: turn });
    expect([body.includes('"audio":{"id":"audio_1"}'), ignored]).toEqual([isSent, isSent ? [] : ["messages.audio"]]);
  });
});

describe("Prompt caching", () => {
  const long = "x".repeat(8_000);
  const conversation: Partial<UpstreamRequest> = {
    tools: [{ type: "function", function: { name: "f" } }],
    messages: [
      { role: "system", content: long },
      { role: "user", content: "one" },
      { role: "assistant", content: "two" },
      { role: "user", content: "three" },
    ],
  };
  const fixtureOf = (kind: string) => FIXTURES.find((fixture) => fixture.kind === kind) as WireFixture;
  const marksIn = (body: string) => body.match(/"(cache_control|cachePoint)":/g)?.length ?? 0;

  test.each([
    ["anthropic", 4],
    ["bedrock", 3],
    ["google", 0],
  ])("%s gets %i marks where the caller sets none.", async (kind, count) => {
    const fixture = fixtureOf(kind);
    expect(marksIn((await sent(fixture, {}, conversation)).body)).toBe(count);
    expect(marksIn((await sent(fixture, { promptCaching: "caller" }, conversation)).body)).toBe(0);
    expect(marksIn((await sent(fixture, { promptCaching: "off" }, conversation)).body)).toBe(0);
    expect(marksIn((await sent(fixture, {}, {})).body)).toBe(0);
  });

  test.each([["anthropic"], ["bedrock"]])("%s gets only the caller's marks, with their life.", async (kind) => {
    const fixture = fixtureOf(kind);
    const content = [
      { type: "text" as const, text: long, cache_control: { type: "ephemeral" as const, ttl: "1h" as const } },
    ];
    const messages: UpstreamRequest["messages"] = [{ role: "user", content }];
    for (const promptCaching of ["auto", "caller"] as const) {
      const { body, ignored } = await sent(fixture, { promptCaching }, { messages });
      expect([marksIn(body), body.includes('"ttl":"1h"'), ignored]).toEqual([1, true, []]);
    }
    const { body, ignored } = await sent(fixture, { promptCaching: "off" }, { messages });
    expect([marksIn(body), ignored]).toEqual([0, ["cache_control"]]);
  });
});

describe("Reasoning details", () => {
  const claude = { type: "reasoning.text" as const, format: "anthropic-claude-v1", text: "hm", signature: "SIG" };
  const gemini = { type: "reasoning.encrypted" as const, format: "google-gemini-v1", id: "c", data: "GEM" };
  const calls = [{ id: "c", type: "function" as const, function: { name: "f", arguments: "{}" } }];
  const turn: Partial<UpstreamRequest> = {
    tools: [{ type: "function", function: { name: "f" } }],
    messages: [
      { role: "user", content: "go" },
      { role: "assistant", tool_calls: calls, reasoning_details: [claude, gemini] },
      { role: "tool", tool_call_id: "c", content: "x" },
    ],
  };

  test.each([
    ["anthropic", [true, false]],
    ["bedrock", [true, false]],
    ["google", [false, true]],
    ["mistral", [false, false]],
    ["openai-compatible", [false, false]],
  ])("%s is sent only what it can read.", async (kind, expected) => {
    const fixture = FIXTURES.find((one) => one.kind === kind) as WireFixture;
    const { body, ignored } = await sent(fixture, {}, turn);
    expect([body.includes("SIG"), body.includes("GEM")]).toEqual(expected);
    expect(ignored).toContain("messages.reasoning_details");
  });

  test("OpenRouter is sent all of them unchanged.", async () => {
    const requestFormat = KNOWN_PROVIDERS.find(({ id }) => id === "openrouter")?.requestFormat ?? {};
    const { body, ignored } = await sent(compatible, { requestFormat }, turn);
    expect(JSON.parse(body).messages[1].reasoning_details).toEqual([claude, gemini]);
    expect(ignored).toEqual([]);
  });

  test.each([
    ["anthropic", "anthropic-claude-v1", false],
    ["anthropic", "anthropic-claude-v1", true],
    ["bedrock", "anthropic-claude-v1", true],
    ["google", "google-gemini-v1", true],
    ["xai", "xai-responses-v1", true],
  ])("%s returns complete blocks of %s, and takes them back.", async (kind, format, stream) => {
    const fixture = FIXTURES.find((one) => one.kind === kind) as WireFixture;
    server.answer(scripted(fixture, fixture.tools, stream));
    const provider = providerOf(fixture, {});
    const request = { model: fixture.model, messages: turn.messages ?? [], max_tokens: 100, stream };
    const fold = new AnswerFold();
    const { chunks } = await provider.complete({ request, signal: new AbortController().signal });
    for await (const pieces of chunks) fold.add(pieces);
    await provider.close();
    const { reasoning_details: details = [], tool_calls: made = [] } = fold.message();
    expect(details.length).toBeGreaterThan(0);
    expect(new Set(details.map((detail) => detail.format))).toEqual(new Set([format]));
    // Without `extra_content`, which carries the same.
    const bare = made.map(({ id, type, function: called }) => ({ id, type, function: called }));
    const messages: UpstreamRequest["messages"] = [
      { role: "user", content: "go" },
      { role: "assistant", tool_calls: bare, reasoning_details: details },
      ...bare.map(({ id }) => ({ role: "tool" as const, tool_call_id: id, content: "x" })),
    ];
    const { body, ignored } = await sent(fixture, {}, { ...turn, messages });
    for (const { signature, data } of details) expect(body).toContain(JSON.stringify(signature ?? data));
    expect(ignored).toEqual([]);
  });
});
