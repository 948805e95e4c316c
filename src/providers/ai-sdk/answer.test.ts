import type { LanguageModelV4FinishReason, LanguageModelV4Usage } from "@ai-sdk/provider";
import { describe, expect, test } from "vitest";
import { Meter } from "../../gateway/meter.ts";
import type { UpstreamChunk } from "../provider.ts";
import { AnswerReader } from "./answer.ts";
import { CLAUDE_REASONING } from "./reasoning.ts";

const WIRE = { metadataKey: "anthropic", reasoning: CLAUDE_REASONING };
const counted = (total: number | undefined, output: number | undefined): LanguageModelV4Usage => ({
  inputTokens: { total, noCache: total, cacheRead: undefined, cacheWrite: undefined },
  outputTokens: { total: output, text: output, reasoning: undefined },
});
const finish = (unified: LanguageModelV4FinishReason["unified"], raw: string | undefined, usage = counted(3, 1)) =>
  new AnswerReader(WIRE).readPart({ type: "finish", finishReason: { unified, raw }, usage });

describe("Usage", () => {
  test("is reported as the package counted it.", () => {
    expect(finish("stop", "end_turn")?.usage).toEqual({ prompt_tokens: 3, completion_tokens: 1 });
  });

  test.each([
    ["nothing", undefined, undefined],
    ["no answer", 3, undefined],
    ["no prompt, which cannot be", 0, 1],
  ])("is left out if there is %s.", (_what, prompt, completion) => {
    expect(finish("stop", "end_turn", counted(prompt, completion))).toEqual({ finish_reason: "stop" });
  });
});

describe("The end of an answer", () => {
  test.each([
    ["stop", "end_turn", "stop"],
    ["length", "max_tokens", "length"],
    ["tool-calls", "tool_use", "tool_calls"],
    ["content-filter", "refusal", "content_filter"],
    ["other", "compaction", "stop"],
    ["other", "safety", "content_filter"],
  ] as const)("%s, %s: %s", (unified, raw, reason) => {
    expect(finish(unified, raw)?.finish_reason).toBe(reason);
  });

  test.each([
    ["other", undefined],
    ["interrupted", undefined],
    ["error", "MALFORMED_FUNCTION_CALL"],
    ["interrupted", "x"],
  ] as const)("%s, %s: a failure", (unified, raw) => {
    expect(() => finish(unified, raw)).toThrow(expect.objectContaining({ failure: "failed" }));
  });
});

describe("A tool call", () => {
  const call = { type: "tool-call" as const, toolCallId: "a", toolName: "f", input: '{"x":1}' };
  const told = (reader: AnswerReader, part: Parameters<AnswerReader["readPart"]>[0]) =>
    reader.readPart(part)?.delta?.tool_calls?.[0];

  test("that arrives whole is sent whole.", () => {
    expect(told(new AnswerReader(WIRE), call)).toEqual({
      index: 0,
      id: "a",
      type: "function",
      function: { name: "f", arguments: '{"x":1}' },
    });
  });

  test("that arrived in pieces is not repeated.", () => {
    const reader = new AnswerReader(WIRE);
    expect(told(reader, { type: "tool-input-start", id: "a", toolName: "f" })).toMatchObject({ index: 0, id: "a" });
    expect(told(reader, { type: "tool-input-delta", id: "a", delta: '{"x":1}' })).toEqual({
      index: 0,
      function: { arguments: '{"x":1}' },
    });
    expect(reader.readPart(call)).toBeUndefined();
  });

  test("without pieces gets its arguments at its end.", () => {
    const reader = new AnswerReader(WIRE);
    reader.readPart({ type: "tool-input-start", id: "a", toolName: "f" });
    expect(told(reader, call)).toEqual({ index: 0, function: { arguments: '{"x":1}' } });
  });

  test("with an empty or repeated id is a separate call, whole, in pieces and unstreamed.", () => {
    for (const id of ["", "same"]) {
      const reader = new AnswerReader(WIRE);
      const whole = { ...call, toolCallId: id };
      const pieces = [
        { type: "tool-input-start" as const, id, toolName: "f" },
        { type: "tool-input-delta" as const, id, delta: '{"x":1}' },
        whole,
      ];
      const deltas = [...pieces, ...pieces, whole].flatMap((part) => reader.readPart(part)?.delta?.tool_calls ?? []);
      expect(deltas.map(({ index }) => index)).toEqual([0, 0, 1, 1, 2]);
      const content = [whole, whole];
      const result = {
        content,
        finishReason: { unified: "tool-calls", raw: "tool_use" },
        usage: counted(3, 1),
      } as const;
      const chunks = new AnswerReader(WIRE).readResult({ ...result, content, warnings: [] });
      expect(chunks.flatMap(({ delta }) => delta?.tool_calls ?? []).map(({ index }) => index)).toEqual([0, 1]);
      expect(chunks.at(-1)?.finish_reason).toBe("tool_calls");
    }
  });

  test("that the provider ran itself is not sent to the caller.", () => {
    expect(new AnswerReader(WIRE).readPart({ ...call, providerExecuted: true })).toBeUndefined();
  });
});

describe("Signed reasoning is sent again at its end and with a call, and metered once:", () => {
  const providerMetadata = { anthropic: { signature: "c2lnbmVk" } };
  const call = { type: "tool-call" as const, toolCallId: "a", toolName: "f", input: "{}" };
  const expectOnce = (chunks: readonly (UpstreamChunk | undefined)[]) => {
    const sent = chunks.filter((chunk) => chunk !== undefined);
    expect(JSON.stringify(sent).match(/Thinking/g)).toHaveLength(3);
    const meter = new Meter(1_000);
    meter.add(sent);
    expect(meter.reasoning.text()).toBe("Thinking.");
    expect(meter.other.text()).not.toContain("Thinking");
    expect(meter.other.text()).toContain("c2lnbmVk");
  };

  test("streamed.", () => {
    const reader = new AnswerReader(WIRE);
    expectOnce([
      reader.readPart({ type: "reasoning-start", id: "0" }),
      reader.readPart({ type: "reasoning-delta", id: "0", delta: "Thinking" }),
      reader.readPart({ type: "reasoning-delta", id: "0", delta: "." }),
      reader.readPart({ type: "reasoning-end", id: "0", providerMetadata }),
      reader.readPart(call),
    ]);
  });

  test("unstreamed.", () => {
    const reasoning = { type: "reasoning" as const, text: "Thinking.", providerMetadata };
    const finishReason = { unified: "stop" as const, raw: "end_turn" };
    const result = { content: [reasoning, call], finishReason, usage: counted(3, 1), warnings: [] };
    expectOnce(new AnswerReader(WIRE).readResult(result));
  });
});
