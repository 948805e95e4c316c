import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { AnswerFold } from "../../api/answer-fold.ts";
import type { ToolCallDelta } from "../../api/chat/completion.ts";
import { toolCallCompleter } from "../../gateway/deliver.ts";
import { ToolCallReader } from "./tool-calls.ts";

const ANSWER_ID = "01a1fc9f-afa2-71b3-8203-c2d4d7bab152";

/** The calls that a client makes of the events. */
function folded(events: readonly (readonly object[])[]) {
  const reader = new ToolCallReader();
  const complete = toolCallCompleter(ANSWER_ID);
  const fold = new AnswerFold();
  const deltas: ToolCallDelta[] = [];
  for (const calls of events) {
    const pieces = complete([{ delta: { tool_calls: reader.readPieces(calls) } }]);
    deltas.push(...pieces.flatMap(({ delta }) => delta?.tool_calls ?? []));
    fold.add(pieces);
  }
  return { calls: fold.message().tool_calls ?? [], deltas };
}

const said = (calls: { function: { name: string; arguments: string } }[]) =>
  calls.map(({ function: called }) => `${called.name}${called.arguments}`);
const call = (name: string | undefined, text: string | undefined, fields: object = {}) => ({
  ...fields,
  function: { ...(name !== undefined && { name }), ...(text !== undefined && { arguments: text }) },
});

describe("Two calls are distinguished:", () => {
  const noIds: [string, object][] = [
    ["absent", {}],
    ["null", { id: null }],
    ["empty", { id: "" }],
  ];
  const indexes: [string, (index: number) => object][] = [
    ["an index each", (index) => ({ index })],
    ["no index", () => ({})],
    ["the same index", () => ({ index: 0 })],
  ];
  const shapes = noIds.flatMap(([id, none]) => indexes.map(([index, at]) => [id, index, none, at] as const));

  test.each(shapes)("ids %s, %s: whole calls, an event each", (_id, _index, none, at) => {
    const events = ['{"city":"Bern"}', '{"city":"Chur"}'].map((text, index) => [
      call("weather", text, { ...none, ...at(index) }),
    ]);
    const { calls } = folded(events);
    expect(said(calls)).toEqual(['weather{"city":"Bern"}', 'weather{"city":"Chur"}']);
    expect(new Set(calls.map(({ id }) => id)).size).toBe(2);
  });

  test.each(shapes)("ids %s, %s: whole calls in one event", (_id, _index, none, at) => {
    const events = [[call("a", "{}", { ...none, ...at(0) }), call("b", "", { ...none, ...at(1) })]];
    expect(said(folded(events).calls)).toEqual(["a{}", "b"]);
  });

  test.each(shapes)("ids %s, %s: in pieces, one after the other", (_id, _index, none, at) => {
    const events = [0, 1].flatMap((index) => [
      [call("weather", "", { ...none, ...at(index) })],
      [call(undefined, '{"city":', { ...none, ...at(index) })],
      [call("", '"Bern}"}', { ...none, ...at(index) })],
    ]);
    expect(said(folded(events).calls)).toEqual(['weather{"city":"Bern}"}', 'weather{"city":"Bern}"}']);
  });

  test.each(noIds)("ids %s, an index each: in pieces that alternate", (_id, none) => {
    const at = (index: number, name: string | undefined, text: string) => [call(name, text, { ...none, index })];
    const { calls } = folded([at(0, "a", ""), at(1, "b", ""), at(0, undefined, "{}"), at(1, undefined, "[]")]);
    expect(said(calls)).toEqual(["a{}", "b[]"]);
  });

  test("an id in every piece, without an index or with the same one", () => {
    for (const at of [{}, { index: 0 }]) {
      const piece = (id: string, name: string | undefined, text: string) => [call(name, text, { id, ...at })];
      const { calls } = folded([
        piece("x", "a", "{"),
        piece("y", "b", "["),
        piece("x", undefined, "}"),
        piece("y", "", "]"),
      ]);
      expect(calls.map(({ id }) => id)).toEqual(["x", "y"]);
      expect(said(calls)).toEqual(["a{}", "b[]"]);
    }
  });
});

describe("One call is not split:", () => {
  test("an id, and the name in every piece.", () => {
    const pieces = ["", '{"a":', '"{"', "}"].map((text) => [call("weather", text, { index: 0, id: "x" })]);
    expect(said(folded(pieces).calls)).toEqual(['weather{"a":"{"}']);
  });

  test("no id, and the name in every piece of the arguments.", () => {
    const pieces = ['{"a":', '"{"', "}"].map((text) => [call("weather", text, { index: 0 })]);
    expect(said(folded(pieces).calls)).toEqual(['weather{"a":"{"}']);
  });

  test("the name in pieces after the id.", () => {
    const { calls } = folded([[call("get_", "", { index: 0, id: "x" })], [call("weather", "", { index: 0 })]]);
    expect(said(calls)).toEqual(["get_weather"]);
  });

  test("a late id, of which the client keeps the one that it got first.", () => {
    const { calls, deltas } = folded([
      [call("a", "", { index: 0 })],
      [call(undefined, "{}", { index: 0, id: "late" })],
    ]);
    expect(said(calls)).toEqual(["a{}"]);
    expect(calls[0]?.id).toMatch(/^call_/);
    expect(deltas.map(({ id }) => id !== undefined)).toEqual([true, false]);
  });
});

test("Each entry of an unstreamed answer is a separate call with any id.", () => {
  for (const id of ["", null, undefined, "same"]) {
    const whole = new ToolCallReader().readWhole([
      call("a", "{}", { id, index: 0 }),
      call("a", "{}", { id, index: 0 }),
    ]);
    const [piece] = toolCallCompleter(ANSWER_ID)([{ delta: { tool_calls: whole } }]);
    const calls = piece?.delta?.tool_calls ?? [];
    expect(calls.map(({ index }) => index)).toEqual([0, 1]);
    expect(calls.map(({ type }) => type)).toEqual(["function", "function"]);
    expect(new Set(calls.map((one) => one.id)).size).toBe(2);
    for (const one of calls) expect(one.id?.length).toBeGreaterThan(0);
  }
});

test("A generated id has at most 40 characters, the limit of OpenAI.", () => {
  const whole = new ToolCallReader().readWhole(Array.from({ length: 1000 }, () => call("a", "{}")));
  const [piece] = toolCallCompleter("ffffffff-ffff-7fff-bfff-ffffffffffff")([{ delta: { tool_calls: whole } }]);
  const ids = piece?.delta?.tool_calls?.map(({ id }) => id ?? "") ?? [];
  expect(new Set(ids).size).toBe(1000);
  for (const id of ids) expect(id.length).toBeLessThanOrEqual(40);
});

test("Calls in any pieces with an index each reach the client complete, with unique ids and their type.", () => {
  const argument = fc.dictionary(fc.string(), fc.jsonValue());
  const oneCall = fc.record({
    name: fc.stringMatching(/^[a-z_]{1,12}$/),
    argument,
    id: fc.option(fc.constantFrom("", "x", "y", "z"), { nil: undefined }),
    cuts: fc.array(fc.nat(200), { maxLength: 5 }),
  });
  fc.assert(
    fc.property(fc.array(oneCall, { minLength: 1, maxLength: 5 }), (asked) => {
      const events = asked.flatMap(({ name, argument, id, cuts }, index) => {
        const text = JSON.stringify(argument);
        const places = [0, ...cuts.map((cut) => cut % text.length).sort((a, b) => a - b), text.length];
        const pieces = places.slice(1).map((end, place) => text.slice(places[place], end));
        return pieces.map((piece, place) => [
          call(place === 0 ? name : undefined, piece, { index, ...(place === 0 && { id }) }),
        ]);
      });
      const { calls, deltas } = folded(events);
      expect(said(calls)).toEqual(asked.map(({ name, argument }) => `${name}${JSON.stringify(argument)}`));
      expect(new Set(calls.map(({ id }) => id)).size).toBe(asked.length);
      for (const { id, type } of deltas) expect(type).toBe(id === undefined ? undefined : "function");
      expect(deltas.filter(({ id }) => id !== undefined)).toHaveLength(asked.length);
    }),
  );
});
