import { describe, expect, test } from "vitest";
import { requestOf } from "../../../test/support/wire.ts";
import { DEFAULT_REQUEST_FORMAT, type RequestFormat, refusedHints, toRequestBody } from "./request.ts";

const OPENAI: RequestFormat = {
  maxTokensField: "max_completion_tokens",
  acceptsDeveloperRole: true,
  acceptsNames: true,
  acceptsRefusals: true,
  reasoningField: null,
  acceptsExtraContent: false,
  encodesEmbeddings: true,
  servesTexts: false,
  fields: {},
};
const CALL = { id: "c", type: "function" as const, function: { name: "f", arguments: "{}" }, extra_content: { a: 1 } };

describe("The body", () => {
  const request = requestOf({
    messages: [
      { role: "developer", content: "be kind" },
      { role: "assistant", reasoning_content: "hm", refusal: "no", tool_calls: [CALL] },
      { role: "assistant", content: "x", reasoning_content: "hm" },
      { role: "user", content: "hello", name: "n" },
    ],
  });

  test("for OpenAI has its newer names and no message field that it refuses.", () => {
    const body = JSON.parse(toRequestBody(request, OPENAI));
    expect(body.max_completion_tokens).toBe(100);
    expect(body).not.toHaveProperty("max_tokens");
    const { extra_content: _others, ...call } = CALL;
    expect(body.messages).toEqual([
      { role: "developer", content: "be kind" },
      { role: "assistant", content: null, refusal: "no", tool_calls: [call] },
      { role: "assistant", content: "x" },
      { role: "user", content: "hello", name: "n" },
    ]);
  });

  test("has the instructions as its first message.", () => {
    const body = JSON.parse(toRequestBody(requestOf({ instructions: "be brief" }), OPENAI));
    expect(body.messages[0]).toEqual({ role: "system", content: "be brief" });
    expect(body).not.toHaveProperty("instructions");
  });

  test("for other APIs has the common names and the fields that they need back.", () => {
    const body = JSON.parse(toRequestBody(request, DEFAULT_REQUEST_FORMAT));
    expect(body.max_tokens).toBe(100);
    expect(body).not.toHaveProperty("max_completion_tokens");
    expect(body.messages).toEqual([
      { role: "system", content: "be kind" },
      { content: null, ...request.messages[1] },
      ...request.messages.slice(2),
    ]);
  });

  test.each([true, false])(
    "has an assistant's content, even if null, and its refusal if the API accepts it: %s.",
    (takes) => {
      const asked = requestOf({
        messages: [
          { role: "assistant", refusal: "no" },
          { role: "assistant", content: "a ", refusal: "no" },
          { role: "assistant", content: [{ type: "text", text: "a " }], refusal: "no" },
          { role: "assistant", tool_calls: [CALL] },
        ],
      });
      const { messages } = JSON.parse(toRequestBody(asked, { ...DEFAULT_REQUEST_FORMAT, acceptsRefusals: takes }));
      const [called] = messages.splice(3);
      expect(called).toEqual({ role: "assistant", content: null, tool_calls: [CALL] });
      expect(messages).toEqual(
        takes
          ? [{ content: null, ...asked.messages[0] }, asked.messages[1], asked.messages[2]]
          : [
              { role: "assistant", content: "no" },
              { role: "assistant", content: "a no" },
              {
                role: "assistant",
                content: [
                  { type: "text", text: "a " },
                  { type: "text", text: "no" },
                ],
              },
            ],
      );
    },
  );

  test("has another name for reasoning and no message names if the API requires it.", () => {
    const format: RequestFormat = { ...DEFAULT_REQUEST_FORMAT, reasoningField: "reasoning", acceptsNames: false };
    const { messages } = JSON.parse(toRequestBody(request, format));
    expect(messages[2]).toEqual({ role: "assistant", content: "x", reasoning: "hm" });
    expect(messages[3]).toEqual({ role: "user", content: "hello" });
    expect(refusedHints(request, format)).toEqual(["messages.name"]);
    expect(refusedHints(requestOf(), format)).toEqual([]);
  });

  test("has a budget of thinking below the bound of the answer.", () => {
    const budgetOf = (budget_tokens: number, max_tokens: number) => {
      const asked = requestOf({ max_tokens, thinking: { type: "enabled", budget_tokens } });
      return JSON.parse(toRequestBody(asked, DEFAULT_REQUEST_FORMAT)).thinking;
    };
    expect(budgetOf(3_999, 4_000)).toEqual({ type: "enabled", budget_tokens: 3_999 });
    expect(budgetOf(9_000, 4_000)).toEqual({ type: "enabled", budget_tokens: 2_000 });
    expect(budgetOf(9_000, 500)).toEqual({ type: "disabled" });
  });

  test("turns reasoning off with the API's own field.", () => {
    const format: RequestFormat = { ...DEFAULT_REQUEST_FORMAT, reasoningOff: { thinking: { type: "disabled" } } };
    const bodyFor = (effort: "none" | "low") => {
      return JSON.parse(toRequestBody(requestOf({ reasoning_effort: effort }), format));
    };
    expect(bodyFor("none")).toMatchObject({ thinking: { type: "disabled" } });
    expect(bodyFor("none")).not.toHaveProperty("reasoning_effort");
    expect(bodyFor("low")).toMatchObject({ reasoning_effort: "low" });
  });
});
