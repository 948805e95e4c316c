import type { EmbeddingList } from "./request.ts";

/** A vector as an upstream sent it: numbers, or little-endian 32-bit floats in base64. */
export type EmbeddingVector = readonly number[] | string;

type Encoding = "float" | "base64";

const BYTES_A_NUMBER = 4;
const BASE64 = /^[A-Za-z0-9+/]+={0,2}$/;

/** Returns the length of a vector, or undefined if it is not one. */
export function dimensionsOf(vector: unknown): number | undefined {
  if (typeof vector === "string") {
    const bytes = vector.length % 4 === 0 && BASE64.test(vector) ? Buffer.byteLength(vector, "base64") : 0;
    return bytes > 0 && bytes % BYTES_A_NUMBER === 0 ? bytes / BYTES_A_NUMBER : undefined;
  }
  if (!Array.isArray(vector) || vector.length === 0) return undefined;
  return vector.every((number) => typeof number === "number" && Number.isFinite(number)) ? vector.length : undefined;
}

/** Returns a vector in an encoding; the same value if it has that encoding. */
export function encoded(vector: EmbeddingVector, encoding: Encoding): number[] | string {
  if (encoding === "base64") return typeof vector === "string" ? vector : toBase64(vector);
  return typeof vector === "string" ? toNumbers(vector) : (vector as number[]);
}

function toBase64(vector: readonly number[]): string {
  const bytes = Buffer.alloc(vector.length * BYTES_A_NUMBER);
  for (const [index, number] of vector.entries()) bytes.writeFloatLE(number, index * BYTES_A_NUMBER);
  return bytes.toString("base64");
}

function toNumbers(vector: string): number[] {
  const bytes = Buffer.from(vector, "base64");
  const numbers: number[] = [];
  for (let offset = 0; offset < bytes.length; offset += BYTES_A_NUMBER) numbers.push(bytes.readFloatLE(offset));
  return numbers;
}

/** Returns the body of an answer, in OpenAI's form. */
export function toEmbeddingList(
  { model, organizationId }: { model: string; organizationId: string },
  embeddings: readonly (number[] | string)[],
  { promptTokens, cost }: { promptTokens: number; cost: number },
): EmbeddingList {
  return {
    object: "list",
    data: embeddings.map((embedding, index) => ({ object: "embedding", index, embedding })),
    model,
    organization_id: organizationId,
    usage: { prompt_tokens: promptTokens, total_tokens: promptTokens, cost },
  };
}
