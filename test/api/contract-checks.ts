import { fileURLToPath } from "node:url";
import { Ajv, type ErrorObject } from "ajv";
import { createGenerator, type Definition, type Schema } from "ts-json-schema-generator";
import { expect } from "vitest";
import { ChatCompletion, ChatCompletionChunk } from "../../src/api/chat/completion.ts";
import { EmbeddingList } from "../../src/api/embeddings/request.ts";
import { Model, ModelList } from "../../src/api/model.ts";
import { ResponseEvent, ResponseObject } from "../../src/api/responses/response.ts";
import { UsageReport } from "../../src/api/usage.ts";
import { compileCheck, ErrorEnvelope } from "../../src/api/validation.ts";

const generator = createGenerator({
  path: fileURLToPath(new URL("./openai-types.ts", import.meta.url)),
  tsconfig: fileURLToPath(new URL("../../tsconfig.json", import.meta.url)),
  type: "*",
  additionalProperties: true,
  skipTypeCheck: true,
});
const ajv = new Ajv({ strict: false, allErrors: true });

const NULL: Definition = { type: "null" };

type Check = (value: unknown) => ErrorObject[];

function checkOf(type: string): Check {
  return compileIssues(schemaOf(type));
}

function compileIssues(schema: Schema): Check {
  const validate = ajv.compile(schema);
  return (value) => (validate(value) ? [] : [...(validate.errors ?? [])]);
}

function schemaOf(type: string): Schema {
  const schema = generator.createSchema(type);
  for (const definition of Object.values(schema.definitions ?? {}) as Definition[]) {
    if (!definition.required?.includes("output_text")) continue;
    // The client itself computes this field of a response: it is not on the wire.
    definition.required = definition.required.filter((name) => name !== "output_text");
    // OpenAI's API sends null until the response has ended, which its types leave out and Open Responses requires.
    definition.properties = { ...definition.properties, usage: { anyOf: [definition.properties?.usage ?? {}, NULL] } };
  }
  return schema;
}

/** Checks an event against the type that its `type` selects, so that the issues are those of one type. */
function eventCheck(): Check {
  const schema = schemaOf("StreamedEvent");
  const definitions = (schema.definitions ?? {}) as Record<string, Definition>;
  const references = new Map<unknown, string>();
  for (const { $ref = "" } of (definitions.ResponseStreamEvent?.anyOf ?? []) as Definition[]) {
    const named = definitions[decodeURIComponent($ref.replace("#/definitions/", ""))];
    references.set((named?.properties?.type as Definition | undefined)?.const, $ref);
  }
  const checks = new Map<unknown, Check>();
  return (event) => {
    const { type } = event as { type: unknown };
    const $ref = references.get(type);
    expect($ref, `The client knows no event ${type}`).toBeDefined();
    const check = checks.get(type) ?? compileIssues({ ...schema, $ref });
    checks.set(type, check);
    return check(event);
  };
}

/** Lists where a value differs from OpenAI's own types. */
const openaiIssues = {
  completion: checkOf("Completion"),
  chunk: checkOf("Chunk"),
  model: checkOf("ListedModel"),
  response: checkOf("WholeResponse"),
  event: eventCheck(),
  embeddings: checkOf("Embeddings"),
  error: checkOf("ErrorEnvelope"),
};

const ours = {
  completion: compileCheck(ChatCompletion),
  chunk: compileCheck(ChatCompletionChunk),
  model: compileCheck(Model),
  models: compileCheck(ModelList),
  usage: compileCheck(UsageReport),
  response: compileCheck(ResponseObject),
  event: compileCheck(ResponseEvent),
  embeddings: compileCheck(EmbeddingList),
  error: compileCheck(ErrorEnvelope),
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

export function expectResponse(value: unknown): ResponseObject {
  expect(ours.response(value)).toBeUndefined();
  expect(openaiIssues.response(value)).toEqual([]);
  return value as ResponseObject;
}

export type StreamedEvent = { type: string; sequence_number: number; [field: string]: unknown };

export function expectResponseEvent(value: unknown): StreamedEvent {
  expect(ours.event(value)).toBeUndefined();
  expect(openaiIssues.event(value)).toEqual([]);
  const { response } = value as { response?: unknown };
  if (response !== undefined) expectResponse(response);
  return value as StreamedEvent;
}

export function expectEmbeddings(value: unknown): EmbeddingList {
  expect(ours.embeddings(value)).toBeUndefined();
  expect(openaiIssues.embeddings(value)).toEqual([]);
  return value as EmbeddingList;
}

export function expectError(value: unknown): ErrorEnvelope["error"] {
  expect(ours.error(value)).toBeUndefined();
  expect(openaiIssues.error(value)).toEqual([]);
  return (value as ErrorEnvelope).error;
}
