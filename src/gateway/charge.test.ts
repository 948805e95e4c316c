import fc from "fast-check";
import { afterAll, describe, expect, test } from "vitest";
import { keepLog } from "../../test/support/log.ts";
import type { Capability } from "../api/model.ts";
import { FURTHER_CLASSES, TOKEN_CLASSES } from "../api/price-classes.ts";
import type { Route } from "../catalog/model.ts";
import { estimatePrompt, holdBounds } from "../credits/estimate.ts";
import { areCounts, FREE, NO_TOKENS, priceOf } from "../credits/price.ts";
import type { UpstreamUsage } from "../providers/provider.ts";
import { type Charged, chargeOf, OutputRates, roughCharge, tokenBoundsOf, within } from "./charge.ts";
import { Meter } from "./meter.ts";
import { TokenCounter } from "./token-counter.ts";

const counter = new TokenCounter({ log: keepLog() });
const tokenCounter = counter.forCharges("org_a");
afterAll(() => counter.stop());

const PRICES = { ...FREE, input: 1n, cachedInput: 1n, cacheWrite: 2n, output: 5n, reasoning: 7n };
const ROUTE: Route = { providerId: "up", model: "m", prices: PRICES };
const LIMITS = { contextWindow: 10_000, maxOutputTokens: 4_000, imageTokensMax: 0 };
const MODEL = { capabilities: new Set<Capability>() };
const REQUEST = { model: "m", messages: [{ role: "user" as const, content: "go" }] };
const ESTIMATE = estimatePrompt(REQUEST, LIMITS);

interface Case extends Partial<Omit<Charged, "meter" | "plan"> & Charged["plan"]> {
  maxTokens?: number;
  usage?: UpstreamUsage;
  content?: readonly string[];
  reasoning?: readonly string[];
  isEnded?: boolean;
  rates?: OutputRates;
}

function chargedOf(one: Case): Charged & { meter: Meter } {
  const { maxTokens = 4_000, usage, content = [], reasoning = [], isEnded = true, ...rest } = one;
  const meter = new Meter(maxTokens);
  for (const piece of reasoning) meter.add([{ delta: { reasoning_content: piece } }]);
  for (const piece of content) meter.add([{ delta: { content: piece } }]);
  if (isEnded) meter.add([{ finish_reason: "stop" }]);
  if (usage !== undefined) meter.add([{ usage }]);
  const { model = MODEL, estimate = ESTIMATE, isStreamed = true, isInputOnly = false, ...others } = rest;
  const plan = { model, estimate, isStreamed, isInputOnly, promptTexts: rest.promptTexts ?? (() => ["go"]) };
  const bounds = tokenBoundsOf(LIMITS, others.route ?? ROUTE, estimate, maxTokens);
  return { plan, route: ROUTE, prices: PRICES, bounds, meter, isClientDisconnected: false, elapsedMs: 0, ...others };
}

function charge(one: Case) {
  const outputRates = one.rates ?? new OutputRates();
  return chargeOf({ tokenCounter, outputRates }, chargedOf(one));
}

const WORDS = Array<string>(1_000).fill(" word");

describe("the bounds of a charge", () => {
  const count = fc.oneof(fc.nat(300), fc.nat(20_000), fc.constantFrom(2 ** 31, 2 ** 53 + 2, 2 ** 63));
  const counts = fc.record({ input: count, cachedInput: count, cacheWrite: count, output: count, reasoning: count });
  const price = fc.bigInt(0n, 10n ** 9n);
  const parts = Object.fromEntries(FURTHER_CLASSES.map((name) => [name, price]));
  const prices = fc.record(
    { input: price, cachedInput: price, cacheWrite: price, output: price, reasoning: price, ...parts },
    { requiredKeys: ["input", "cachedInput", "cacheWrite", "output", "reasoning"] },
  );

  test("No report costs more than the hold, at any prices and bounds.", () => {
    fc.assert(
      fc.property(counts, prices, fc.nat(20_000), fc.nat(20_000), (reported, unitPrices, prompt, completion) => {
        const tokens = within(reported, { prompt, completion, calls: 0 });
        for (const tokenClass of TOKEN_CLASSES) {
          expect(tokens[tokenClass]).toBeLessThanOrEqual(reported[tokenClass]);
          expect(Number.isSafeInteger(tokens[tokenClass]) && tokens[tokenClass] >= 0).toBe(true);
        }
        const need = {
          promptTokensMost: prompt,
          outputTokensLeast: 0,
          outputTokensMost: completion,
          callsMost: 0,
          prices: unitPrices,
        };
        expect(priceOf(tokens, unitPrices) <= holdBounds(need).most).toBe(true);
      }),
      { numRuns: 2_000 },
    );
  });

  test("A report within the bounds is charged as it is, also one with parts of 0.", () => {
    const reported = { input: 3, cachedInput: 1, cacheWrite: 0, output: 2, reasoning: 0, outputAudio: 0, searches: 0 };
    expect(within(reported, { prompt: 4, completion: 2, calls: 1 })).toBe(reported);
  });

  test.each([1e300, Number.POSITIVE_INFINITY])("A report of %d calls without a price can be booked.", (calls) => {
    const reported = { ...NO_TOKENS, input: 3, searches: calls, images: calls, seconds: calls };
    expect(areCounts(within(reported, { prompt: 4, completion: 2, calls: 0 }))).toBe(true);
  });

  test("No charge costs more than the hold, whether reported, counted, estimated or rough.", async () => {
    const usage = fc.option(
      fc.record({
        prompt_tokens: fc.oneof(count, fc.constantFrom(-1, 1.5, "3")),
        completion_tokens: count,
        cached_tokens: fc.oneof(fc.nat(50), count),
        cache_write_tokens: fc.nat(50),
        cache_write_1h_tokens: fc.nat(50),
        input_audio_tokens: fc.nat(50),
        cached_audio_tokens: fc.nat(5),
        input_image_tokens: fc.nat(50),
        reasoning_tokens: fc.oneof(fc.nat(50), count),
        output_audio_tokens: fc.nat(50),
        output_image_tokens: fc.nat(50),
        searches: fc.oneof(fc.nat(5), count),
        images: fc.nat(5),
      }),
      { nil: undefined },
    );
    const given = fc.record({
      usage,
      unitPrices: prices,
      maxTokens: fc.integer({ min: 1, max: 3_000 }),
      content: fc.array(fc.string({ unit: "binary", maxLength: 500 }), { maxLength: 10 }),
      reasoning: fc.array(fc.string({ maxLength: 100 }), { maxLength: 2 }),
      isEnded: fc.boolean(),
      isClientDisconnected: fc.boolean(),
      isStreamed: fc.boolean(),
      elapsedMs: fc.integer({ min: -10, max: 10 ** 7 }),
      runsTools: fc.boolean(),
      callsMost: fc.integer({ min: 1, max: 4 }),
      countsReasoningBeside: fc.boolean(),
    });
    await fc.assert(
      fc.asyncProperty(given, async ({ usage, unitPrices, runsTools, callsMost, countsReasoningBeside, ...rest }) => {
        const route = { ...ROUTE, runsTools, callsMost, countsReasoningBeside };
        const one = { ...rest, route, prices: unitPrices, ...(usage && { usage: usage as UpstreamUsage }) };
        const { bounds, meter } = chargedOf(one);
        const need = {
          promptTokensMost: bounds.prompt,
          outputTokensLeast: 0,
          outputTokensMost: bounds.completion,
          callsMost: bounds.calls,
          prices: unitPrices,
        };
        const { most } = holdBounds(need);
        expect(priceOf((await charge(one)).tokens, unitPrices) <= most).toBe(true);
        expect(priceOf(roughCharge(meter, ESTIMATE, bounds).tokens, unitPrices) <= most).toBe(true);
      }),
      { numRuns: 300 },
    );
  });

  test("A report above max_tokens is charged at max_tokens and recorded.", async () => {
    const usage = { prompt_tokens: 8, completion_tokens: 9_999_999 };
    expect(await charge({ maxTokens: 10, content: [" word"], usage })).toEqual({
      tokens: { input: 8, cachedInput: 0, cacheWrite: 0, output: 10, reasoning: 0 },
      basis: "bounded",
      reported: { input: 8, cachedInput: 0, cacheWrite: 0, output: 9_999_999, reasoning: 0 },
    });
  });

  test("A prompt above the estimate is charged at the estimate, its cached part first.", async () => {
    const usage = { prompt_tokens: 9_999, completion_tokens: 1, cached_tokens: 100 };
    const { most } = ESTIMATE;
    const { tokens, basis } = await charge({ content: ["a"], usage });
    expect({ tokens, basis }).toMatchObject({ basis: "bounded", tokens: { cachedInput: 100, input: most - 100 } });
  });

  test("A provider that runs tools may fill the context window, and one that counts reasoning beside max_tokens the model's maximum.", async () => {
    const usage = { prompt_tokens: 9_999, completion_tokens: 3_999, reasoning_tokens: 3_998 };
    const route = { ...ROUTE, runsTools: true, countsReasoningBeside: true };
    expect(await charge({ maxTokens: 10, content: ["a"], usage, route })).toMatchObject({
      basis: "reported",
      tokens: { input: 9_999, output: 1, reasoning: 3_998 },
      reported: null,
    });
  });
});

describe("a report that is too low", () => {
  test("A report of one token for a thousand words is replaced by the count.", async () => {
    expect(await charge({ content: WORDS, usage: { prompt_tokens: 9, completion_tokens: 1 } })).toMatchObject({
      basis: "counted",
      tokens: { input: 9, output: 1_000 },
      reported: { output: 1 },
    });
  });

  test("A report is accepted where it is at least half of the count, or at most 64 tokens below it.", async () => {
    const believed = (completion_tokens: number, words: number) =>
      charge({ content: WORDS.slice(0, words), usage: { prompt_tokens: 9, completion_tokens } });
    expect(await believed(500, 1_000)).toMatchObject({ basis: "reported", tokens: { output: 500 } });
    expect(await believed(499, 1_000)).toMatchObject({ basis: "counted", tokens: { output: 1_000 } });
    expect(await believed(1, 65)).toMatchObject({ basis: "reported", tokens: { output: 1 } });
    expect(await believed(1, 66)).toMatchObject({ basis: "counted", tokens: { output: 66 } });
  });

  test("A report is compared with the tokens of the whole text, not of its pieces.", async () => {
    const content = Array.from("a".repeat(4_000));
    const usage = { prompt_tokens: 9, completion_tokens: 450 };
    expect(await charge({ content, usage })).toMatchObject({ basis: "reported", tokens: { output: 450 } });
  });

  test("A low report of the prompt is accepted.", async () => {
    const request = { model: "m", messages: [{ role: "user" as const, content: " word".repeat(1_000) }] };
    const usage = { prompt_tokens: 1, completion_tokens: 1 };
    const one = { request, estimate: estimatePrompt(request, LIMITS), content: ["a"], usage };
    expect(await charge(one)).toMatchObject({ basis: "reported", tokens: { input: 1 } });
  });
});

describe("without a usable report", () => {
  test("A dense prompt is charged by the tokenizer, not by its bytes.", async () => {
    const text = Array.from({ length: 2_000 }, (_, i) => String.fromCharCode(33 + ((i * 7) % 90))).join("");
    const request = { model: "m", messages: [{ role: "user" as const, content: text }] };
    const estimate = estimatePrompt(request, LIMITS);
    const { tokens, basis } = await charge({ promptTexts: () => [text], estimate, content: WORDS });
    expect(basis).toBe("counted");
    expect(tokens.output).toBe(1_000);
    expect(tokens.input).toBeGreaterThan(2 * estimate.likely);
    expect(tokens.input).toBeLessThanOrEqual(estimate.most);
  });

  test("An incomplete answer is charged the reported prompt and the text after the report.", async () => {
    const one = chargedOf({ isEnded: false });
    one.meter.add([{ usage: { prompt_tokens: 100, completion_tokens: 1, cached_tokens: 60 } }]);
    for (const content of WORDS) one.meter.add([{ delta: { content } }]);
    expect(await chargeOf({ tokenCounter, outputRates: new OutputRates() }, one)).toMatchObject({
      basis: "counted",
      tokens: { input: 40, cachedInput: 60, output: 1_000 },
    });
  });

  test("Without a tokenizer tokens are estimated from bytes, and a low report is accepted.", async () => {
    const outputRates = new OutputRates();
    const gateway = { tokenCounter: { count: () => Promise.resolve(undefined) }, outputRates };
    const counted = await chargeOf(gateway, chargedOf({ content: WORDS }));
    expect(counted).toMatchObject({ basis: "counted", tokens: { input: ESTIMATE.likely, output: 1_000 } });
    const usage = { prompt_tokens: 9, completion_tokens: 1 };
    expect(await chargeOf(gateway, chargedOf({ content: WORDS, usage }))).toMatchObject({ basis: "reported" });
  });

  test("A free request is not tokenized.", async () => {
    const count = () => Promise.reject(new Error("The tokenizer was called"));
    const gateway = { tokenCounter: { count }, outputRates: new OutputRates() };
    const free = await chargeOf(gateway, chargedOf({ content: WORDS, prices: FREE }));
    expect(free.tokens.output).toBe(1_000);
  });
});

describe("invisible output after the client disconnected", () => {
  const left = { isClientDisconnected: true, isEnded: false, elapsedMs: 10_000 };
  const reasoner = { capabilities: new Set<Capability>(["reasoning"]) };

  test("The output of an unstreamed answer is estimated at 50 tokens per second.", async () => {
    expect(await charge({ ...left, isStreamed: false })).toMatchObject({ basis: "estimated", tokens: { output: 500 } });
  });

  test("The hidden reasoning of a stream is estimated.", async () => {
    expect(await charge({ ...left, model: reasoner, content: [" word"] })).toMatchObject({
      basis: "estimated",
      tokens: { output: 1, reasoning: 499 },
    });
  });

  test("The estimate of a model that reasons is not replaced by a visible part of its reasoning.", async () => {
    const shown = { ...left, model: reasoner, reasoning: [" Let me think."] };
    const hidden = { ...left, model: reasoner };
    const { tokens, basis } = await charge(hidden);
    expect(basis).toBe("estimated");
    expect(await charge(shown)).toEqual({ basis, tokens, reported: null });
  });

  test("A model that shows reasoning counts as one that reasons, although the catalog does not know it.", async () => {
    expect(await charge({ ...left, reasoning: [" Let me think."] })).toMatchObject({
      basis: "estimated",
      tokens: { output: 0, reasoning: 500 },
    });
  });

  test("Output is not estimated where the model does not reason, or the usage of the whole answer has arrived.", async () => {
    expect(await charge({ ...left, content: [" word"] })).toMatchObject({ basis: "counted", tokens: { output: 1 } });
    const ended = { ...left, isEnded: true, isStreamed: false, content: [" word"] };
    const usage = { prompt_tokens: 9, completion_tokens: 1 };
    expect(await charge({ ...ended, usage })).toMatchObject({ basis: "reported", tokens: { output: 1 } });
    expect(await charge({ ...left, isClientDisconnected: false, isStreamed: false })).toMatchObject({
      basis: "counted",
    });
  });

  test("The output of several choices is estimated as that of one, unless the upstream is known to write them.", async () => {
    const rates = new OutputRates();
    const one = { ...left, isStreamed: false, rates, estimate: { ...ESTIMATE, choices: 3 } };
    expect(await charge(one)).toMatchObject({ basis: "estimated", tokens: { output: 500 } });
    const answer = { upstream: "up/m", organizationId: "org_b", tokens: 9, durationMs: 1_000 };
    rates.note({ ...answer, choicesAsked: 2, choices: 2 });
    expect(await charge(one)).toMatchObject({ basis: "estimated", tokens: { output: 1_500 } });
  });

  test("Choices that a stream shows are estimated, also of an upstream that is not known to write several.", async () => {
    const one = chargedOf({ ...left, model: reasoner, estimate: { ...ESTIMATE, choices: 3 } });
    for (const index of [0, 1]) one.meter.add([{ index, delta: { content: " word" } }]);
    expect(await chargeOf({ tokenCounter, outputRates: new OutputRates() }, one)).toMatchObject({
      basis: "estimated",
      tokens: { output: 2, reasoning: 998 },
    });
  });

  test("A report is not final before all choices of the request have finished.", async () => {
    const one = chargedOf({ ...left, model: reasoner, isEnded: true, estimate: { ...ESTIMATE, choices: 2 } });
    one.meter.add([{ usage: { prompt_tokens: 9, completion_tokens: 1 } }]);
    const gateway = { tokenCounter, outputRates: new OutputRates() };
    expect(await chargeOf(gateway, one)).toMatchObject({ basis: "estimated", tokens: { input: 9, reasoning: 499 } });
    one.meter.add([{ index: 1, delta: {} }, { usage: { prompt_tokens: 9, completion_tokens: 2 } }]);
    expect(await chargeOf(gateway, one)).toMatchObject({ basis: "estimated" });
    one.meter.add([{ index: 1, finish_reason: "stop" }]);
    expect(await chargeOf(gateway, one)).toMatchObject({ basis: "reported", tokens: { output: 2 } });
  });

  test("An estimate is at most the hold, and never below the count.", async () => {
    const far = { ...left, elapsedMs: 10 ** 9, isStreamed: false };
    expect(await charge({ ...far, maxTokens: 20 })).toMatchObject({ basis: "estimated", tokens: { output: 20 } });
    const seen = { ...left, model: reasoner, elapsedMs: 1_000, content: WORDS };
    expect(await charge(seen)).toMatchObject({ basis: "counted", tokens: { output: 1_000, reasoning: 0 } });
  });
});
