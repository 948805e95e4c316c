import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { CHUNKED_HEAD, chunked, DONE, event, hearBytes, STREAM_HEAD } from "../../../test/support/wire.ts";
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

describe("A stream of three choices", () => {
  const said = (index: number) => event({ choices: [{ index, delta: { content: "a" }, finish_reason: "stop" }] });
  const broken = `${said(0)}data: {\n\n`;

  test.each([
    ["one of them finished", broken],
    ["two of them finished", said(1) + broken],
  ])("is not complete where it breaks with only %s.", async (_which, body) => {
    const heard = await hearBytes(STREAM_HEAD + body, { n: 3 });
    expect(heard.error).toMatchObject({ failure: "malformed" });
    expect(heard.text).not.toBe("");
  });

  test.each([
    ["[DONE] follows one of them", said(0) + DONE],
    ["the body ends after one of them", said(0)],
    ["it breaks after all of them", said(2) + said(1) + broken],
  ])("is complete where %s.", async (_where, body) => {
    expect((await hearBytes(STREAM_HEAD + body, { n: 3 })).error).toBeUndefined();
  });

  test("is not complete where the connection resets after one of them.", async () => {
    const heard = await hearBytes(
      (socket) =>
        void socket.write(CHUNKED_HEAD + chunked(said(0)), () => setTimeout(() => socket.resetAndDestroy(), 50)),
      { n: 3 },
    );
    expect(heard.error).toMatchObject({ failure: expect.any(String) });
  });
});

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
