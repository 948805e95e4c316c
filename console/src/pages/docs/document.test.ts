import { expect, test } from "vitest";
import {
  boundsLabel,
  descriptionOf,
  type JsonSchema,
  objectsOf,
  sampleOf,
  sampleQueryOf,
  typeLabel,
} from "./document.ts";

const NULLABLE: JsonSchema = {
  anyOf: [{ type: "integer", minimum: 1, maximum: 4096, description: "Most tokens." }, { type: "null" }],
};
const PARTS: JsonSchema = {
  type: "array",
  items: {
    oneOf: [
      {
        type: "object",
        required: ["type", "text"],
        properties: { type: { enum: ["text"] }, text: { type: "string" } },
      },
      { type: "object", properties: { type: { const: "image" }, url: { type: "string" } } },
    ],
  },
};

test("The type of a value is named in words.", () => {
  expect(typeLabel(NULLABLE)).toBe("integer or null");
  expect(typeLabel({ enum: ["auto", "none"] })).toBe('"auto" or "none"');
  expect(typeLabel({ type: "array", items: { type: "string" } })).toBe("list of strings");
  expect(typeLabel({ anyOf: [{ type: "string" }, PARTS] })).toBe("string or list of objects");
  expect(typeLabel({ type: ["string", "null"] })).toBe("string or null");
  expect(typeLabel({})).toBe("any value");
});

test("The allowed values are named, also of a value that can be null.", () => {
  expect(boundsLabel(NULLABLE)).toBe("1 to 4,096");
  expect(boundsLabel({ minLength: 1 })).toBe("at least 1 character");
  expect(boundsLabel({ maxItems: 4, default: [] })).toBe("at most 4 entries, default []");
  expect(boundsLabel({ type: "string" })).toBe("");
  expect(descriptionOf(NULLABLE)).toBe("Most tokens.");
});

test("The objects inside a value are found, and the alternatives are distinguished.", () => {
  expect(objectsOf({ anyOf: [{ type: "string" }, PARTS] }).map(({ label }) => label)).toEqual([
    'type "text"',
    'type "image"',
  ]);
  expect(objectsOf({ type: "string" })).toEqual([]);
});

test("The sample of a body has its required fields.", () => {
  const body = {
    type: "object",
    required: ["model", "parts", "count", "isOpen"],
    properties: {
      model: { type: "string" },
      parts: PARTS,
      count: { type: "integer", minimum: 3 },
      isOpen: { type: "boolean" },
      seed: { type: "integer" },
    },
  };
  expect(sampleOf(body)).toEqual({ model: "…", parts: [{ type: "text", text: "…" }], count: 3, isOpen: true });
});

test("The file of a form is named as such, and the example of a query has its required parameters.", () => {
  expect(typeLabel({ contentMediaType: "audio/*" })).toBe("file");
  const by = { name: "by", in: "query", required: true, schema: { enum: ["day", "model"] } };
  const from = { name: "from", in: "query", schema: { type: "string" } };
  expect(sampleQueryOf([from, { ...by, in: "path" }, by])).toBe("?by=day");
  expect(sampleQueryOf([from])).toBe("");
});
