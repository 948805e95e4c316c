import { createHash } from "node:crypto";
import type { EmbeddingInput } from "../../api/embeddings/request.ts";
import { type ProviderEmbeddingCall, type ProviderEmbeddings, UpstreamError } from "../provider.ts";
import { countTokens } from "./text.ts";

export const EMBEDDING_MODEL = "embed";
const DIMENSIONS = 256;
/** Inputs after which others have their turn. */
const INPUTS_A_BATCH = 16;
const NUMBERS_A_HASH = 8;

/** Creates unit vectors that depend on nothing but the input and the dimensions: the same input always has the same vector. */
export async function embedInSandbox({
  model,
  inputs,
  dimensions = DIMENSIONS,
  signal,
}: ProviderEmbeddingCall): Promise<ProviderEmbeddings> {
  if (model !== EMBEDDING_MODEL) {
    const reason = `The sandbox creates embeddings with the model ${EMBEDDING_MODEL} alone.`;
    throw new UpstreamError("misconfigured", reason, { said: reason });
  }
  const vectors: number[][] = [];
  for (const [index, input] of inputs.entries()) {
    if (index % INPUTS_A_BATCH === 0) await new Promise((resolve) => setImmediate(resolve));
    signal.throwIfAborted();
    vectors.push(unitVector(input, dimensions));
  }
  const tokens = inputs.reduce((sum, input) => sum + tokensIn(input), 0);
  return { vectors, usage: { prompt_tokens: tokens, completion_tokens: 0 } };
}

function tokensIn(input: EmbeddingInput): number {
  return typeof input === "string" ? countTokens(input) : input.length;
}

function unitVector(input: EmbeddingInput, dimensions: number): number[] {
  const seed = createHash("sha256").update(JSON.stringify(input)).digest();
  const numbers: number[] = [];
  for (let block = 0; numbers.length < dimensions; block += 1) {
    const bytes = createHash("sha256").update(seed).update(String(block)).digest();
    for (let place = 0; place < NUMBERS_A_HASH; place += 1) numbers.push(bytes.readInt32LE(place * 4) / 2 ** 31);
  }
  const vector = numbers.slice(0, dimensions);
  const length = Math.hypot(...vector) || 1;
  return vector.map((number) => Math.fround(number / length));
}
