import { describe, expect, test } from "vitest";
import { Meter, reportedTokens, usageOf } from "./meter.ts";

describe("reportedTokens", () => {
  test("splits OpenAI's counters into disjoint classes", () => {
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
    ["above 10^7", 10_000_001],
    ["2^31", 2 ** 31],
    ["2^53+1", 2 ** 53 + 1],
    ["2^63", 2 ** 63],
    ["infinite", Number.POSITIVE_INFINITY],
  ])("believes no counter that is %s", (_name, value) => {
    expect(reportedTokens({ prompt_tokens: value, completion_tokens: 1 })).toBeUndefined();
    expect(reportedTokens({ prompt_tokens: 1, completion_tokens: value })).toBeUndefined();
  });

  test("believes no part above its whole", () => {
    expect(reportedTokens({ prompt_tokens: 5, completion_tokens: 5, cached_tokens: 6 })).toBeUndefined();
    expect(
      reportedTokens({ prompt_tokens: 5, completion_tokens: 5, cached_tokens: 3, cache_write_tokens: 3 }),
    ).toBeUndefined();
    expect(reportedTokens({ prompt_tokens: 5, completion_tokens: 5, reasoning_tokens: 6 })).toBeUndefined();
  });

  test("zero and the largest counter are believed, but not zero for all", () => {
    expect(reportedTokens({ prompt_tokens: 0, completion_tokens: 1 })).toMatchObject({ input: 0, output: 1 });
    expect(reportedTokens({ prompt_tokens: 0, completion_tokens: 0 })).toBeUndefined();
    expect(reportedTokens({ prompt_tokens: 10_000_000, completion_tokens: 0 })).toMatchObject({ input: 10_000_000 });
  });
});

describe("a meter", () => {
  test("counts what passes where nothing is reported", () => {
    const meter = new Meter(17);
    meter.add([{ delta: { role: "assistant", content: "" } }, { delta: { content: "one " } }]);
    meter.add([{ delta: { reasoning_content: "hm " } }, { delta: { content: "x".repeat(40) } }]);
    meter.add([{ delta: { tool_calls: [{ index: 0, id: "c", function: { name: "f", arguments: "{}" } }] } }]);
    meter.add([{ finish_reason: "stop" }]);
    expect(meter.finishReason).toBe("stop");
    expect(meter.reading()).toEqual({
      tokens: { input: 17, cachedInput: 0, cacheWrite: 0, output: 1 + 10 + 2, reasoning: 1 },
      basis: "counted",
    });
  });

  test("takes the report where it can be true, and its own count where it cannot", () => {
    const meter = new Meter(17);
    meter.add([{ delta: { content: "one " } }, { usage: { prompt_tokens: 9, completion_tokens: 2 } }]);
    expect(meter.reading()).toMatchObject({ basis: "reported", tokens: { input: 9, output: 2 } });
    meter.add([{ usage: { prompt_tokens: 9, completion_tokens: -2 } }]);
    expect(meter.reading()).toMatchObject({ basis: "counted", tokens: { input: 17, output: 1 } });
  });

  test("adds to an early report what came after it, unless the answer has ended", () => {
    const meter = new Meter(17);
    meter.add([{ delta: { content: "one " }, usage: { prompt_tokens: 9, completion_tokens: 1 } }]);
    expect(meter.reading()).toMatchObject({ basis: "reported", tokens: { input: 9, output: 1 } });
    meter.add([{ delta: { content: "two " } }, { delta: { reasoning_content: "hm " } }]);
    expect(meter.reading()).toMatchObject({ basis: "counted", tokens: { input: 9, output: 2, reasoning: 1 } });
    meter.add([{ usage: { prompt_tokens: 9, completion_tokens: 5, reasoning_tokens: 2 } }]);
    expect(meter.reading()).toMatchObject({ basis: "reported", tokens: { input: 9, output: 3, reasoning: 2 } });
    meter.add([{ delta: { content: "three " } }, { finish_reason: "stop" }]);
    expect(meter.reading()).toMatchObject({ basis: "reported", tokens: { input: 9, output: 3, reasoning: 2 } });
  });

  test("usage goes back into OpenAI's shape", () => {
    const tokens = { input: 65, cachedInput: 30, cacheWrite: 5, output: 30, reasoning: 20 };
    expect(usageOf(tokens, 1_500_000n)).toEqual({
      prompt_tokens: 100,
      completion_tokens: 50,
      total_tokens: 150,
      prompt_tokens_details: { cached_tokens: 30 },
      completion_tokens_details: { reasoning_tokens: 20 },
      cost: 1.5,
    });
  });
});
