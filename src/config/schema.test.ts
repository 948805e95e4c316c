import { Ajv } from "ajv";
import { expect, test } from "vitest";
import { ConfigSchema } from "./schema.ts";

test("the schema of the configuration is a valid JSON Schema", () => {
  const ajv = new Ajv({ strict: false });
  ajv.validateSchema(ConfigSchema);
  expect(ajv.errors ?? []).toEqual([]);
  expect(ajv.validateSchema({ type: "no type" })).toBe(false);
});
