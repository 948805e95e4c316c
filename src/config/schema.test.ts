import { Ajv } from "ajv";
import { expect, test } from "vitest";
import { mistakesIn } from "./mistake.ts";
import { addDefaults, ConfigSchema, configNode } from "./schema.ts";

test("the schema of the configuration is a valid JSON Schema", () => {
  const ajv = new Ajv({ strict: false });
  ajv.validateSchema(ConfigSchema);
  expect(ajv.errors ?? []).toEqual([]);
  expect(ajv.validateSchema({ type: "no type" })).toBe(false);
});

test("the defaults of the configuration fit its schema", () => {
  const values = { providers: [{ id: "up", kind: "openai-compatible" }] };
  expect(mistakesIn(values)).not.toEqual([]);
  addDefaults(values, configNode);
  expect(mistakesIn(values)).toEqual([]);
  expect(values.providers[0]).toMatchObject({ headers: {}, timeouts: { idleMs: 300_000 } });
});
