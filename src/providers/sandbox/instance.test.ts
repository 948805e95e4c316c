import { Ajv2020 } from "ajv/dist/2020.js";
import * as fc from "fast-check";
import { describe, expect, test } from "vitest";
import { minimalInstance } from "./instance.ts";
import { UnsupportedSchemaError, WORK_STEPS_MAX, Work, WorkExceededError } from "./work.ts";

const ajv = new Ajv2020({ strict: false, validateFormats: false, logger: false });

function instanceOf(schema: unknown): unknown {
  return JSON.parse(JSON.stringify(minimalInstance(schema, new Work())));
}

describe("The smallest value that a schema allows", () => {
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
    [{ type: "object", properties: { a: { type: "string" }, b: {} }, required: ["a"] }, { a: "" }],
    [{ properties: { a: { $ref: "#/$defs/b" } }, required: ["a"], $defs: { b: { const: 7 } } }, { a: 7 }],
    [{ anyOf: [false, { type: "string", minLength: 1, maxLength: 0 }, { const: 1 }] }, 1],
    [
      { allOf: [{ properties: { a: { const: 1 } } }, { properties: { b: { const: 2 } }, required: ["a", "b"] }] },
      { a: 1, b: 2 },
    ],
    [{ type: "string", format: "date" }, "2000-01-01"],
    [{ type: "string", pattern: "^[A-Z]{2}-\\d+$" }, "AA-0"],
    [{ type: "string", pattern: "^(?:cat|dog)s?$" }, "cat"],
    [{ type: "string", pattern: "^[^a]x*$" }, "0"],
    [{ type: "string", pattern: "^([a-z]+)\\s{2}(?<rest>.)$" }, "a  a"],
    [{ type: "string", enum: ["a", "bcd"], minLength: 2 }, "bcd"],
    [{ type: "object", required: ["ab"], propertyNames: { maxLength: 2 } }, { ab: "" }],
    [
      { oneOf: ["a", "b"].map((kind) => ({ properties: { kind: { const: kind } }, required: ["kind"] })) },
      { kind: "a" },
    ],
    [{ type: "object", required: ["__proto__"] }, JSON.parse('{"__proto__": ""}')],
  ])("%j", (schema, expected) => {
    expect(instanceOf(schema)).toEqual(expected);
    expect(ajv.validate(schema, instanceOf(schema))).toBe(true);
  });

  test("of a recursive list is the empty list.", () => {
    const schema = {
      type: "object",
      required: ["value", "children"],
      properties: { value: { type: "number" }, children: { type: "array", items: { $ref: "#" } } },
    };
    expect(instanceOf(schema)).toEqual({ value: 0, children: [] });
  });
});

describe("A schema is refused with the reason:", () => {
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
    ["different items", { type: "array", minItems: 2, uniqueItems: true, items: { type: "boolean" } }],
    ["items by their position", { type: "array", minItems: 1, prefixItems: [{ const: 1 }] }],
    ["properties beside the required ones", { type: "object", minProperties: 1 }],
    ["a look-ahead", { type: "string", pattern: "^(?=a)b" }],
    ["a back-reference", { type: "string", pattern: "(a)\\1" }],
    ["a pattern that repeats without limits", { type: "string", pattern: "((a{9999}){9999}){9999}" }],
    ["a broken pattern", { type: "string", pattern: "(" }],
    ["an anchor inside of a group", { type: "string", pattern: "x(^a)" }],
    ["a negated escape in a class", { type: "string", pattern: "[^\\S]" }],
    ["a pattern that no listed value was written for", { enum: ["ab"], pattern: "^a" }],
    ["a given value of another type", { type: "string", enum: [1] }],
    ["alternatives of which two fit", { oneOf: [{ type: "string" }, { minLength: 0 }] }],
    ["fewer items than there must be", { type: "array", minItems: 2, maxItems: 1 }],
    ["fewer properties than there must be", { required: ["a"], maxProperties: 0 }],
    ["properties that a pattern may name", { required: ["a"], patternProperties: { a: { type: "number" } } }],
    ["a pattern that is too short", { type: "string", pattern: "^ab$", minLength: 3 }],
  ])("%s", (_name, schema) => {
    expect(() => minimalInstance(schema, new Work())).toThrow(UnsupportedSchemaError);
  });
});

/** Schemas of little length that ask for much work, of every kind that the sandbox has. */
const HOSTILE: Record<string, unknown> = {
  "patterns that repeat much": { type: "string", pattern: "a{9999}".repeat(70), minLength: 9_999 },
  "many alternatives of long texts": {
    anyOf: Array.from({ length: 2_000 }, () => ({ type: "string", pattern: "a{9990}b?", minLength: 10_000 })),
  },
  "long texts in a long array": {
    type: "array",
    minItems: 9_000,
    items: { type: "string", pattern: "a*".repeat(250), minLength: 9_999 },
  },
  "a long value as often as it fits": { type: "array", minItems: 5_000, items: { const: "x".repeat(50_000) } },
  "a large value as often as it fits": {
    type: "array",
    minItems: 5_000,
    items: { enum: [Array.from({ length: 10_000 }, (_, index) => index)] },
  },
  "more items than there is room for": { type: "array", minItems: Number.MAX_VALUE, items: { type: "null" } },
  "references that double": doubling(60),
  "alternatives that double": { $ref: "#/$defs/a0", $defs: doublingAlternatives(30) },
  "one schema with many keywords, often": {
    type: "array",
    minItems: 10_000,
    items: Object.fromEntries(Array.from({ length: 10_000 }, (_, index) => [`x${index}`, 1])),
  },
  "an object with many properties, often": {
    type: "array",
    minItems: 10_000,
    items: { properties: Object.fromEntries(Array.from({ length: 10_000 }, (_, index) => [`x${index}`, true])) },
  },
  "many given values that must differ": {
    type: "array",
    minItems: 10_000,
    uniqueItems: true,
    items: { enum: Array.from({ length: 10_000 }, (_, index) => `${index}`) },
  },
  "a long type, often": {
    anyOf: Array.from({ length: 5_000 }, () => ({ $ref: "#/$defs/a" })),
    $defs: { a: { type: { a: "x".repeat(100_000) } } },
  },
  "a long reference, often": {
    type: "array",
    minItems: 10_000,
    items: { $ref: `#/$defs/${"x".repeat(10_000)}` },
    $defs: { ["x".repeat(10_000)]: true },
  },
  "a long name, often": {
    type: "array",
    minItems: 10_000,
    items: { required: ["x".repeat(100_000)] },
  },
};

/** Each definition asks for the next one twice. */
function doubling(depth: number): object {
  const definitions = Object.fromEntries(
    Array.from({ length: depth }, (_, index) => {
      const next = { $ref: `#/$defs/a${index + 1}` };
      return [`a${index}`, { required: ["a", "b"], properties: { a: next, b: next } }];
    }),
  );
  return { $ref: "#/$defs/a0", $defs: { ...definitions, [`a${depth}`]: true } };
}

/** Each definition has two alternatives that lead to the next one, and the last allows nothing. */
function doublingAlternatives(depth: number): object {
  const definitions = Array.from({ length: depth }, (_, index) => {
    const next = { $ref: `#/$defs/a${index + 1}` };
    return [`a${index}`, { anyOf: [next, next] }];
  });
  return { ...Object.fromEntries(definitions), [`a${depth}`]: false };
}

describe("The work budget", () => {
  test.each(Object.entries(HOSTILE))("ends a schema with %s.", (_name, schema) => {
    const work = new Work();
    expect(() => minimalInstance(schema, work)).toThrow(UnsupportedSchemaError);
    expect(work.spent).toBeLessThanOrEqual(WORK_STEPS_MAX);
  });

  test("ends at the same step every time, and the error names the place in the schema.", () => {
    const schema = {
      required: ["a"],
      properties: { a: { minItems: 1e6, items: { properties: {}, minProperties: 9 } } },
    };
    const failures = [1, 2].map(() => {
      const work = new Work();
      let failure: unknown;
      try {
        minimalInstance(schema, work);
      } catch (error) {
        failure = error;
      }
      expect(failure).toBeInstanceOf(WorkExceededError);
      return { place: (failure as WorkExceededError).place, spent: work.spent };
    });
    expect(failures[0]).toEqual(failures[1]);
    expect(failures[0]?.place).toMatch(/^#\/properties\/a\/items/);
  });

  test("is large enough for the schemas of real tools.", () => {
    const properties = Object.fromEntries(
      Array.from({ length: 200 }, (_, index) => [
        `property_${index}`,
        { anyOf: [{ type: "string", pattern: "^[a-z]{3,20}$" }, { type: "null" }], description: "Long. ".repeat(100) },
      ]),
    );
    const work = new Work();
    const schema = { type: "object", properties, required: Object.keys(properties), additionalProperties: false };
    expect(Object.keys(minimalInstance(schema, work) as object)).toHaveLength(200);
    expect(work.spent).toBeLessThan(WORK_STEPS_MAX / 2);
  });
});

/**
 * Without the names that the validator takes for methods where it compares objects, and without the large numbers of
 * which it says that they are no multiple of 1.
 */
const comparable = fc
  .jsonValue()
  .filter((value) => !/"(constructor|toString|valueOf)":|\d{16}|e\+/.test(JSON.stringify(value)));

test("Every value is valid according to a validator of the whole standard.", () => {
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

/** Up to four keywords in any combination, with values that fit each other and values that do not. */
const anySchema = fc.letrec<{ schema: unknown; keyword: [string, unknown] }>((tie) => {
  const schemas = (maxLength: number) => fc.array(tie("schema"), { minLength: 1, maxLength });
  const keyword = <T>(name: string, value: fc.Arbitrary<T>) => fc.tuple(fc.constant(name), value);
  const patterns = ["^[a-f]+$", "^(a|b)*c{2}$", "\\d{3}", "^x|y$", "^\\w+@\\w+\\.com$", "^[^\\s]{4}$"];
  return {
    schema: fc.oneof(
      { maxDepth: 3, withCrossShrink: true },
      fc.boolean(),
      fc.array(tie("keyword"), { maxLength: 4 }).map((entries) => Object.fromEntries(entries)),
    ),
    keyword: fc.oneof(
      keyword("type", fc.constantFrom("string", "number", "integer", "boolean", "null", "array", "object")),
      keyword("const", comparable),
      keyword("enum", fc.array(comparable, { minLength: 1, maxLength: 3 })),
      keyword("minimum", fc.integer({ min: -9, max: 9 })),
      keyword("exclusiveMaximum", fc.integer({ min: -9, max: 9 })),
      keyword("multipleOf", fc.constantFrom(1, 2, 0.5, 3)),
      keyword("minLength", fc.nat(12)),
      keyword("maxLength", fc.nat(12)),
      keyword("pattern", fc.constantFrom(...patterns)),
      keyword("items", tie("schema")),
      keyword("prefixItems", schemas(2)),
      keyword("minItems", fc.nat(4)),
      keyword("maxItems", fc.nat(4)),
      keyword("uniqueItems", fc.boolean()),
      keyword("properties", fc.dictionary(fc.constantFrom("a", "b", "c"), tie("schema"), { maxKeys: 3 })),
      keyword("required", fc.uniqueArray(fc.constantFrom("a", "b", "d"), { maxLength: 2 })),
      keyword("additionalProperties", tie("schema")),
      keyword("minProperties", fc.nat(4)),
      keyword("maxProperties", fc.nat(4)),
      keyword("propertyNames", tie("schema")),
      keyword("anyOf", schemas(3)),
      keyword("oneOf", schemas(3)),
      keyword("allOf", schemas(2)),
      keyword("not", tie("schema")),
      keyword("patternProperties", fc.dictionary(fc.constantFrom("a", "^c"), tie("schema"), { maxKeys: 1 })),
      keyword("unevaluatedProperties", fc.boolean()),
      keyword("$ref", fc.constantFrom("#", "#/$defs/x", "#/properties/a")),
    ) as fc.Arbitrary<[string, unknown]>,
  };
});

test("Any schema ends within the work budget, with a valid example or a refusal that names a place.", () => {
  let valid = 0;
  fc.assert(
    fc.property(anySchema.schema, anySchema.schema, (schema, definition) => {
      const whole = typeof schema === "object" ? { ...schema, $defs: { x: definition } } : schema;
      const work = new Work();
      let value: unknown;
      try {
        value = JSON.parse(JSON.stringify(minimalInstance(whole, work)));
      } catch (error) {
        if (!(error instanceof UnsupportedSchemaError)) throw error;
        expect(error.place).toMatch(/^#/);
        return;
      } finally {
        expect(work.spent).toBeLessThanOrEqual(WORK_STEPS_MAX);
      }
      const verdict = verdictOf(whole, value);
      if (verdict === undefined) return;
      valid += 1;
      if (!verdict) throw new Error(`${JSON.stringify(value)} for ${JSON.stringify(whole)}`);
    }),
    { numRuns: 3_000 },
  );
  expect(valid).toBeGreaterThan(300);
});

/** Undefined if the validator has no verdict: for a missing or a circular reference. */
function verdictOf(schema: unknown, value: unknown): boolean | undefined {
  try {
    return ajv.validate(schema as object, value);
  } catch {
    return undefined;
  }
}
