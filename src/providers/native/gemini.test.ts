import { describe, expect, test } from "vitest";
import { expectCutsToFail, hearAnswer, nativeOf } from "../../../test/support/second-wire.ts";
import { NATIVE_DOCUMENT } from "../../api/answer.ts";

const SECOND = { wire: "generateContent" } as const;
const hear = (answer: object) => hearAnswer(SECOND, answer);

/** Responses as on the pages "Text generation", "Thinking" and "Function calling" of the Gemini API's guide. */
const responseOf = (parts: object[], fields: object = {}, usage: object = { promptTokenCount: 8 }) => ({
  candidates: [{ content: { parts, role: "model" }, index: 0, ...fields }],
  usageMetadata: usage,
  modelVersion: "gemini-2.5-flash",
  responseId: "wXQqafjLB4WVqtsP",
});
const USAGE = {
  promptTokenCount: 100,
  candidatesTokenCount: 18,
  thoughtsTokenCount: 12,
  cachedContentTokenCount: 40,
  promptTokensDetails: [{ modality: "TEXT", tokenCount: 100 }],
};
const CALL = { functionCall: { id: "call-1", name: "weather", args: { city: "Bern" } }, thoughtSignature: "EqoBCqcB" };
const STREAM = [
  responseOf([{ text: "They ask.", thought: true }]),
  responseOf([{ text: "Let me " }], { safetyRatings: [{ category: "HARM_CATEGORY_HARASSMENT" }] }),
  responseOf([{ text: "see." }, CALL]),
  responseOf([{ text: "", thoughtSignature: "of the text" }], { finishReason: "STOP" }, USAGE),
];

describe("An answer of the Gemini API", () => {
  test("is read as texts, reasoning, calls and usage, and passed on without what the service states itself.", async () => {
    const { chunks, text, error } = await hear(STREAM);
    expect({ text, error }).toEqual({ text: "Let me see.", error: undefined });
    expect(chunks.map(({ delta }) => delta)).toEqual([
      { reasoning_content: "They ask." },
      { content: "Let me " },
      {
        content: "see.",
        tool_calls: [
          {
            index: 0,
            id: "call-1",
            type: "function",
            function: { name: "weather", arguments: '{"city":"Bern"}' },
          },
        ],
      },
      undefined,
    ]);
    expect(chunks.at(-1)).toMatchObject({
      responseId: "wXQqafjLB4WVqtsP",
      finish_reason: "tool_calls",
      usage: { prompt_tokens: 100, completion_tokens: 30, cached_tokens: 40, reasoning_tokens: 12 },
    });
    // Those before count nothing but the prompt.
    expect(chunks.slice(0, -1).map(({ usage }) => usage)).toEqual([undefined, undefined, undefined]);
    expect(chunks.map(({ native = [] }) => native[0]?.data)).toEqual(
      STREAM.map(({ candidates }) => {
        const [{ content, ...others } = { content: { parts: [] } }] = candidates;
        return { candidates: [{ ...others, content: { parts: content.parts } }] };
      }),
    );
  });

  test("has the same content when it is not streamed.", async () => {
    const { chunks } = await hear(responseOf([{ text: "Hello" }], { finishReason: "MAX_TOKENS" }, USAGE));
    expect(chunks).toMatchObject([
      { delta: { content: "Hello" }, finish_reason: "length", native: [{ type: NATIVE_DOCUMENT }] },
    ]);
  });

  test("fails when it is cut off anywhere before its end.", async () => {
    await expectCutsToFail(SECOND, STREAM);
  });

  test.each([
    ["STOP", "stop"],
    ["SAFETY", "content_filter"],
    ["IMAGE_PROHIBITED_CONTENT", "content_filter"],
    ["SPII", "content_filter"],
    ["OTHER", "stop"],
  ])("that ends with %s has the finish reason %s.", async (finishReason, expected) => {
    const { chunks } = await hear([responseOf([{ text: "a" }], { finishReason })]);
    expect(chunks.at(-1)?.finish_reason).toBe(expected);
  });

  test("that ends with a malformed call has failed.", async () => {
    const { error } = await hear([responseOf([{ text: "a" }], { finishReason: "MALFORMED_FUNCTION_CALL" })]);
    expect(error).toMatchObject({ failure: "failed" });
  });

  test("to a prompt that was blocked is complete, and has no candidate.", async () => {
    const promptFeedback = { blockReason: "PROHIBITED_CONTENT" };
    const { chunks, error } = await hear([{ promptFeedback, usageMetadata: { promptTokenCount: 8 } }]);
    expect(error).toBeUndefined();
    expect(chunks).toMatchObject([
      {
        finish_reason: "content_filter",
        usage: { prompt_tokens: 8, completion_tokens: 0 },
        native: [{ data: { promptFeedback, candidates: [] } }],
      },
    ]);
  });

  test("counts its searches.", async () => {
    const groundingMetadata = { webSearchQueries: ["a", "b"] };
    const { chunks } = await hear([responseOf([{ text: "a" }], { finishReason: "STOP", groundingMetadata }, USAGE)]);
    expect(chunks.at(-1)?.calls).toEqual({ searches: 2 });
  });

  test("that is none is refused.", async () => {
    expect((await hear({ models: [] })).error).toMatchObject({ failure: "malformed" });
  });
});

test("A request passes with the model in its path, the bound of the gateway and the operator's key.", async () => {
  const contents = [{ parts: [{ text: "hello" }] }];
  const body = {
    contents,
    safetySettings: [{ category: "HARM_CATEGORY_HARASSMENT", threshold: "BLOCK_NONE" }],
    tools: [{ googleSearch: {} }, { functionDeclarations: [{ name: "f" }] }],
    generationConfig: { maxOutputTokens: 9_999, thinkingConfig: { thinkingBudget: 512 } },
  };
  const native = nativeOf("generateContent", { body });
  const answer = responseOf([{ text: "a" }], { finishReason: "STOP" });
  const fields = { model: "gemini-2.5-flash", max_tokens: 50 };
  const { received } = await hearAnswer(SECOND, answer, { fields, native });
  expect(received.head).toMatch(/^POST \/v1\/models\/gemini-2\.5-flash:generateContent HTTP/);
  expect(received.head.toLowerCase()).toContain("x-goog-api-key: sk-of-the-operator");
  expect(received.body).toEqual({
    ...body,
    // No search was allowed.
    tools: [{ functionDeclarations: [{ name: "f" }] }],
    generationConfig: { maxOutputTokens: 50, thinkingConfig: { thinkingBudget: 512 } },
  });
  const streamed = await hearAnswer(SECOND, [answer], { fields: { ...fields, model: "tunedModels/mine" }, native });
  expect(streamed.received.head).toMatch(/^POST \/v1\/tunedModels\/mine:streamGenerateContent\?alt=sse HTTP/);
});
