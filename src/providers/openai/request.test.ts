import { describe, expect, test } from "vitest";
import { requestOf } from "../../../test/support/wire.ts";
import { isOpenAi, toRequestBody } from "./request.ts";

const CALL = { id: "c", type: "function" as const, function: { name: "f", arguments: "{}" }, extra_content: { a: 1 } };

test.each([
  ["api.openai.com", true],
  ["eu.api.openai.com", true],
  ["api.openai.com.example", false],
  ["fakeapi.openai.com.test", false],
  ["127.0.0.1", false],
])("%s is OpenAI's own API: %s", (host, expected) => {
  expect(isOpenAi(host)).toBe(expected);
});

describe("the body", () => {
  const request = requestOf({
    messages: [
      { role: "developer", content: "be kind" },
      { role: "assistant", reasoning_content: "hm", refusal: "no", tool_calls: [CALL] },
      { role: "assistant", content: "x", reasoning_content: "hm" },
      { role: "user", content: "hello", name: "n" },
    ],
  });

  test("for OpenAI: its newer names, and no field of a message that it refuses", () => {
    const body = JSON.parse(toRequestBody(request, true));
    expect(body.max_completion_tokens).toBe(100);
    expect(body).not.toHaveProperty("max_tokens");
    const { extra_content: _others, ...call } = CALL;
    expect(body.messages).toEqual([
      { role: "developer", content: "be kind" },
      { role: "assistant", refusal: "no", tool_calls: [call] },
      { role: "assistant", content: "x" },
      { role: "user", content: "hello", name: "n" },
    ]);
  });

  test("for others: the names that all know, and what they want back", () => {
    const body = JSON.parse(toRequestBody(request, false));
    expect(body.max_tokens).toBe(100);
    expect(body).not.toHaveProperty("max_completion_tokens");
    expect(body.messages).toEqual([{ role: "system", content: "be kind" }, ...request.messages.slice(1)]);
  });
});
