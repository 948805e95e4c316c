import { afterAll, beforeAll, beforeEach, describe, expect, test } from "vitest";
import { makeOrganization, type RunningService, send, startService } from "../support/service.ts";
import { PNG, TOOLS } from "./fixture.ts";
import { FIXTURES } from "./fixtures.ts";
import { type ScriptedServer, scripted, startScriptedServer } from "./scripted-server.ts";

/** Prices of three digits after the point, so that a class that is charged as another shows. */
const PRICE = { input: 1.251, cachedInput: 0.127, cacheWrite: 3.753, output: 10.003 };
const URL = `data:image/png;base64,${PNG}`;
const WORDS = "How is the weather here?";
const ARGUMENTS = '{"city":"Bern"}';
const RESULT = "12 degrees";
const [WEATHER] = (TOOLS ?? []).map((tool) => tool.function);

type Usage = Record<string, unknown>;

interface InboundWire {
  path: string;
  /** A question with an image, a call and its result, with reasoning asked for. */
  body: object;
  /** Returns prompt, cached, written, completion and reasoning tokens. */
  counts(usage: Usage): unknown[];
}

/** Reads the counters of OpenAI's wires, which differ in names only. */
const countsNamed = (prompt: string, completion: string) => (usage: Usage) => {
  const partsOf = (name: string) => (usage[`${name}_details`] ?? {}) as Record<string, number | undefined>;
  const { cached_tokens: cached = 0, cache_write_tokens: written = 0 } = partsOf(prompt);
  const { reasoning_tokens: reasoning = 0 } = partsOf(completion);
  return [usage[prompt], cached, written, usage[completion], reasoning];
};
const WIRES: Record<string, InboundWire> = {
  chat: {
    path: "/v1/chat/completions",
    body: {
      max_completion_tokens: 100,
      reasoning_effort: "low",
      tools: TOOLS,
      messages: [
        {
          role: "user",
          content: [
            { type: "text", text: WORDS },
            { type: "image_url", image_url: { url: URL } },
          ],
        },
        {
          role: "assistant",
          tool_calls: [{ id: "call_1", type: "function", function: { name: "weather", arguments: ARGUMENTS } }],
        },
        { role: "tool", tool_call_id: "call_1", content: RESULT },
      ],
    },
    counts: countsNamed("prompt_tokens", "completion_tokens"),
  },
  responses: {
    path: "/v1/responses",
    body: {
      max_output_tokens: 100,
      reasoning: { effort: "low" },
      tools: [{ type: "function", ...WEATHER }],
      input: [
        {
          role: "user",
          content: [
            { type: "input_text", text: WORDS },
            { type: "input_image", image_url: URL },
          ],
        },
        { type: "function_call", call_id: "call_1", name: "weather", arguments: ARGUMENTS },
        { type: "function_call_output", call_id: "call_1", output: RESULT },
      ],
    },
    counts: countsNamed("input_tokens", "output_tokens"),
  },
  messages: {
    path: "/v1/messages",
    body: {
      max_tokens: 100,
      output_config: { effort: "low" },
      tools: [{ name: "weather", description: WEATHER?.description, input_schema: WEATHER?.parameters }],
      messages: [
        {
          role: "user",
          content: [
            { type: "text", text: WORDS },
            { type: "image", source: { type: "base64", media_type: "image/png", data: PNG } },
          ],
        },
        {
          role: "assistant",
          content: [{ type: "tool_use", id: "call_1", name: "weather", input: JSON.parse(ARGUMENTS) }],
        },
        { role: "user", content: [{ type: "tool_result", tool_use_id: "call_1", content: RESULT }] },
      ],
    },
    counts: (usage) => {
      const { cache_read_input_tokens: cached, cache_creation_input_tokens: written } = usage;
      const prompt = Number(usage.input_tokens) + Number(cached) + Number(written);
      const { thinking_tokens: reasoning = 0 } = (usage.output_tokens_details ?? {}) as Record<string, number>;
      return [prompt, cached, written, usage.output_tokens, reasoning];
    },
  },
};

let upstream: ScriptedServer;
let service: RunningService;
let token: string;

beforeAll(async () => {
  upstream = await startScriptedServer();
  const providers = FIXTURES.map(({ kind, basePath, settings }) => {
    return { id: kind, kind, baseUrl: `${upstream.origin}${basePath}`, ...settings };
  });
  const capabilities = ["tools", "vision", "reasoning"];
  const models = FIXTURES.map(({ kind, model }) => {
    return { id: `by-${kind}`, capabilities, price: PRICE, routes: [{ provider: kind, model }] };
  });
  service = await startService({ config: { providers, models } });
  ({ token } = await makeOrganization(service, "10"));
});
afterAll(async () => {
  await service?.end();
  await upstream?.end();
});
beforeEach(() => upstream.reset());

/** Returns the last usage of an answer, streamed or not. */
function usageIn(text: string): Usage {
  const lines = text.startsWith("{") ? [text] : text.split("\n").filter((line) => line.startsWith("data: {"));
  const usages = lines.map((line) => {
    const { usage, response } = JSON.parse(line.replace(/^data: /, ""));
    return (usage ?? response?.usage) as Usage | null | undefined;
  });
  const last = usages.findLast((usage) => usage?.cost !== undefined);
  if (last === undefined || last === null) throw new Error(`No usage in ${text}`);
  return last;
}

describe.each(FIXTURES)("$kind", (fixture) => {
  test.each([false, true])("charges and counts the same on every inbound wire; streamed: %s", async (stream) => {
    const { prompt_tokens, completion_tokens, ...details } = fixture.text.usage;
    const { cached_tokens: cached = 0, cache_write_tokens: written = 0, reasoning_tokens: reasoning = 0 } = details;
    const plain = prompt_tokens - cached - written;
    const thousandths = plain * 1_251 + cached * 127 + written * 3_753 + completion_tokens * 10_003;
    const counts = [prompt_tokens, cached, written, completion_tokens, reasoning];
    for (const [name, wire] of Object.entries(WIRES)) {
      upstream.answer(scripted(fixture, fixture.tools, stream));
      const answer = await send(service, wire.path, token, { model: `by-${fixture.kind}`, stream, ...wire.body });
      expect([name, answer.status]).toEqual([name, 200]);
      const text = await answer.text();
      expect(text).toContain("Bern");
      const usage = usageIn(text);
      expect([name, usage.cost, ...wire.counts(usage)]).toEqual([
        name,
        Math.ceil(thousandths / 1_000) / 1e6,
        ...counts,
      ]);
      expect(JSON.stringify(upstream.requests.at(-1)?.body)).toContain(PNG);
    }
  });
});
