import { expect, test } from "vitest";
import { AnswerFold } from "./answer-fold.ts";

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
