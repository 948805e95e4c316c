import { UpstreamError } from "../provider.ts";
import type { HttpBody } from "./exchange.ts";

/** An answer may have this many bytes, streamed or not. */
export const BODY_BYTES_MAX = 16 * 1024 * 1024;
const ERROR_BYTES_MAX = 64 * 1024;
const ERROR_TIME_MS = 5_000;

/**
 * Reads a whole body as text, invalid UTF-8 as replacement characters. Rejects as `read` does, or with `malformed` if the
 * body is longer than `bytesMax`.
 */
export async function readText(body: HttpBody, bytesMax = BODY_BYTES_MAX): Promise<string> {
  const pieces: Buffer[] = [];
  let length = 0;
  for (let bytes = await body.read(); bytes !== undefined; bytes = await body.read()) {
    pieces.push(...bytes);
    length += lengthOf(bytes);
    if (length > bytesMax) {
      body.destroy();
      throw answerTooLong(bytesMax);
    }
  }
  return joined(pieces, length);
}

export function answerTooLong(bytesMax = BODY_BYTES_MAX): UpstreamError {
  return new UpstreamError("malformed", `The answer is longer than ${bytesMax} bytes`);
}

/** Bytes of all pieces together. */
export function lengthOf(pieces: readonly Buffer[]): number {
  let length = 0;
  for (const piece of pieces) length += piece.length;
  return length;
}

/**
 * Reads what an error answer says: at most 64 KiB of it, for at most five seconds, and what came until then if the
 * connection breaks. Never rejects: the status alone tells what failed.
 */
export async function readErrorText(body: HttpBody): Promise<string> {
  const pieces: Buffer[] = [];
  let length = 0;
  const timer = setTimeout(() => body.destroy(), ERROR_TIME_MS);
  try {
    for (let bytes = await body.read(); bytes !== undefined; bytes = await body.read()) {
      pieces.push(...bytes);
      length += lengthOf(bytes);
      if (length > ERROR_BYTES_MAX) break;
    }
  } catch {
    // The bytes before the break may contain the reason.
  } finally {
    clearTimeout(timer);
    body.destroy();
  }
  return joined(pieces, length).slice(0, ERROR_BYTES_MAX);
}

function joined(pieces: readonly Buffer[], length: number): string {
  const [first] = pieces;
  return pieces.length === 1 && first !== undefined ? first.toString("utf8") : Buffer.concat(pieces, length).toString();
}
