import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { EventTemplate } from "./answer.ts";

const eventOf = (content: unknown, delta: object = {}, choice: object = {}, event: object = {}) =>
  JSON.stringify({
    id: "x",
    model: "m",
    choices: [{ index: 0, delta: { ...delta, content }, finish_reason: null, ...choice }],
    ...event,
  });
const contentOf = (data: string) => JSON.parse(data).choices[0].delta.content;

function learned(first = eventOf("one ")): EventTemplate {
  const template = new EventTemplate();
  template.learn(first, contentOf(first));
  return template;
}

describe("An event template", () => {
  test("reads the content of events that differ only in their content.", () => {
    const template = learned();
    for (const content of ["two ", "é 日本 \u{1F600}", "{}", ":", " "])
      expect(template.read(eventOf(content))).toBe(content);
  });

  test("does not read events that differ otherwise or have escaped text.", () => {
    const template = learned();
    for (const data of [
      eventOf('a "quoted" word'),
      eventOf("line\nbreak"),
      eventOf("back\\slash"),
      eventOf(""),
      eventOf(null),
      eventOf("x", { refusal: "no" }),
      eventOf("x", {}, { finish_reason: "stop" }),
      eventOf("x", {}, {}, { usage: { prompt_tokens: 1 } }),
      eventOf("x", {}, {}, { id: "y" }),
      "[DONE]",
      "",
    ]) {
      expect(template.read(data)).toBeUndefined();
    }
  });

  test("is not learned from an event with other fields or with its content elsewhere.", () => {
    for (const first of [
      eventOf("one", { role: "assistant" }),
      eventOf("one", {}, { finish_reason: "stop" }),
      eventOf("one", {}, { logprobs: { content: [] } }),
      eventOf("one", {}, {}, { usage: { prompt_tokens: 1 } }),
      JSON.stringify({ note: { content: "one" }, choices: [{ index: 0, delta: { content: "one" } }] }),
      eventOf("one", {}, { index: 1 }),
      eventOf('o"ne'),
    ]) {
      expect(learned(first).read(first)).toBeUndefined();
    }
  });

  test("never differs from the parser.", () => {
    const text = fc.oneof(fc.string({ unit: "binary", maxLength: 12 }), fc.constantFrom('","x":"', '\\"', "}", '"}}]'));
    fc.assert(
      fc.property(text, fc.array(text, { maxLength: 8 }), (first, others) => {
        const template = learned(eventOf(first));
        for (const content of others) {
          const data = eventOf(content);
          const read = template.read(data);
          if (read !== undefined) expect(read).toBe(contentOf(data));
        }
      }),
      { numRuns: 2000 },
    );
  });
});
