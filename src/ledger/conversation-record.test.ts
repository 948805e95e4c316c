import fc from "fast-check";
import { expect, test } from "vitest";
import type { KeptAnswer } from "../api/admin/request.ts";
import type { ChatCompletionRequest, RequestMessage } from "../api/request.ts";
import { recordOf } from "./conversation-record.ts";

const LIMIT = 2_048;
const user = (content: RequestMessage["content"]) => ({ role: "user", content }) as RequestMessage;
const answering = (message: Partial<KeptAnswer["message"]>): KeptAnswer => {
  return { message: { role: "assistant", content: null, refusal: null, ...message }, finish_reason: "stop" };
};
const kept = (request: ChatCompletionRequest, answer: KeptAnswer | null = null, limitBytes = LIMIT) => {
  const record = recordOf(request, answer, limitBytes);
  const length = Buffer.byteLength(record.request) + Buffer.byteLength(record.answer ?? "");
  expect(record.byteLength).toBe(length);
  expect(length).toBeLessThanOrEqual(limitBytes);
  return {
    ...record,
    request: JSON.parse(record.request) as ChatCompletionRequest,
    answer: JSON.parse(record.answer ?? "null") as KeptAnswer | null,
  };
};

test("what fits is kept whole", () => {
  const tools = [{ type: "function" as const, function: { name: "weather", parameters: { type: "object" } } }];
  const request = { model: "m", messages: [user("Hé\0\ud800 🦊")], temperature: 0, instructions: "Be brief.", tools };
  const answer = answering({ tool_calls: [{ id: "c", type: "function", function: { name: "f", arguments: "{}" } }] });
  expect(kept(request, answer)).toMatchObject({ request, answer, isTruncated: false });
});

test("of a long conversation the latest messages are kept, and of the one before them the beginning", () => {
  const messages = Array.from({ length: 60 }, (_, index) => user(`${index} ${"x".repeat(100)}`));
  const { request, isTruncated } = kept({ model: "m", temperature: 0.5, messages });
  expect(isTruncated).toBe(true);
  expect(request).toMatchObject({ model: "m", temperature: 0.5 });
  expect(request.messages.at(-1)).toEqual(messages.at(-1));
  expect(request.messages.length).toBeGreaterThan(10);
  const [first] = request.messages;
  const whole = messages[60 - request.messages.length];
  expect(`${whole?.content}`.startsWith(`${first?.content}`)).toBe(true);
});

test("of a single long text the beginning is kept, of characters in whole", () => {
  for (const text of ["a".repeat(9_000), "🦊".repeat(9_000), "\n".repeat(9_000), "\0".repeat(9_000)]) {
    const { request, answer } = kept({ model: "m", messages: [user(text)] }, answering({ content: text }));
    for (const content of [`${request.messages[0]?.content}`, `${answer?.message.content}`]) {
      expect(text.startsWith(content) && content.isWellFormed()).toBe(true);
      expect(Buffer.byteLength(JSON.stringify(content))).toBeGreaterThan(LIMIT / 4);
    }
    expect(answer?.finish_reason).toBe("stop");
  }
});

test("of fields that are too long the shorter ones are kept, and instructions are cut", () => {
  const tool = { type: "function" as const, function: { name: "weather", description: "d".repeat(3_000) } };
  const long = { model: "m", seed: 7, tools: [tool], instructions: "i".repeat(3_000), messages: [user("Hello")] };
  const { request } = kept(long);
  expect(request).toMatchObject({ model: "m", seed: 7, messages: long.messages });
  expect(request.tools).toBeUndefined();
  expect(request.instructions).toMatch(/^i{500,}$/);
});

test("a message of many small pieces is kept without them", () => {
  const calls = Array.from({ length: 300 }, (_, index) => {
    return { id: `call_${index}`, type: "function" as const, function: { name: "f", arguments: "{}" } };
  });
  const { request, answer } = kept({ model: "m", messages: [user("Hello")] }, answering({ tool_calls: calls }));
  expect(answer?.message).toEqual({ role: "assistant", content: "" });
  expect(request.messages).toEqual([user("Hello")]);
});

test("an image that was sent as bytes is left out, one by its address is not", () => {
  const image = (url: string) => ({ type: "image_url" as const, image_url: { url } });
  const bytes = `data:image/png;base64,${"A".repeat(100_000)}`;
  const address = "https://example.com/a.png";
  const asked = [user([{ type: "text", text: "What is it?" }, image(bytes), image(address), image("DATA:x")])];
  const { request, isTruncated } = kept({ model: "m", messages: asked });
  const told = `data:image/png;base64,[${bytes.length} characters, not kept]`;
  const parts = [image(told), image(address), image("data:[6 characters, not kept]")];
  expect(request.messages[0]?.content).toEqual([{ type: "text", text: "What is it?" }, ...parts]);
  expect(isTruncated).toBe(false);
  expect(asked[0]?.content).toContainEqual(image(bytes));
});

test("whatever is asked and answered, what is kept is JSON within its bounds", () => {
  const text = fc.string({ unit: "binary", maxLength: 3_000 });
  const message = fc.record(
    { role: fc.constant("user" as const), content: text, name: text },
    { requiredKeys: ["role"] },
  );
  const request = fc.record(
    {
      model: fc.string({ maxLength: 200 }),
      messages: fc.array(message, { minLength: 1 }),
      instructions: text,
      user: text,
    },
    { requiredKeys: ["model", "messages"] },
  );
  fc.assert(
    fc.property(request, fc.option(text), fc.integer({ min: 1_024, max: 20_000 }), (asked, content, limit) => {
      kept(asked, content === null ? null : answering({ content }), limit);
    }),
    { numRuns: 200 },
  );
});
