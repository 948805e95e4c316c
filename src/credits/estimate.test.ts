import fc from "fast-check";
import { describe, expect, test } from "vitest";
import type { ChatCompletionRequest, ContentPart, RequestMessage, Tool } from "../api/chat/request.ts";
import { FURTHER_CLASSES } from "../api/price-classes.ts";
import {
  affordableOutputTokens,
  estimatePrompt,
  type HoldNeed,
  holdBounds,
  possiblePrices,
  promptTexts,
  tokensOfPiece,
} from "./estimate.ts";
import { areCounts, FREE, fitted, NO_TOKENS, priceOf } from "./price.ts";

const IMAGE_TOKENS_MAX = 1_600;
const LIMITS = { imageTokensMax: IMAGE_TOKENS_MAX, contextWindow: 200_000 };

function estimate(messages: RequestMessage[], rest: Partial<ChatCompletionRequest> = {}) {
  return estimatePrompt({ model: "sandbox/echo", messages, ...rest }, LIMITS);
}
function say(content: string) {
  return estimate([{ role: "user", content }]);
}

const texts = fc.oneof(
  fc.string({ unit: "binary", maxLength: 300 }),
  fc.string({ unit: "grapheme", maxLength: 100 }),
  fc.string({ maxLength: 300 }),
  fc.constantFrom("", "a", "\ud800", " ".repeat(5_000), "日本語", "👩‍👩‍👧‍👦"),
);
const part = fc.oneof(
  fc.record({ type: fc.constant("text" as const), text: texts }),
  fc.record({ type: fc.constant("image_url" as const), image_url: fc.record({ url: fc.constant("https://x/y.png") }) }),
);
const message: fc.Arbitrary<RequestMessage> = fc.record(
  {
    role: fc.constantFrom("system", "developer", "user", "assistant", "tool"),
    content: fc.oneof(texts, fc.array(part, { maxLength: 4 })),
    name: texts,
    refusal: texts,
    reasoning_content: texts,
    tool_call_id: texts,
    tool_calls: fc.array(
      fc.record(
        {
          id: texts,
          type: fc.constant("function" as const),
          function: fc.record({ name: texts, arguments: texts }),
          extra_content: fc.jsonValue(),
        },
        { requiredKeys: ["id", "type", "function"] },
      ),
      { maxLength: 3 },
    ),
  },
  { requiredKeys: ["role"] },
);

describe("estimatePrompt", () => {
  test("counts the audio of a former answer, which only its provider has, as a medium of any length.", () => {
    const { most, hasMedia } = estimate([{ role: "assistant", audio: { id: "audio_1" } }]);
    expect([most, hasMedia]).toEqual([LIMITS.contextWindow, true]);
  });

  test("The bounds of any request are in order.", () => {
    const conversation = fc.array(message, { minLength: 1, maxLength: 5 });
    const tools = fc.array(
      fc.record({ type: fc.constant("function" as const), function: fc.record({ name: texts, description: texts }) }),
      { maxLength: 4 },
    );
    fc.assert(
      fc.property(conversation, fc.option(texts), tools, fc.nat(2), (messages, instructions, tools, imageTokensMax) => {
        const request = { model: "m", messages, tools, ...(instructions !== null && { instructions }) };
        const { least, likely, most } = estimatePrompt(request, { ...LIMITS, imageTokensMax });
        expect(Number.isSafeInteger(least) && Number.isSafeInteger(likely) && Number.isSafeInteger(most)).toBe(true);
        expect(least >= 0 && least <= likely && likely <= most).toBe(true);
      }),
      { numRuns: 2_000 },
    );
  });

  test("The estimate grows with every byte of text in any field.", () => {
    fc.assert(
      fc.property(fc.array(message, { minLength: 1, maxLength: 3 }), texts, (messages, text) => {
        const before = estimate(messages).most;
        const bytes = Buffer.byteLength(text);
        expect(estimate([...messages, { role: "user", content: text }]).most).toBeGreaterThanOrEqual(before + bytes);
        expect(estimate(messages, { instructions: text }).most).toBeGreaterThanOrEqual(before + bytes);
      }),
      { numRuns: 1_000 },
    );
  });

  test("promptTexts returns the text whose bytes the upper bound counts.", () => {
    fc.assert(
      fc.property(fc.array(message, { minLength: 1, maxLength: 5 }), fc.option(texts), (messages, instructions) => {
        const request = { model: "m", messages, ...(instructions !== null && { instructions }) };
        const bytes = promptTexts(request).reduce((sum, text) => sum + Buffer.byteLength(text), 0);
        const { likely, likelyBesideText, most } = estimatePrompt(request, LIMITS);
        expect(likely - likelyBesideText).toBe(Math.ceil(bytes / 4));
        expect(most).toBeGreaterThanOrEqual(bytes + likelyBesideText);
      }),
      { numRuns: 1_000 },
    );
  });

  test("The upper bound includes the system message of gpt-oss's template.", () => {
    expect(say("").most).toBeGreaterThan(100);
  });

  test("The estimate counts bytes, not characters.", () => {
    expect(say("日本語").most - say("").most).toBe(9);
    expect(say("abc").most - say("").most).toBe(3);
  });

  test.each<{ name: string; part: ContentPart }>([
    { name: "a file", part: { type: "file", file: { file_data: "data:application/pdf;base64,AAAA" } } },
    { name: "audio", part: { type: "input_audio", input_audio: { data: "AAAA", format: "wav" } } },
    { name: "a video", part: { type: "video_url", video_url: { url: "https://example.com/a.mp4" } } },
  ])("The bound of a prompt with $name is the context window.", ({ part }) => {
    const { least, likely, most } = estimate([{ role: "user", content: [part] }]);
    expect(most).toBe(LIMITS.contextWindow);
    expect(least).toBeLessThan(likely);
    const long = estimate([{ role: "user", content: [part, { type: "text", text: "x".repeat(300_000) }] }]);
    expect(long.most).toBeGreaterThan(300_000);
  });

  test("The bound counts everything that may become a part of the prompt.", () => {
    const added = (fields: Partial<ChatCompletionRequest>) =>
      estimate([{ role: "user", content: "go" }], fields).most - estimate([{ role: "user", content: "go" }]).most;
    const text = "x".repeat(1_000);
    expect(added({ chat_template_kwargs: { text } })).toBeGreaterThan(1_000);
    expect(added({ guided_json: { enum: [text] } })).toBeGreaterThan(1_000);
    expect(added({ guided_regex: text })).toBeGreaterThan(1_000);
    expect(added({ guided_choice: [text] })).toBeGreaterThan(1_000);
    expect(added({ guided_grammar: text })).toBeGreaterThan(1_000);
    expect(added({ web_search_options: { text } })).toBeGreaterThan(1_000);
    const details: RequestMessage[] = [
      { role: "assistant", content: "", reasoning_details: [{ type: "reasoning.text", text }] },
    ];
    expect(estimate(details).most).toBeGreaterThan(1_000);
    const refused: RequestMessage[] = [{ role: "assistant", content: [{ type: "refusal", refusal: text }] }];
    expect(estimate(refused).most).toBeGreaterThan(1_000);
  });

  test("The estimate counts tools, the system prompt before them, and a schema for the answer.", () => {
    const tool: Tool = { type: "function", function: { name: "weather", description: "Tells the weather." } };
    const messages: RequestMessage[] = [{ role: "user", content: "Hello" }];
    const bare = estimate(messages);
    const one = estimate(messages, { tools: [tool] });
    const two = estimate(messages, { tools: [tool, tool] });
    const bytes = Buffer.byteLength(JSON.stringify([tool]));
    expect(one.likely - bare.likely).toBeGreaterThanOrEqual(Math.floor(bytes / 4));
    expect(one.most - bare.most).toBeGreaterThanOrEqual(bytes + 530);
    expect(two.most - one.most).toBeGreaterThan(0);
    expect(two.most - one.most).toBeLessThan(one.most - bare.most);
    const json_schema = { name: "answer", schema: { type: "object" } };
    const shaped = estimate(messages, { response_format: { type: "json_schema", json_schema } });
    expect(shaped.most - bare.most).toBeGreaterThanOrEqual(Buffer.byteLength(JSON.stringify(json_schema)));
    expect(estimate(messages, { tools: [] })).toEqual(bare);
  });

  test("The estimate counts tool calls and their opaque provider data.", () => {
    const calling = (extra: object): RequestMessage[] => [
      {
        role: "assistant",
        tool_calls: [{ id: "call_1", type: "function", function: { name: "weather", arguments: "{}" }, ...extra }],
      },
    ];
    const plain = estimate(calling({}));
    const signed = estimate(calling({ extra_content: { signature: "s".repeat(1_000) } }));
    expect(signed.most - plain.most).toBeGreaterThanOrEqual(1_000);
    expect([signed.least, signed.likely]).toEqual([plain.least, plain.likely]);
  });

  test("Every bound counts the template tokens, even around empty text.", () => {
    const empty = (role: RequestMessage["role"]): RequestMessage => ({ role, content: "" });
    const many = estimate(Array.from({ length: 10_000 }, () => empty("user")));
    expect(many.least).toBe(10_000);
    expect(many.likely).toBeGreaterThanOrEqual(40_000);
    const tool: Tool = { type: "function", function: { name: "a" } };
    const tools = Array.from({ length: 100 }, () => tool);
    const bytes = Buffer.byteLength(JSON.stringify(tools));
    expect(estimate([empty("user")], { tools }).least).toBe(1 + 100 + Math.ceil(bytes / 16));
    const call = { id: "", type: "function" as const, function: { name: "", arguments: "" } };
    expect(estimate([{ role: "assistant", tool_calls: Array.from({ length: 50 }, () => call) }]).least).toBe(51);
  });
});

describe("tokensOfPiece", () => {
  test.each([
    ["", 0],
    ["a", 1],
    [" hello", 1],
    ["twelve bytes", 1],
    ["thirteen byte", 4],
    ["日本語日", 1],
    ["x".repeat(400), 100],
  ])("The piece %j counts as %i.", (text, tokens) => {
    expect(tokensOfPiece(Buffer.byteLength(text))).toBe(tokens);
  });

  test("A piece has at most as many tokens as bytes, and at least one.", () => {
    fc.assert(
      fc.property(texts, (text) => {
        const tokens = tokensOfPiece(Buffer.byteLength(text));
        expect(tokens <= Buffer.byteLength(text) && tokens > 0 === text.length > 0).toBe(true);
      }),
      { numRuns: 1_000 },
    );
  });
});

describe("media", () => {
  const user = (content: ContentPart[]) => estimate([{ role: "user", content }]);
  const plain = user([]);
  const bytes = (count: number) => Buffer.alloc(count).toString("base64");

  test("A prompt with a file, sound or a video is bounded by the context window.", () => {
    const media: ContentPart[] = [
      { type: "file", file: { file_data: `data:application/pdf;base64,${bytes(3_000)}` } },
      { type: "file", file: { file_url: "https://example.com/a.pdf" } },
      { type: "input_audio", input_audio: { data: bytes(750), format: "mp3" } },
      { type: "video_url", video_url: { url: `data:video/mp4;base64,${bytes(3_000_000)}` } },
    ];
    for (const part of media) {
      const one = user([part]);
      expect(one.most).toBe(LIMITS.contextWindow);
      expect(one.least - plain.least).toBe(1);
      expect(one.likely).toBeLessThan(one.most);
    }
  });

  test("Only a request with a medium can have audio tokens, and only one with a mark an hour's cache writes.", () => {
    const text = (ttl: "5m" | "1h") => ({
      type: "text" as const,
      text: "a",
      cache_control: { type: "ephemeral" as const, ttl },
    });
    expect(user([text("5m")])).toMatchObject({ hasMedia: false, hasHourCache: false });
    expect(user([text("1h")])).toMatchObject({ hasMedia: false, hasHourCache: true });
    const audio = user([{ type: "input_audio", input_audio: { data: "AAAA", format: "wav" } }]);
    expect(audio).toMatchObject({ hasMedia: true, hasHourCache: false });
    const tools: Tool[] = [
      { type: "function", function: { name: "f" }, cache_control: { type: "ephemeral", ttl: "1h" } },
    ];
    expect(estimate([], { tools }).hasHourCache).toBe(true);
  });

  test("Reasoning that a client sends back is bounded by its bytes.", () => {
    const details = [{ type: "reasoning.text" as const, format: "anthropic-claude-v1", text: "a".repeat(500) }];
    const before = estimate([{ role: "assistant", content: "" }]).most;
    const after = estimate([{ role: "assistant", content: "", reasoning_details: details }]).most;
    expect(after - before).toBe(Buffer.byteLength(JSON.stringify(details)));
  });
});

const unitPrice = fc.oneof(fc.constant(0n), fc.bigInt({ min: 1n, max: 100_000_000n }));
const further = fc.option(
  fc.record(Object.fromEntries(FURTHER_CLASSES.map((name) => [name, unitPrice])), { requiredKeys: [] }),
  { nil: undefined },
);
const needs: fc.Arbitrary<HoldNeed> = fc
  .record({
    callsMost: fc.nat(20),
    further,
    promptTokensMost: fc.integer({ min: 0, max: 1_000_000 }),
    a: fc.integer({ min: 1, max: 4_096 }),
    b: fc.integer({ min: 1, max: 4_096 }),
    prices: fc.record({
      input: unitPrice,
      cachedInput: unitPrice,
      cacheWrite: unitPrice,
      output: unitPrice,
      reasoning: unitPrice,
    }),
  })
  .map(({ a, b, further: parts, prices, ...need }) => ({
    ...need,
    prices: { ...prices, ...parts },
    outputTokensLeast: Math.min(a, b),
    outputTokensMost: Math.max(a, b),
  }));
const share = fc.integer({ min: 0, max: 1_000_000 });
const partCounts = fc.record(Object.fromEntries(FURTHER_CLASSES.map((name) => [name, share])));

describe("holdBounds", () => {
  test("The largest amount covers any usage within the need, of any classes.", () => {
    fc.assert(
      fc.property(needs, share, share, share, partCounts, (need, cached, written, reasoned, parts) => {
        const cachedInput = Math.min(cached, need.promptTokensMost);
        const cacheWrite = Math.min(written, need.promptTokensMost - cachedInput);
        const reasoning = Math.min(reasoned, need.outputTokensMost);
        const input = need.promptTokensMost - cachedInput - cacheWrite;
        const classes = { input, cachedInput, cacheWrite, reasoning, output: need.outputTokensMost - reasoning };
        const tokens = fitted({ ...classes, ...parts }, need.callsMost);
        expect(areCounts(tokens)).toBe(true);
        const { least, most } = holdBounds(need);
        expect(priceOf(tokens, need.prices) <= most && least <= most).toBe(true);
      }),
      { numRuns: 2_000 },
    );
  });

  test("Input is priced at its dearest class, and output at its own.", () => {
    const prices = {
      input: 1_000_000n,
      cachedInput: 100_000n,
      cacheWrite: 2_000_000n,
      output: 3_000_000n,
      reasoning: 0n,
    };
    const need = { promptTokensMost: 10, outputTokensLeast: 4, outputTokensMost: 100, callsMost: 0, prices };
    expect(holdBounds(need)).toEqual({ least: 32n, most: 320n });
    expect(holdBounds({ ...need, prices: FREE })).toEqual({ least: 0n, most: 0n });
    const further = { cacheWrite1h: 4_000_000n, outputAudio: 5_000_000n, requests: 7_000_000n, searches: 1_000_000n };
    const dearer = { ...need, callsMost: 3, prices: { ...prices, ...further } };
    expect(holdBounds(dearer)).toEqual({ least: 40n + 20n + 7n + 3n, most: 40n + 500n + 7n + 3n });
  });

  test("Prices of parts that a request cannot have do not count.", () => {
    const further = { cacheWrite1h: 4n, inputAudio: 5n, cachedAudio: 6n, searches: 7n, images: 8n, outputAudio: 9n };
    const prices = { ...FREE, ...further };
    const none = { hasMedia: false, hasHourCache: false, callsMost: 0 };
    expect(possiblePrices(prices, none)).toEqual({ ...FREE, outputAudio: 9n });
    expect(possiblePrices(prices, { ...none, hasMedia: true })).toEqual({
      ...FREE,
      inputAudio: 5n,
      cachedAudio: 6n,
      outputAudio: 9n,
    });
    expect(possiblePrices(prices, { ...none, hasHourCache: true })).toEqual({
      ...FREE,
      cacheWrite1h: 4n,
      outputAudio: 9n,
    });
    expect(possiblePrices(prices, { hasMedia: true, hasHourCache: true, callsMost: 1 })).toEqual(prices);
    expect(possiblePrices(FREE, none)).toBe(FREE);
  });
});

describe("affordableOutputTokens", () => {
  test("The result is the largest output that an amount covers.", () => {
    fc.assert(
      fc.property(needs, fc.bigInt({ min: 0n, max: 10n ** 11n }), (need, amount) => {
        const tokens = affordableOutputTokens(amount, need);
        expect(tokens >= 0 && tokens <= need.outputTokensMost).toBe(true);
        const costOf = (output: number) => holdBounds({ ...need, outputTokensMost: output }).most;
        if (tokens > 0) expect(costOf(tokens)).toBeLessThanOrEqual(amount);
        if (tokens < need.outputTokensMost) expect(costOf(tokens + 1)).toBeGreaterThan(amount);
      }),
      { numRuns: 2_000 },
    );
  });

  test("The largest hold covers all output of the need, and the least hold enough.", () => {
    fc.assert(
      fc.property(needs, (need) => {
        const { least, most } = holdBounds(need);
        expect(affordableOutputTokens(most, need)).toBe(need.outputTokensMost);
        expect(affordableOutputTokens(least, need)).toBeGreaterThanOrEqual(need.outputTokensLeast);
      }),
      { numRuns: 2_000 },
    );
  });

  test("The result is 0 if the input is not covered, and everything if output is free.", () => {
    const prices = { ...FREE, input: 1_000_000n };
    const need = { promptTokensMost: 10, outputTokensLeast: 1, outputTokensMost: 100, callsMost: 0, prices };
    expect(affordableOutputTokens(9n, need)).toBe(0);
    expect(affordableOutputTokens(10n, need)).toBe(100);
    expect(priceOf({ ...NO_TOKENS, input: 10, output: 100 }, prices)).toBe(10n);
  });
});
