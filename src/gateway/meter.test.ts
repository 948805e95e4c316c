import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { areCounts } from "../credits/price.ts";
import type { UpstreamChunk } from "../providers/provider.ts";
import { Meter, reportedTokens, usageOf } from "./meter.ts";

describe("reportedTokens", () => {
  test("OpenAI's counters are split into disjoint classes.", () => {
    const usage = {
      prompt_tokens: 100,
      completion_tokens: 50,
      cached_tokens: 30,
      cache_write_tokens: 5,
      reasoning_tokens: 20,
    };
    expect(reportedTokens(usage)).toEqual({ input: 65, cachedInput: 30, cacheWrite: 5, output: 30, reasoning: 20 });
  });

  test.each([
    ["absent", undefined],
    ["null", null],
    ["negative", -1],
    ["NaN", Number.NaN],
    ["a fraction", 1.5],
    ["text", "12"],
    ["infinite", Number.POSITIVE_INFINITY],
  ])("A report with a counter that is %s is rejected.", (_name, value) => {
    expect(reportedTokens({ prompt_tokens: value, completion_tokens: 1 })).toBeUndefined();
    expect(reportedTokens({ prompt_tokens: 1, completion_tokens: value })).toBeUndefined();
  });

  test("A report with a part above its whole is rejected.", () => {
    expect(reportedTokens({ prompt_tokens: 5, completion_tokens: 5, cached_tokens: 6 })).toBeUndefined();
    expect(
      reportedTokens({ prompt_tokens: 5, completion_tokens: 5, cached_tokens: 3, cache_write_tokens: 3 }),
    ).toBeUndefined();
    expect(reportedTokens({ prompt_tokens: 5, completion_tokens: 5, reasoning_tokens: 6 })).toBeUndefined();
  });

  test("A report may have any integers, and zeros, but not only zeros.", () => {
    expect(reportedTokens({ prompt_tokens: 0, completion_tokens: 1 })).toMatchObject({ input: 0, output: 1 });
    expect(reportedTokens({ prompt_tokens: 0, completion_tokens: 0 })).toBeUndefined();
    for (const large of [10_000_001, 2 ** 31, 2 ** 53 + 2, 2 ** 63]) {
      expect(reportedTokens({ prompt_tokens: large, completion_tokens: 0 })).toMatchObject({ input: large });
    }
  });
});

describe("parts and calls", () => {
  const usage = {
    prompt_tokens: 100,
    completion_tokens: 50,
    cached_tokens: 30,
    cache_write_tokens: 25,
    cache_write_1h_tokens: 20,
    input_audio_tokens: 15,
    cached_audio_tokens: 5,
    input_image_tokens: 7,
    reasoning_tokens: 20,
    output_audio_tokens: 8,
    output_image_tokens: 9,
    searches: 2,
    images: 1,
  };
  const further = {
    cacheWrite1h: 20,
    cachedAudio: 5,
    inputAudio: 10,
    inputImage: 7,
    outputAudio: 8,
    outputImage: 9,
    searches: 2,
    images: 1,
  };

  test("Parts are counted within their classes, and formatted as they came.", () => {
    const tokens = reportedTokens(usage);
    expect(tokens).toEqual({ input: 45, cachedInput: 30, cacheWrite: 25, output: 30, reasoning: 20, ...further });
    expect(tokens && usageOf(tokens, 1n)).toEqual({
      prompt_tokens: 100,
      completion_tokens: 50,
      total_tokens: 150,
      prompt_tokens_details: {
        cached_tokens: 30,
        cache_write_tokens: 25,
        cache_write_1h_tokens: 20,
        audio_tokens: 15,
        cached_audio_tokens: 5,
        image_tokens: 7,
      },
      completion_tokens_details: { reasoning_tokens: 20, audio_tokens: 8, image_tokens: 9 },
      calls: { searches: 2, images: 1 },
      cost: 0.000001,
    });
  });

  test("A part of a class that is not plausible rejects the report.", () => {
    expect(reportedTokens({ ...usage, cache_write_1h_tokens: 26 })).toBeUndefined();
    expect(reportedTokens({ ...usage, cached_audio_tokens: 16 })).toBeUndefined();
    expect(reportedTokens({ ...usage, searches: -1 })).toBeUndefined();
    expect(reportedTokens({ ...usage, output_audio_tokens: "8" })).toBeUndefined();
  });

  test("Whatever an upstream reports, the classes are disjoint and no part is above its class.", () => {
    const count = fc.nat(60);
    const names = Object.keys(usage) as (keyof typeof usage)[];
    const reports = fc.record(Object.fromEntries(names.map((name) => [name, count])));
    let read = 0;
    fc.assert(
      fc.property(reports, (report) => {
        const tokens = reportedTokens(report);
        if (tokens === undefined) return;
        read += 1;
        expect(areCounts(tokens)).toBe(true);
        expect(tokens.input + tokens.cachedInput + tokens.cacheWrite).toBe(report.prompt_tokens);
        expect(tokens.output + tokens.reasoning).toBe(report.completion_tokens);
        const back = usageOf(tokens, 0n);
        expect([back.prompt_tokens, back.completion_tokens]).toEqual([report.prompt_tokens, report.completion_tokens]);
      }),
      { numRuns: 5_000 },
    );
    expect(read).toBeGreaterThan(0);
  });
});

describe("Meter", () => {
  test("A meter keeps the text by class and estimates its tokens from its pieces.", () => {
    const meter = new Meter(4_096);
    meter.add([{ delta: { role: "assistant", content: "" } }]);
    expect(meter.hasContent).toBe(false);
    meter.add([{ delta: { content: "one " } }]);
    expect(meter.hasContent).toBe(true);
    meter.add([{ delta: { reasoning_content: "hm " } }, { delta: { content: "x".repeat(40) } }]);
    meter.add([{ delta: { tool_calls: [{ index: 0, id: "c", function: { name: "f", arguments: "{}" } }] } }]);
    meter.add([{ finish_reason: "stop" }]);
    expect(meter.choices.reasons).toEqual(["stop"]);
    expect([meter.output.roughTokens, meter.reasoning.roughTokens]).toEqual([1 + 10 + 2, 1]);
    expect([meter.output.text(), meter.reasoning.text()]).toEqual([`one ${"x".repeat(40)}f{}`, "hm "]);
    expect(meter.report()).toBeUndefined();
  });

  test("A tool call is content even before its name and arguments.", () => {
    const meter = new Meter(4_096);
    meter.add([{ delta: { tool_calls: [{ index: 0, id: "c" }] } }]);
    expect(meter.hasContent).toBe(true);
  });

  test("A text is kept whole up to 16 KiB, and its count is scaled beyond.", () => {
    fc.assert(
      fc.property(fc.array(fc.string({ unit: "grapheme", maxLength: 2_000 }), { maxLength: 50 }), (pieces) => {
        const meter = new Meter(4_096);
        for (const content of pieces) meter.add([{ delta: { content } }]);
        const whole = pieces.join("");
        expect(meter.output.bytes).toBe(Buffer.byteLength(whole));
        expect(whole.startsWith(meter.output.text())).toBe(true);
        if (meter.output.bytes <= 16 * 1024) expect(meter.output.text()).toBe(whole);
      }),
      { numRuns: 200 },
    );
    const long = new Meter(4_096);
    for (let i = 0; i < 100; i += 1) long.add([{ delta: { content: "x".repeat(8 * 1024) } }]);
    expect(long.output.text().length).toBe(16 * 1024);
    expect(long.output.scaled(1_000)).toBe(50_000);
  });

  test("A report is final only while nothing that the client receives follows it.", () => {
    const meter = new Meter(4_096);
    meter.add([{ delta: { content: "one " }, usage: { prompt_tokens: 9, completion_tokens: 1 } }]);
    expect(meter.report()).toMatchObject({ isFinal: true, tokens: { input: 9, output: 1 } });
    meter.add([{ delta: { content: "two " } }, { delta: { reasoning_content: "hm " } }]);
    expect(meter.report()).toMatchObject({ isFinal: false, tokens: { input: 9, output: 1 } });
    meter.add([{ usage: { prompt_tokens: 9, completion_tokens: 5, reasoning_tokens: 2 } }]);
    expect(meter.report()).toMatchObject({ isFinal: true, tokens: { input: 9, output: 3, reasoning: 2 } });
    meter.add([{ delta: { content: "three " } }, { finish_reason: "stop" }]);
    expect(meter.report()).toMatchObject({ isFinal: false, tokens: { input: 9, output: 3, reasoning: 2 } });
    meter.add([{ usage: { prompt_tokens: 9, completion_tokens: 9 } }]);
    expect(meter.report()).toMatchObject({ isFinal: true });
    meter.add([{ delta: { annotations: [{ url: "https://example.org" }] } }]);
    expect(meter.report()).toMatchObject({ isFinal: false });
    meter.add([{ usage: { prompt_tokens: 9, completion_tokens: -2 } }]);
    expect(meter.report()).toBeUndefined();
  });

  test("Tokens are formatted as OpenAI's usage.", () => {
    const tokens = { input: 65, cachedInput: 30, cacheWrite: 5, output: 30, reasoning: 20 };
    expect(usageOf(tokens, 1_500_000n)).toEqual({
      prompt_tokens: 100,
      completion_tokens: 50,
      total_tokens: 150,
      prompt_tokens_details: { cached_tokens: 30, cache_write_tokens: 5 },
      completion_tokens_details: { reasoning_tokens: 20 },
      cost: 1.5,
    });
  });
});

describe("the provider's own record", () => {
  const recordOf = (chunks: UpstreamChunk[]) => {
    const meter = new Meter(100);
    meter.add(chunks);
    return meter.providerRecord;
  };

  test("The record is empty where the provider states nothing.", () => {
    expect(recordOf([{ usage: { prompt_tokens: 1, completion_tokens: 1 } }])).toEqual({
      providerResponseId: null,
      providerCost: null,
    });
  });

  test("The record has an id that a database can store.", () => {
    expect(recordOf([{ responseId: "gen\u0000-1\ud800" }]).providerResponseId).toBe("gen\ufffd-1\ufffd");
    expect(recordOf([{ responseId: "x".repeat(10_000) }]).providerResponseId).toHaveLength(201);
  });

  test.each([
    [0, "0"],
    [0.00001234, "0.00001234"],
    [1e-7, "0.0000001"],
    [12, "12"],
    [100, "100"],
    ["0.5", "0.5"],
    [-1, null],
    [3.75e-8, "0.0000000375"],
    [1e-11, "0"],
    [1000, "1000"],
    [1000.01, null],
    [Number.NaN, null],
    [Number.POSITIVE_INFINITY, null],
    ["", null],
    ["free", null],
    [true, null],
    [{}, null],
    [null, null],
  ])("The cost %j is recorded as %j.", (cost, expected) => {
    expect(recordOf([{ usage: { prompt_tokens: 1, completion_tokens: 1, cost } }]).providerCost).toBe(expected);
  });
});
