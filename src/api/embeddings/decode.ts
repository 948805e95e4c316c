import { Type } from "typebox";
import type { AnswerEnd, AnswerHead } from "../answer.ts";
import type { AnswerFold } from "../answer-fold.ts";
import { compileReader } from "../known-fields.ts";
import { compileCheck, refused, refuseIf, type ValidationIssue, wrongType } from "../validation.ts";
import type { DecodedEmbedding } from "../wire.ts";
import { type EmbeddingList, type EmbeddingOrder, EmbeddingRequest, INPUTS } from "./request.ts";
import { toEncodedText } from "./vector.ts";

const readOthers = compileReader(Type.Object({ ...EmbeddingRequest.properties, input: Type.Unknown() }));
const checks = Object.fromEntries(
  Object.entries(INPUTS).map(([form, input]) => [form, compileCheck(Type.Object({ input }))]),
) as { [Form in keyof typeof INPUTS]: ReturnType<typeof compileCheck> };
/** Fields of other embeddings APIs that change the vectors. */
const CHANGING_FIELDS = ["input_type", "output_dimension", "output_dtype", "task", "task_type", "truncate"];
const checkRefused = compileCheck({
  properties: Object.fromEntries(CHANGING_FIELDS.map((field) => [field, refused("remove it")])),
});

/** Reads the body of a request of embeddings. `null` counts as absent. Throws InvalidRequestError. */
export function decodeEmbedding(body: unknown): DecodedEmbedding {
  const { read, unknown } = readOthers(body);
  const stated = read as EmbeddingRequest;
  refuseIf(checkRefused(body) ?? checkInput(stated.input));
  const { model, input, dimensions, encoding_format: encoding = "float", user } = stated;
  const isOne = typeof input === "string" || typeof input[0] === "number";
  const inputs = (isOne ? [input] : input) as EmbeddingOrder["inputs"];
  return {
    kind: "embedding",
    request: { model, inputs, encoding, dimensions, user },
    // Nothing is charged as output.
    output: { param: "input", tokens: 0, isLimitedBySetting: false },
    ignored: unknown.names(),
    paramOf: (param) => param,
    document: (head, answer, end) => toEmbeddingList(encoding, head, answer, end),
  };
}

/** Chooses a form by the first value: with a union of arrays, an error would name the wrong branch. */
function checkInput(input: unknown): ValidationIssue | undefined {
  if (typeof input === "string") return checks.text({ input });
  if (!Array.isArray(input)) return wrongType("input", "a string or an array", input);
  const [first] = input;
  if (typeof first === "number") return checks.tokenIds({ input });
  return Array.isArray(first) ? checks.arraysOfTokenIds({ input }) : checks.texts({ input });
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
