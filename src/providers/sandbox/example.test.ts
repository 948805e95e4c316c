import { Ajv2020 } from "ajv/dist/2020.js";
import * as fc from "fast-check";
import { describe, expect, test } from "vitest";
import { exampleOf } from "./example.ts";

const ajv = new Ajv2020({ strict: false, logger: false });

const madeFrom = (schema: unknown): unknown => JSON.parse(JSON.stringify(exampleOf(schema, "schema")));

describe("The example of a schema", () => {
  test.each([
    [{}, ""],
    [true, ""],
    [{ type: "string", minLength: 3, maxLength: 5 }, "aaa"],
    [{ type: ["null", "string"] }, null],
    [{ type: "integer", minimum: 3 }, 3],
    [{ type: "integer", minimum: 0.5 }, 1],
    [{ type: "integer", minimum: -9007199254740991, maximum: 9007199254740991 }, 0],
    [{ type: "number", maximum: -2.5 }, -2.5],
    [{ type: "boolean" }, false],
    [{ const: { a: [1] } }, { a: [1] }],
    [{ enum: ["x", "y"] }, "x"],
    [{ type: "integer", default: 7 }, 7],
    [{ type: "array", items: { type: "string" }, maxItems: 3 }, []],
    [{ type: "array", items: { type: "integer" }, minItems: 2 }, [0, 0]],
    [{ type: "object", properties: { a: { type: "string" }, b: { pattern: "b" } }, required: ["a"] }, { a: "" }],
    [{ properties: { a: { $ref: "#/$defs/b" } }, required: ["a"], $defs: { b: { const: 7 } } }, { a: 7 }],
    [{ anyOf: [{ type: "integer" }, { type: "null" }], description: "A union" }, 0],
    [JSON.parse('{"properties":{"__proto__":true},"required":["__proto__"]}'), JSON.parse('{"__proto__":""}')],
    [
      { properties: { value: { type: "number" }, next: { type: "array", items: { $ref: "#" } } }, required: ["next"] },
      { next: [] },
    ],
  ])("%j", (schema, expected) => {
    expect(madeFrom(schema)).toEqual(expected);
    expect(ajv.validate(schema, madeFrom(schema))).toBe(true);
  });
});

const doubling = Object.fromEntries(
  Array.from({ length: 20 }, (_, index) => {
    const next = { $ref: `#/$defs/a${index + 1}` };
    return [`a${index}`, { required: ["a", "b"], properties: { a: next, b: next } }];
  }),
);

describe("A schema is refused with the reason and the place:", () => {
  const large = "the sandbox does not support a schema whose smallest example is so large";
  test.each([
    ["pattern", { type: "string", pattern: "a" }, "the keyword 'pattern' (at #)"],
    ["uniqueItems", { type: "array", minItems: 2, items: { uniqueItems: true } }, "'uniqueItems' (at #/items)"],
    ["not", { properties: { a: { not: {} } }, required: ["a"] }, "'not' (at #/properties/a)"],
    ["a long keyword", { ["x".repeat(1_000_000)]: 1 }, `'${"x".repeat(160)}…' (at #)`],
    ["a line break in a keyword", { "a\nb": 1 }, "'a\uFFFDb'"],
    ["nothing allowed", { anyOf: [false] }, "a schema that allows no value (at #/anyOf/0)"],
    ["no alternative", { anyOf: [] }, "this kind of schema (at #/anyOf/0)"],
    ["no schema", 5, "this kind of schema (at #)"],
    ["an unknown type", { type: "date" }, "this type (at #/type)"],
    ["keywords beside a union", { anyOf: [{}], type: "string" }, "other keywords beside 'anyOf'"],
    ["keywords beside a reference", { $ref: "#/$defs/a", minLength: 2 }, "other keywords beside '$ref'"],
    ["a required property without a schema", { required: ["a"] }, "that 'properties' does not describe"],
    ["a reference out of it", { $ref: "https://example.com/schema" }, "this '$ref'"],
    ["a reference to nowhere", { $ref: "#/$defs/toString", $defs: {} }, "this '$ref'"],
    ["a reference that is none", { $ref: 5 }, "this '$ref'"],
    ["a reference to itself", { $ref: "#" }, "a schema that is nested so deeply, or without an end (at #)"],
    ["a value that contains itself", { required: ["a"], properties: { a: { $ref: "#" } } }, "or without an end"],
    ["too many items", { type: "array", minItems: 1e9 }, large],
    ["too long a text", { type: "string", minLength: 1e9 }, large],
    ["a long text too often", { type: "array", minItems: 50, items: { const: "a".repeat(5_000) } }, large],
    ["a long name too often", { type: "array", minItems: 50, items: namedProperty("a".repeat(5_000)) }, large],
    [
      "a long reference too often",
      { type: "array", minItems: 50, items: { $ref: `#/${"a/".repeat(5_000)}` } },
      "'$ref'",
    ],
    ["references that double", { $ref: "#/$defs/a0", $defs: { ...doubling, a20: true } }, large],
  ])("%s", (_name, schema, reason) => {
    expect(() => exampleOf(schema, "the.field")).toThrow(
      expect.objectContaining({
        failure: "unsupported",
        param: "the.field",
        publicReason: expect.stringMatching(/^Invalid 'the\.field': the sandbox does not support .{1,400}\.$/),
      }),
    );
    expect(() => exampleOf(schema, "x")).toThrow(
      expect.objectContaining({ publicReason: expect.stringContaining(reason) }),
    );
  });

  function namedProperty(name: string): object {
    return { required: [name], properties: { [name]: true } };
  }
});

test("Every example is valid according to a validator of the whole standard.", () => {
  const { schema } = fc.letrec<{ schema: object }>((tie) => ({
    schema: fc.oneof(
      { maxDepth: 4, withCrossShrink: true },
      fc.constant({}),
      fc.record({ type: fc.constant("string"), minLength: fc.nat(5) }),
      fc
        .record({ type: fc.constantFrom("integer", "number"), low: fc.integer({ min: -20, max: 20 }), room: fc.nat(9) })
        .map(({ type, low, room }) => ({ type, minimum: low, maximum: low + room })),
      fc.record({ enum: fc.array(fc.oneof(fc.string(), fc.integer(), fc.constant(null)), { minLength: 1 }) }),
      fc.constantFrom({ type: "boolean" }, { type: "null" }, { const: [1] }, { type: ["integer", "null"], minimum: 5 }),
      fc.constant({ $ref: "#/$defs/shared" }),
      fc.record({ type: fc.constant("array"), items: tie("schema"), minItems: fc.nat(3) }),
      fc.record({ anyOf: fc.array(tie("schema"), { minLength: 1, maxLength: 3 }) }),
      fc
        .dictionary(fc.constantFrom("a", "b", "c"), tie("schema"))
        .chain((properties) =>
          fc
            .subarray(Object.keys(properties))
            .map((required) => ({ type: "object", properties, required, additionalProperties: false })),
        ),
    ),
  }));
  const whole = schema.map((made) => ({ ...made, $defs: { shared: { type: "integer", minimum: 3 } } }));
  fc.assert(
    fc.property(whole, (made) => {
      const value = madeFrom(made);
      const isValid = ajv.validate(made, value);
      if (!isValid) throw new Error(`${JSON.stringify(value)} for ${JSON.stringify(made)}: ${ajv.errorsText()}`);
    }),
    { numRuns: 1_000 },
  );
});
