import { Ajv2020 } from "ajv/dist/2020.js";
import * as fc from "fast-check";
import { describe, expect, test } from "vitest";
import { minimalInstance } from "./instance.ts";
import { UnsupportedSchemaError } from "./unsupported.ts";

const ajv = new Ajv2020({ strict: false, validateFormats: false, logger: false });

function instanceOf(schema: unknown): unknown {
  return JSON.parse(JSON.stringify(minimalInstance(schema)));
}

describe("the smallest value that a schema allows", () => {
  test.each([
    [{}, ""],
    [true, ""],
    [{ type: "string", minLength: 3 }, "aaa"],
    [{ type: ["null", "string"] }, null],
    [{ type: "integer", minimum: 3 }, 3],
    [{ type: "integer", exclusiveMinimum: 3 }, 4],
    [{ type: "integer", maximum: -2 }, -2],
    [{ type: "number", exclusiveMinimum: 0, exclusiveMaximum: 1 }, 0.5],
    [{ type: "number", minimum: 0.3, maximum: 0.4 }, 0.35],
    [{ type: "integer", minimum: 10, multipleOf: 7 }, 14],
    [{ type: "boolean" }, false],
    [{ const: { a: [1] } }, { a: [1] }],
    [{ enum: ["x", "y"] }, "x"],
    [{ type: "array", items: { type: "string" } }, []],
    [{ type: "array", items: { type: "integer" }, minItems: 2 }, [0, 0]],
    [{ type: "array", items: { enum: ["a", "b", "c"] }, minItems: 3, uniqueItems: true }, ["a", "b", "c"]],
    [{ type: "array", prefixItems: [{ const: 1 }], items: { const: 2 }, minItems: 3 }, [1, 2, 2]],
    [{ type: "object", properties: { a: { type: "string" }, b: {} }, required: ["a"] }, { a: "" }],
    [
      { type: "object", minProperties: 2, properties: { a: { const: 1 } } },
      { a: 1, property1: "" },
    ],
    [{ properties: { a: { $ref: "#/$defs/b" } }, required: ["a"], $defs: { b: { const: 7 } } }, { a: 7 }],
    [{ anyOf: [false, { type: "string", minLength: 1, maxLength: 0 }, { const: 1 }] }, 1],
    [
      { allOf: [{ properties: { a: { const: 1 } } }, { properties: { b: { const: 2 } }, required: ["a", "b"] }] },
      { a: 1, b: 2 },
    ],
    [{ type: "string", format: "date" }, "2000-01-01"],
    [{ type: "string", pattern: "^[A-Z]{2}-\\d+$" }, "AA-0"],
    [{ type: "string", pattern: "^(?:cat|dog)s?$" }, "cat"],
    [{ type: "string", pattern: "^[^a]x*$", minLength: 3 }, "0xx"],
    [{ type: "object", required: ["__proto__"] }, JSON.parse('{"__proto__": ""}')],
  ])("%j", (schema, expected) => {
    expect(instanceOf(schema)).toEqual(expected);
    expect(ajv.validate(schema, instanceOf(schema))).toBe(true);
  });

  test("a list that holds itself ends where it may be empty", () => {
    const schema = {
      type: "object",
      required: ["value", "children"],
      properties: { value: { type: "number" }, children: { type: "array", items: { $ref: "#" } } },
    };
    expect(instanceOf(schema)).toEqual({ value: 0, children: [] });
  });
});

describe("refuses, and says why", () => {
  const wide = (depth: number): object =>
    depth === 0
      ? {}
      : {
          required: ["a", "b", "c"],
          properties: Object.fromEntries("abc".split("").map((name) => [name, wide(depth - 1)])),
        };
  test.each([
    ["nothing allowed", false],
    ["no schema", 5],
    ["a value that holds itself", { type: "object", required: ["a"], properties: { a: { $ref: "#" } } }],
    ["a reference to itself", { $ref: "#" }],
    ["references in a circle", { $ref: "#/$defs/a", $defs: { a: { $ref: "#/$defs/b" }, b: { $ref: "#/$defs/a" } } }],
    ["a reference out of it", { $ref: "https://example.com/schema" }],
    ["a reference to nowhere", { $ref: "#/$defs/toString" }],
    ["not", { not: {} }],
    ["if", { if: {}, else: {} }],
    ["no number", { type: "integer", minimum: 2, maximum: 1 }],
    ["an unknown type", { type: "date" }],
    ["too many items", { type: "array", minItems: 1e9, items: {} }],
    ["too long a text", { type: "string", minLength: 1e9 }],
    ["too many values", wide(10)],
    ["too many different values", { type: "array", minItems: 3, uniqueItems: true, items: { type: "boolean" } }],
    ["a look ahead", { type: "string", pattern: "^(?=a)b" }],
    ["a reference back", { type: "string", pattern: "(a)\\1" }],
    ["a pattern that repeats without a measure", { type: "string", pattern: "((a{9999}){9999}){9999}" }],
    ["a broken pattern", { type: "string", pattern: "(" }],
    ["a pattern that is too short", { type: "string", pattern: "^ab$", minLength: 3 }],
  ])("%s", (_name, schema) => {
    expect(() => minimalInstance(schema)).toThrow(UnsupportedSchemaError);
  });
});

/** Without the names that the validator takes for methods where it compares objects. */
const comparable = fc.jsonValue().filter((value) => !/"(constructor|toString|valueOf)":/.test(JSON.stringify(value)));

test("what it makes is valid, by a validator that knows the whole standard", () => {
  const { schema } = fc.letrec<{ schema: object }>((tie) => ({
    schema: fc.oneof(
      { maxDepth: 4, withCrossShrink: true },
      fc.constant({}),
      fc.record({ type: fc.constant("string"), minLength: fc.nat(5) }),
      fc.record({
        type: fc.constant("string"),
        pattern: fc.constantFrom("^[a-f]+$", "\\d{3}", "^x|y$", "[^0-9]", "a.b", "^\\w+@\\w+\\.com$"),
      }),
      fc
        .record({ type: fc.constantFrom("integer", "number"), low: fc.integer({ min: -20, max: 20 }), room: fc.nat(9) })
        .map(({ type, low, room }) => ({ type, minimum: low, maximum: low + room })),
      fc.record({ type: fc.constantFrom("integer", "number"), exclusiveMinimum: fc.integer({ min: -9, max: 9 }) }),
      fc.record({
        type: fc.constant("integer"),
        exclusiveMaximum: fc.integer({ min: -9, max: 9 }),
        multipleOf: fc.integer({ min: 1, max: 5 }),
      }),
      fc.record({ enum: fc.array(comparable, { minLength: 1, maxLength: 3 }) }),
      fc.constantFrom({ type: "boolean" }, { type: "null" }, { const: [1] }, { type: ["integer", "null"], minimum: 5 }),
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
  fc.assert(
    fc.property(schema, (made) => {
      const value = instanceOf(made);
      const isValid = ajv.validate(made, value);
      if (!isValid) throw new Error(`${JSON.stringify(value)} for ${JSON.stringify(made)}: ${ajv.errorsText()}`);
    }),
    { numRuns: 1_000 },
  );
});
