import { fileURLToPath } from "node:url";
import { Ajv, type ErrorObject } from "ajv";
import { createGenerator } from "ts-json-schema-generator";
import { expect } from "vitest";
import { ChatCompletion, ChatCompletionChunk } from "../../src/api/chat/completion.ts";
import { Model, ModelList } from "../../src/api/model.ts";
import { UsageReport } from "../../src/api/usage.ts";
import { compileCheck } from "../../src/api/validation.ts";

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
const openaiIssues = {
  completion: checkOf("Completion"),
  chunk: checkOf("Chunk"),
  model: checkOf("ListedModel"),
};

const ours = {
  completion: compileCheck(ChatCompletion),
  chunk: compileCheck(ChatCompletionChunk),
  model: compileCheck(Model),
  models: compileCheck(ModelList),
  usage: compileCheck(UsageReport),
};

/** A completion that keeps our contract and OpenAI's, with the rules that no schema says. */
export function expectCompletion(value: unknown): ChatCompletion {
  expect(ours.completion(value)).toBeUndefined();
  expect(openaiIssues.completion(value)).toEqual([]);
  const completion = value as ChatCompletion;
  const { usage, messages, choices } = completion;
  expect(usage.total_tokens).toBe(usage.prompt_tokens + usage.completion_tokens);
  const reply = messages.at(-1);
  expect(reply?.role).toBe("assistant");
  expect(reply?.content).toBe(choices[0]?.message.content ?? "");
  expect(completion).not.toHaveProperty("error");
  return completion;
}

export function expectChunk(value: unknown): ChatCompletionChunk {
  expect(ours.chunk(value)).toBeUndefined();
  expect(openaiIssues.chunk(value)).toEqual([]);
  return value as ChatCompletionChunk;
}

export function expectModel(value: unknown): Model {
  expect(ours.model(value)).toBeUndefined();
  expect(openaiIssues.model(value)).toEqual([]);
  return value as Model;
}

export function expectModelList(value: unknown): ModelList {
  expect(ours.models(value)).toBeUndefined();
  const list = value as ModelList;
  for (const model of list.data) expectModel(model);
  return list;
}

export function expectUsage(value: unknown): UsageReport {
  expect(ours.usage(value)).toBeUndefined();
  return value as UsageReport;
}
