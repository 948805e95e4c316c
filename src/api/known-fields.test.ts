import { Type } from "typebox";
import { expect, test } from "vitest";
import { compileCopy } from "./known-fields.ts";
import { TaggedUnion, Typed } from "./schema.ts";
import { UnknownFields } from "./wording.ts";

const Inner = Type.Object({ name: Type.String(), data: Type.Optional(Type.Record(Type.String(), Type.Unknown())) });
const schema = Type.Object({
  inner: Type.Optional(Inner),
  items: Type.Optional(Type.Array(TaggedUnion([Typed("a", { inner: Inner }), Typed("b", {})]))),
  either: Type.Optional(Type.Union([Type.String(), Type.Array(Inner)])),
});
const copy = compileCopy(schema, ["items.position"]);

function copied(value: unknown): [copy: unknown, unknown: string[]] {
  const unknown = new UnknownFields();
  return [copy(value, unknown), unknown.names()];
}

test("Fields that the schema does not have are left out and named, and silent ones are not named.", () => {
  expect(
    copied({
      inner: { name: "n", more: 1 },
      items: [
        { type: "a", inner: { name: "n", more: 1 }, position: 0 },
        { type: "b", inner: {} },
      ],
      either: [{ name: "n", other: 1 }],
      extra: 1,
    }),
  ).toEqual([
    { inner: { name: "n" }, items: [{ type: "a", inner: { name: "n" } }, { type: "b" }], either: [{ name: "n" }] },
    ["inner.more", "items.inner.more", "items.inner", "either.other", "extra"],
  ]);
});

test("Nulls count as absent, except in data without named fields.", () => {
  expect(copied({ inner: { name: null, data: { a: null } }, items: null, extra: null })).toEqual([
    { inner: { data: { a: null } } },
    [],
  ]);
});

test("Values of other types than the schema's are left to the validator.", () => {
  for (const value of [1, "text", [], { inner: 1 }, { items: { type: "a" } }, { items: [1, { type: "c", more: 1 }] }]) {
    expect(copied(value)).toEqual([value, []]);
  }
});

test("Names of an object's prototype are fields like others.", () => {
  const body = JSON.parse('{"inner":{"name":"n","__proto__":{"a":1},"constructor":1}}');
  const [value, unknown] = copied(body);
  expect(Object.keys((value as { inner: object }).inner)).toEqual(["name"]);
  expect(unknown).toEqual(["inner.__proto__", "inner.constructor"]);
});
