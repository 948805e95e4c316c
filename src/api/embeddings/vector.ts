/** A vector as an upstream sent it: numbers, or little-endian 32-bit floats in base64. */
export type EmbeddingVector = readonly number[] | NumbersText | string;

/** A vector as the JSON of an array of finite numbers, which is passed on without being parsed. */
export class NumbersText {
  readonly json: string;

  constructor(json: string) {
    this.json = json;
  }

  toJSON(): unknown {
    return JSON.parse(this.json);
  }
}

const BYTES_A_NUMBER = 4;
const BASE64 = /^[A-Za-z0-9+/]+={0,2}$/;

/** Returns the length of a vector, or undefined if it is not one. */
export function dimensionsOf(vector: unknown): number | undefined {
  if (vector instanceof NumbersText) return countOf(vector);
  if (typeof vector === "string") {
    const bytes = vector.length % 4 === 0 && BASE64.test(vector) ? Buffer.byteLength(vector, "base64") : 0;
    return bytes > 0 && bytes % BYTES_A_NUMBER === 0 ? bytes / BYTES_A_NUMBER : undefined;
  }
  if (!Array.isArray(vector) || vector.length === 0) return undefined;
  // A loop, because a call for each number takes several times as long.
  for (const number of vector) if (!Number.isFinite(number)) return undefined;
  return vector.length;
}

function countOf({ json }: NumbersText): number {
  let count = 1;
  for (let comma = json.indexOf(","); comma >= 0; comma = json.indexOf(",", comma + 1)) count += 1;
  return count;
}

/** Returns the JSON of a vector in an encoding. */
export function toEncodedText(vector: EmbeddingVector, encoding: "float" | "base64"): string {
  if (encoding === "base64") return `"${typeof vector === "string" ? vector : toBase64(vector)}"`;
  if (vector instanceof NumbersText) return vector.json;
  if (typeof vector !== "string") return JSON.stringify(vector);
  return JSON.stringify([...new Float32Array(Uint8Array.from(Buffer.from(vector, "base64")).buffer)]);
}

/** A typed array has the byte order of the machine, which is little-endian on x64 and arm64. */
function toBase64(vector: readonly number[] | NumbersText): string {
  const numbers: readonly number[] = vector instanceof NumbersText ? JSON.parse(vector.json) : vector;
  return Buffer.from(new Float32Array(numbers).buffer).toString("base64");
}
