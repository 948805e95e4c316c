import { Ajv } from "ajv";
import { expect, test } from "vitest";
import { addDefaults, ConfigSchema, compile, configNode } from "./schema.ts";

test("the schema of the configuration is a valid JSON Schema", () => {
  const ajv = new Ajv({ strict: false });
  ajv.validateSchema(ConfigSchema);
  expect(ajv.errors ?? []).toEqual([]);
  expect(ajv.validateSchema({ type: "no type" })).toBe(false);
});

test("the defaults of the configuration fit its schema", () => {
  const values = { providers: [{ id: "up", kind: "openai-compatible" }] };
  const check = compile(ConfigSchema);
  expect(check(structuredClone(values))).toBe(false);
  addDefaults(values, configNode);
  check(values);
  expect(check.errors ?? []).toEqual([]);
  expect(values.providers[0]).toMatchObject({ headers: {}, timeouts: { idleMs: 300_000 } });
});
