import { Type } from "typebox";
import type { AnswerEnd, AnswerHead } from "../answer.ts";
import type { AnswerFold } from "../answer-fold.ts";
import { isObject } from "../json.ts";
import { compileCopy } from "../known-fields.ts";
import { compileCheck, invalid, type ValidationIssue, wrongType } from "../validation.ts";
import type { DecodedEmbedding } from "../wire.ts";
import { UnknownFields } from "../wording.ts";
import {
  type EmbeddingInput,
  type EmbeddingList,
  type EmbeddingOrder,
  EmbeddingRequest,
  INPUTS_MAX,
} from "./request.ts";
import { toEncodedText } from "./vector.ts";

/** `input` is checked by hand: with a union of arrays, an error would name the wrong branch. */
const Others = Type.Object({ ...EmbeddingRequest.properties, input: Type.Unknown() });
const checkOthers = compileCheck(Others);
const copyKnown = compileCopy(Others);
/** Fields of other embeddings APIs that change the vectors. */
const CHANGING_FIELDS = ["input_type", "output_dimension", "output_dtype", "task", "task_type", "truncate"];

/** Reads the body of a request of embeddings, or returns its first issue. `null` counts as absent. */
export function decodeEmbedding(body: unknown): DecodedEmbedding | { issue: ValidationIssue } {
  if (!isObject(body)) return { issue: wrongType(null, "an object", body) };
  const unknown = new UnknownFields();
  const stated = copyKnown(body, unknown) as EmbeddingRequest;
  const issue = checkOthers(stated) ?? refusedField(body);
  if (issue !== undefined) return { issue };
  const { model, input, dimensions, encoding_format: encoding = "float", user } = stated;
  const inputs = inputsOf(input);
  if ("code" in inputs) return { issue: inputs };
  const request: EmbeddingOrder = {
    ...{ model, inputs, encoding },
    ...(dimensions !== undefined && { dimensions }),
    ...(user !== undefined && { user }),
  };
  return {
    kind: "embedding",
    request,
    // Nothing is charged as output.
    output: { param: "input", tokens: 0, isLimitedBySetting: false },
    ignored: unknown.names(),
    paramOf: (param) => param,
    document: (head, answer, end) => toEmbeddingList(encoding, head, answer, end),
  };
}

function refusedField(body: Record<string, unknown>): ValidationIssue | undefined {
  const param = CHANGING_FIELDS.find((field) => (body[field] ?? undefined) !== undefined);
  if (param === undefined) return undefined;
  return { code: "unsupported_value", param, message: `Unsupported parameter: '${param}'. Remove it.` };
}

function inputsOf(input: unknown): readonly EmbeddingInput[] | ValidationIssue {
  if (typeof input === "string") return textIssue(input, "input") ?? [input];
  if (!Array.isArray(input)) return wrongType("input", "a string or an array", input);
  const [first] = input;
  if (typeof first === "number") return tokensIssue(input, "input") ?? [input];
  if (input.length === 0) return invalid("input", "empty array. Expected an array with minimum length 1");
  if (input.length > INPUTS_MAX) {
    return invalid("input", `array too long. Expected at most ${INPUTS_MAX} items, but got ${input.length}`);
  }
  const check = Array.isArray(first) ? tokensIssue : textIssue;
  for (const [index, one] of input.entries()) {
    const issue = check(one, `input[${index}]`);
    if (issue !== undefined) return issue;
  }
  return input;
}

function textIssue(text: unknown, param: string): ValidationIssue | undefined {
  if (typeof text !== "string") return wrongType(param, "a string", text);
  return text === "" ? invalid(param, "empty string. Expected a string with minimum length 1") : undefined;
}

function tokensIssue(ids: unknown, param: string): ValidationIssue | undefined {
  if (!Array.isArray(ids)) return wrongType(param, "an array of token ids", ids);
  if (ids.length === 0) return invalid(param, "empty array. Expected an array with minimum length 1");
  const wrong = ids.findIndex((id) => !Number.isSafeInteger(id) || id < 0);
  if (wrong < 0) return undefined;
  return typeof ids[wrong] === "number"
    ? invalid(`${param}[${wrong}]`, "a token id must be an integer of at least 0")
    : wrongType(`${param}[${wrong}]`, "a token id", ids[wrong]);
}

/** Returns the body of an answer, in OpenAI's form, as JSON: vectors that came as text are passed on as text. */
function toEmbeddingList(
  encoding: EmbeddingOrder["encoding"],
  { model, organizationId }: AnswerHead,
  { vectors = [] }: Pick<AnswerFold, "vectors">,
  { usage: { prompt_tokens, cost = 0 } }: AnswerEnd,
): string {
  const items = vectors.map(
    (vector, index) => `{"object":"embedding","index":${index},"embedding":${toEncodedText(vector, encoding)}}`,
  );
  const rest = {
    model,
    organization_id: organizationId,
    usage: { prompt_tokens, total_tokens: prompt_tokens, cost },
  } satisfies Partial<EmbeddingList>;
  return `{"object":"list","data":[${items.join(",")}],${JSON.stringify(rest).slice(1)}`;
}
