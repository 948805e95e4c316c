import assert from "node:assert/strict";
import { type Attack, assertRefused, authorization, post, type Target } from "./attack.ts";

const COMPLETIONS = "/v1/chat/completions";

const complete = (target: Target, fields: object) =>
  post(
    target,
    COMPLETIONS,
    { model: "sandbox/echo", messages: [{ role: "user", content: "hello" }], max_tokens: 16, ...fields },
    authorization(target, "token"),
  );

const formatOf = (schema: object) => ({ type: "json_schema", json_schema: { name: "answer", schema } });

/** Definitions that each reference the next one twice. */
const doubling = {
  $ref: "#/$defs/a0",
  $defs: Object.fromEntries(
    Array.from({ length: 40 }, (_, index) => {
      const next = { $ref: `#/$defs/a${(index + 1) % 40}` };
      return [`a${index}`, { required: ["a", "b"], properties: { a: next, b: next } }];
    }),
  ),
};

/** Short schemas that require much work. */
const EXPENSIVE_SCHEMAS: readonly object[] = [
  { type: "string", pattern: "a{9999}".repeat(70), minLength: 9_999 },
  { type: "array", minItems: 9_000, items: { type: "string", pattern: "a*".repeat(250), minLength: 9_999 } },
  { type: "array", minItems: 1e9, uniqueItems: true, items: { type: "string", pattern: "^(a|aa)+$" } },
  { type: "array", minItems: 5_000, items: { const: "x".repeat(10_000) } },
  { anyOf: Array.from({ length: 500 }, () => ({ type: "string", pattern: "a{9990}b?", minLength: 10_000 })) },
  { type: "object", minProperties: 1e15 },
  doubling,
];

const FORBIDDEN_IMAGES: readonly string[] = [
  "file:///etc/passwd",
  "gopher://127.0.0.1:6379/_INFO",
  "http://169.254.169.254/latest/meta-data/",
  "https://169.254.169.254/latest/meta-data/",
  "https://2852039166/",
  "https://0251.0376.0251.0376/",
  "https://0xa9fea9fe/",
  "https://127.1/",
  "https://[::1]/",
  "https://[::ffff:127.0.0.1]/",
  "https://[64:ff9b::7f00:1]/",
  "https://[fd00:ec2::254]/",
  "https://localhost./",
  "https://metadata.google.internal/",
  "https://user@example.com/",
  "https://example.com:8080/",
  "data:text/html;base64,AAAA",
  "data:image/svg+xml;base64,AAAA",
  "data:image/png;base64,!",
];

/** Attacks with valid completion requests. */
export const requestAttacks: readonly Attack[] = [
  {
    title: "A schema that asks the sandbox for much work is refused with 400, which names the schema.",
    needs: "token",
    async play(target) {
      const answers = EXPENSIVE_SCHEMAS.flatMap((schema) => [
        complete(target, { response_format: formatOf(schema) }),
        complete(target, { tools: [{ type: "function", function: { name: "tool", parameters: schema } }] }),
      ]);
      for (const answer of await Promise.all(answers)) {
        assert.match(
          await assertRefused(answer, 400, "unsupported_value"),
          /response_format\.json_schema\.schema|tools\[0\]\.function\.parameters/,
        );
      }
    },
  },
  {
    title: "Stop sequences and tool names that nearly match a long message are answered.",
    needs: "token",
    async play(target) {
      const content = `${"a".repeat(200_000)}c`;
      const nearlyOf = (length: number) => `${"a".repeat(length)}b${"a".repeat(length)}`;
      const nearly = nearlyOf(30_000);
      const messages = [{ role: "user", content }];
      const stopped = await complete(target, { messages, stop: [nearly, `${nearly}a`, `a${nearly}`] });
      assert.equal(stopped.status, 200, await stopped.text());
      // Names are a part of the prompt, and this one still fits into the context window.
      const short = nearlyOf(10_000);
      const tools = [short, `${short}a`].map((name) => ({ type: "function", function: { name } }));
      const called = await complete(target, { messages, tools });
      assert.equal(called.status, 200, await called.text());
    },
  },
  {
    title: "Image addresses of other schemes and of private networks are refused with 400, which names the field.",
    needs: "token",
    async play(target) {
      for (const url of FORBIDDEN_IMAGES) {
        const content = [{ type: "image_url", image_url: { url } }];
        const answer = await complete(target, { messages: [{ role: "user", content }] });
        const message = await assertRefused(answer, 400, "invalid_value");
        assert.match(message, /messages\[0\]\.content\[0\]\.image_url\.url/, url);
      }
    },
  },
  {
    title: "Tool calls without any text count towards the context window.",
    needs: "token",
    async play(target) {
      const call = { id: "", type: "function", function: { name: "", arguments: "" } };
      const message = { role: "assistant", tool_calls: Array.from({ length: 15_000 }, () => call) };
      const tools = Array.from({ length: 1_000 }, () => ({ type: "function", function: { name: "a".repeat(200) } }));
      const answer = await complete(target, { messages: [message], tools, max_tokens: 4_096 });
      await assertRefused(answer, 400, "context_length_exceeded");
    },
  },
];
