import type { EmbeddingVector } from "../../api/embeddings/answer.ts";
import { type ProviderEmbeddingCall, type ProviderEmbeddings, UpstreamError } from "../provider.ts";
import { failureInside, type Scrub } from "./errors.ts";
import { isObject, textOf } from "./json.ts";
import type { RequestFormat } from "./request.ts";

/** Longest answer: 2,048 vectors of 1,536 numbers as text. */
export const EMBEDDINGS_BYTES_MAX = 64 * 1024 * 1024;

/** Writes the body of a request of embeddings. A single input is sent alone, because not every API takes an array of token arrays. */
export function toEmbeddingBody(
  { model, inputs, dimensions, encoding, user }: ProviderEmbeddingCall,
  { encodesEmbeddings }: Pick<RequestFormat, "encodesEmbeddings">,
): string {
  const format = encodesEmbeddings ? encoding : "float";
  const input = inputs.length === 1 ? inputs[0] : inputs;
  return JSON.stringify({ model, input, encoding_format: format, dimensions, user });
}

/** Reads an answer. Items are placed by their `index`, or in their order where they have none. Throws UpstreamError. */
export function readEmbeddings(text: string, count: number, scrub: Scrub): ProviderEmbeddings {
  let answer: unknown;
  try {
    answer = JSON.parse(text);
  } catch {
    throw new UpstreamError("malformed", "The upstream's embeddings are not JSON");
  }
  if (!isObject(answer)) throw new UpstreamError("malformed", "The upstream's embeddings are not an object");
  const failure = failureInside(answer, scrub);
  if (failure !== undefined) throw failure;
  if (!Array.isArray(answer.data) || answer.data.length !== count) {
    throw new UpstreamError("malformed", "The upstream's answer does not have one embedding for each input");
  }
  const vectors: (EmbeddingVector | undefined)[] = Array.from({ length: count }, () => undefined);
  for (const [position, item] of answer.data.entries()) {
    if (!isObject(item)) continue;
    const index = typeof item.index === "number" ? item.index : position;
    if (index in vectors) vectors[index] = item.embedding as EmbeddingVector;
  }
  const { prompt_tokens, total_tokens, cost } = isObject(answer.usage) ? answer.usage : {};
  const usage = { prompt_tokens: prompt_tokens ?? total_tokens, completion_tokens: 0, cost };
  return { vectors, usage: isObject(answer.usage) ? usage : undefined, responseId: textOf(answer.id) };
}
