import { fileURLToPath } from "node:url";
import { Ajv, type ErrorObject } from "ajv";
import { createGenerator } from "ts-json-schema-generator";

const generator = createGenerator({
  path: fileURLToPath(new URL("./openai-types.ts", import.meta.url)),
  tsconfig: fileURLToPath(new URL("../../tsconfig.json", import.meta.url)),
  type: "*",
  additionalProperties: true,
  skipTypeCheck: true,
});
const ajv = new Ajv({ strict: false, allErrors: true });

function checkOf(type: string): (value: unknown) => ErrorObject[] {
  const validate = ajv.compile(generator.createSchema(type));
  return (value) => (validate(value) ? [] : [...(validate.errors ?? [])]);
}

/** Lists where a value differs from OpenAI's own types. */
export const openaiIssues = {
  completion: checkOf("Completion"),
  chunk: checkOf("Chunk"),
  model: checkOf("ListedModel"),
};
