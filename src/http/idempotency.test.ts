import fc from "fast-check";
import { expect, test } from "vitest";
import { decodeChatCompletion } from "../api/chat/decode.ts";
import { JSON_DEPTH_MAX } from "../api/chat/request.ts";
import { fingerprintOf } from "./idempotency.ts";

function fingerprint(body: object): string {
  return fingerprintOf(decodeChatCompletion(structuredClone(body)).request);
}

const body = { model: "m", messages: [{ role: "user", content: "hello" }] };
const schema = { type: "object", properties: { b: { type: "string" }, a: { enum: [1, "x", null] } } };
const tool = { type: "function", function: { name: "f", parameters: schema } };

test("The fingerprint depends on the fields, not on their notation.", () => {
  const one = fingerprint({ ...body, tools: [tool], temperature: 1, metadata: { x: "1", y: "2" } });
  const { properties } = schema;
  const turned = { properties: { a: properties.a, b: properties.b }, type: "object" };
  const other = {
    metadata: { y: "2", x: "1" },
    temperature: 1.0,
    tools: [{ function: { parameters: turned, name: "f" }, type: "function" }],
    max_tokens: null,
    some_field_of_tomorrow: true,
    messages: [{ content: "hello", role: "user", name: null }],
    model: "m",
  };
  expect(fingerprint(other)).toBe(one);
  expect(one).toMatch(/^[0-9a-f]{64}$/);
});

test.each([
  ["another model", { ...body, model: "n" }],
  ["another message", { ...body, messages: [{ role: "user", content: "hello " }] }],
  ["another order of messages", { ...body, messages: [...body.messages, { role: "user", content: "a" }] }],
  ["streamed", { ...body, stream: true }],
  ["a number where there was none", { ...body, temperature: 0 }],
  ["other metadata", { ...body, metadata: { a: "b" } }],
])("The fingerprint differs for %s.", (_what, other) => {
  expect(fingerprint(other)).not.toBe(fingerprint(body));
});

test("The fingerprint does not depend on the order of keys, at any depth.", () => {
  const objects = fc.dictionary(fc.string(), fc.jsonValue({ maxDepth: 4 }), { noNullPrototype: true });
  fc.assert(
    fc.property(objects, (parameters) => {
      const asked = (value: unknown) =>
        fingerprint({ ...body, tools: [{ ...tool, function: { name: "f", parameters: value } }] });
      expect(asked(reversed(parameters))).toBe(asked(parameters));
    }),
  );
});

/** Each is an object and a list. */
const LEVELS = JSON_DEPTH_MAX / 2;

test.each(["a", "__proto__"])("The fingerprint accepts any body that is read, and any key: %s.", (name) => {
  const deep = (inner: string) => JSON.parse(`${`{"${name}":[`.repeat(LEVELS)}${inner}${"]}".repeat(LEVELS)}`);
  const asked = (inner: string) => ({
    ...body,
    tools: [{ ...tool, function: { name: "f", parameters: deep(inner) } }],
  });
  const fingerprintAsIs = (whole: object) => fingerprintOf(decodeChatCompletion(whole).request);
  expect(fingerprintAsIs(asked("1"))).toBe(fingerprintAsIs(asked("1")));
  expect(fingerprintAsIs(asked("1"))).not.toBe(fingerprintAsIs(asked("2")));
});

function reversed(value: unknown): unknown {
  if (Array.isArray(value)) return value.map(reversed);
  if (typeof value !== "object" || value === null) return value;
  const entries = Object.entries(value).reverse();
  return Object.fromEntries(entries.map(([key, inner]) => [key, reversed(inner)]));
}
