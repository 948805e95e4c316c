import { expect, test } from "vitest";
import { AnswerFold } from "./answer-fold.ts";
import type { Delta } from "./chat/completion.ts";

test("Log probabilities are joined; invalid ones are skipped.", () => {
  const fold = new AnswerFold();
  fold.add([
    { logprobs: { content: [{ token: "a" }], refusal: null } },
    { logprobs: { content: {}, refusal: 7 } },
    { logprobs: 3 },
    { logprobs: { content: [{ token: "b" }] } },
  ]);
  expect(fold.logprobs).toEqual({ content: [{ token: "a" }, { token: "b" }], refusal: null });
});

test("Very many log probabilities are joined, in many pieces and in one.", () => {
  const fold = new AnswerFold();
  const many = Array.from({ length: 300_000 }, () => ({}));
  for (const one of many) fold.add([{ logprobs: { content: [one] } }]);
  fold.add([{ logprobs: { content: many } }]);
  expect(fold.logprobs).toMatchObject({ content: { length: 600_000 } });
});

test("Parts of a reasoning detail are joined; others with the same index, and those without one, are not.", () => {
  const fold = new AnswerFold();
  const text = { type: "reasoning.text", index: 0, text: "They ask ", signature: null };
  const sealed = { type: "reasoning.encrypted", data: "ab" };
  const parts: object[][] = [[text], [{ type: "reasoning.summary", index: 0, summary: "A" }, sealed], [sealed]];
  parts.push([{ ...text, text: "for Bern." }], [{ type: "reasoning.text", index: 0, signature: "s" }]);
  for (const reasoning_details of parts) fold.add([{ delta: { reasoning_details } as Delta }]);
  expect(fold.message().reasoning_details).toEqual([
    { ...text, text: "They ask for Bern.", signature: "s" },
    { type: "reasoning.summary", index: 0, summary: "A" },
    sealed,
    sealed,
  ]);
  expect(text.text).toBe("They ask ");
});
