import { afterAll, beforeAll, beforeEach, describe, expect, test } from "vitest";
import { makeOrganization, type Organization, type RunningService, send, startService } from "../support/service.ts";
import type { Answer, WireFixture } from "./fixture.ts";
import { FIXTURES } from "./fixtures.ts";
import { type ScriptedServer, scripted, startScriptedServer } from "./scripted-server.ts";

/** Prices of three digits after the point, so that a class that is charged as another, or twice, shows. */
const CLASS_PRICES = { input: 1.251, cachedInput: 0.127, cacheWrite: 3.753, cacheWrite1h: 7.501, output: 10.003 };
const MODES = [false, true];
const fixtureOf = (kind: string) => FIXTURES.find((fixture) => fixture.kind === kind) as WireFixture;

let upstream: ScriptedServer;
let service: RunningService;
let organization: Organization;

beforeAll(async () => {
  upstream = await startScriptedServer();
  const providers = FIXTURES.map(({ kind, basePath, settings }) => {
    return { id: kind, kind, baseUrl: `${upstream.origin}${basePath}`, ...settings };
  });
  const models = FIXTURES.map(({ kind, model }) => {
    return { id: `classes-${kind}`, price: CLASS_PRICES, routes: [{ provider: kind, model }] };
  });
  service = await startService({ config: { providers, models } });
  organization = await makeOrganization(service, "10");
});
afterAll(async () => {
  await service?.end();
  await upstream?.end();
});
beforeEach(() => upstream.reset());

async function available(): Promise<number> {
  const answer = await send(service, "/v1/usage", organization.token);
  return ((await answer.json()) as { creditsAvailable: number }).creditsAvailable;
}

/** Tokens by class, as the service forwards them, and the charge in micro-credits. */
interface Billed {
  prompt: number;
  cached: number;
  written: number;
  completion: number;
  microCredits: number;
}

/** Returns the tokens of an answer and its charge at `CLASS_PRICES`. */
function billOf(usage: WireFixture["text"]["usage"], hourly = 0): Billed {
  const { prompt_tokens: prompt, completion_tokens: completion, cached_tokens: cached = 0 } = usage;
  const written = usage.cache_write_tokens ?? 0;
  const input = (prompt - cached - written) * 1_251 + cached * 127 + (written - hourly) * 3_753 + hourly * 7_501;
  return { prompt, cached, written, completion, microCredits: Math.ceil((input + completion * 10_003) / 1_000) };
}

/** Counters of the wires of chat completions and of messages, whose prompt excludes cached and written tokens. */
interface Forwarded {
  prompt_tokens?: number;
  completion_tokens?: number;
  prompt_tokens_details?: { cached_tokens?: number; cache_write_tokens?: number };
  input_tokens?: number;
  output_tokens?: number;
  cache_read_input_tokens?: number;
  cache_creation_input_tokens?: number;
  cost?: number;
}

/** Reads the last usage with a cost. */
function forwardedIn(text: string): Omit<Billed, "microCredits"> & { cost: number } {
  const lines = text.startsWith("{") ? [text] : text.split("\n").filter((line) => line.startsWith("data: {"));
  const usages = lines.map((line) => JSON.parse(line.replace(/^data: /, "")).usage as Forwarded | null | undefined);
  const usage = usages.findLast((one) => one?.cost !== undefined) ?? {};
  const cost = Math.round(Number(usage.cost) * 1e6);
  if (usage.prompt_tokens !== undefined) {
    const { cached_tokens: cached = 0, cache_write_tokens: written = 0 } = usage.prompt_tokens_details ?? {};
    return { prompt: usage.prompt_tokens, cached, written, completion: Number(usage.completion_tokens), cost };
  }
  const { cache_read_input_tokens: cached = 0, cache_creation_input_tokens: written = 0 } = usage;
  const prompt = Number(usage.input_tokens) + cached + written;
  return { prompt, cached, written, completion: Number(usage.output_tokens), cost };
}

/** Asks on both wires, and expects the tokens forwarded, the cost stated, and the balance lowered by it. */
async function expectBilled(fixture: WireFixture, answer: Answer, stream: boolean, bill: Billed): Promise<void> {
  const { microCredits, ...tokens } = bill;
  // The price of an hour counts for requests that ask for it.
  const content = [{ type: "text", text: "hello", cache_control: { type: "ephemeral", ttl: "1h" } }];
  for (const path of ["/v1/chat/completions", "/v1/messages"]) {
    upstream.answer(scripted(fixture, answer, stream));
    const before = await available();
    const options = path.endsWith("completions") && stream ? { stream_options: { include_usage: true } } : {};
    const body = {
      model: `classes-${fixture.kind}`,
      max_tokens: 100,
      messages: [{ role: "user", content }],
      stream,
      ...options,
    };
    const text = await (await send(service, path, organization.token, body)).text();
    expect([path, forwardedIn(text)]).toEqual([path, { ...tokens, cost: microCredits }]);
    expect([path, Math.round((before - (await available())) * 1e6)]).toEqual([path, microCredits]);
  }
}

/** Returns a copy of an answer in which every usage is changed. */
function withUsage(answer: Answer, change: (usage: Record<string, unknown>) => object): Answer {
  const changed = (_name: string, value: unknown) =>
    typeof value === "object" && value !== null && "usage" in value && value.usage !== null
      ? { ...value, usage: change(value.usage as Record<string, unknown>) }
      : value;
  return JSON.parse(JSON.stringify(answer), changed);
}

describe.each(MODES)("Cached tokens, streamed: %s", (stream) => {
  const cached = FIXTURES.filter(({ text }) => text.usage.cached_tokens !== undefined);

  test.each(cached)("are not charged twice, inside the prompt tokens or beside them: $kind", async (fixture) => {
    await expectBilled(fixture, fixture.text, stream, billOf(fixture.text.usage));
  });

  test("are billed wherever they are forwarded, although nothing but them was in the prompt.", async () => {
    const { text } = fixtureOf("anthropic");
    const all = { input_tokens: 0, cache_creation_input_tokens: 0, cache_read_input_tokens: 100 };
    const answer = withUsage(text, (usage) => ({ ...usage, ...("input_tokens" in usage && all) }));
    const bill = billOf({ ...text.usage, cached_tokens: 100, cache_write_tokens: 0 });
    expect(bill.microCredits).toBe(Math.ceil((100 * 127 + 30 * 10_003) / 1_000));
    await expectBilled(fixtureOf("anthropic"), answer, stream, bill);
  });
});

describe.each(MODES)("Cache writes, streamed: %s", (stream) => {
  const writing = FIXTURES.filter(({ text }) => text.usage.cache_write_tokens !== undefined);

  test.each(writing)("are not dropped, neither from the usage nor from the charge: $kind", async (fixture) => {
    const { text } = fixture;
    const bill = billOf(text.usage);
    expect(bill.written).toBe(10);
    expect(bill.microCredits).toBeGreaterThan(billOf({ ...text.usage, cache_write_tokens: 0 }).microCredits);
    await expectBilled(fixture, text, stream, bill);
  });

  test.each([
    ["anthropic", { cache_creation: { ephemeral_5m_input_tokens: 4, ephemeral_1h_input_tokens: 6 } }],
    [
      "bedrock",
      {
        cacheDetails: [
          { ttl: "5m", inputTokens: 4 },
          { ttl: "1h", inputTokens: 6 },
        ],
      },
    ],
  ])("of both lives are billed through the AI SDK's package: %s", async (kind, details) => {
    const fixture = fixtureOf(kind);
    const isFirst = (usage: object) => "input_tokens" in usage || "inputTokens" in usage;
    const answer = withUsage(fixture.text, (usage) => ({ ...usage, ...(isFirst(usage) && details) }));
    await expectBilled(fixture, answer, stream, billOf(fixture.text.usage, 6));
  });
});

describe("Cumulative usage events are not summed", () => {
  const counts = (completion: number) => ({ prompt_tokens: 100, completion_tokens: completion });
  const chunk = { id: "c", object: "chat.completion.chunk", created: 1, model: "m", choices: [] };
  /** Events that state the usage so far, before those of the answer state the final one. */
  const EARLIER: Record<string, object[]> = {
    anthropic: [7, 19].map((output_tokens) => ({
      type: "message_delta",
      delta: { stop_reason: null, stop_sequence: null },
      usage: { input_tokens: 50, cache_creation_input_tokens: 10, cache_read_input_tokens: 40, output_tokens },
    })),
    google: [7, 18].map((candidatesTokenCount) => ({
      candidates: [{ content: { parts: [{ text: "" }], role: "model" }, index: 0 }],
      usageMetadata: { promptTokenCount: 100, candidatesTokenCount, cachedContentTokenCount: 40 },
    })),
    "openai-compatible": [7, 19].map((count) => ({ ...chunk, usage: counts(count) })),
    bedrock: [7, 19].map((outputTokens) => ({
      metadata: { usage: { inputTokens: 50, outputTokens, cacheReadInputTokens: 40, cacheWriteInputTokens: 10 } },
    })),
  };

  test.each(Object.keys(EARLIER))("by %s", async (kind) => {
    const fixture = fixtureOf(kind);
    const [first, ...others] = fixture.text.events;
    const answer = { ...fixture.text, events: [first, ...(EARLIER[kind] ?? []), ...others] };
    await expectBilled(fixture, answer, true, billOf(fixture.text.usage));
  });
});
