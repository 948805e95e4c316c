import type { IncomingHttpHeaders } from "node:http";
import { statusFailure } from "../errors.ts";
import { type AnswerRoom, UpstreamError } from "../provider.ts";
import type { Scrub } from "../scrub.ts";
import type { HttpAnswer, HttpBody } from "./exchange.ts";

export const EVENT_STREAM = "text/event-stream";
export const JSON_TYPE = "application/json";

/** Limit of an answer's body, streamed or not. */
export const BODY_BYTES_MAX = 16 * 1024 * 1024;
/** A longer answer needs room. */
export const LONG_BYTES = 1024 * 1024;
const ERROR_BYTES_MAX = 64 * 1024;
const ERROR_TIME_MS = 5_000;

/**
 * Returns an answer whose status is 200. Rejects with the failure of any other one; throws `malformed` if the body is
 * encoded although the request accepts only `identity`. The body is then closed.
 */
export function accepted(answer: HttpAnswer, scrub: Scrub): HttpAnswer | Promise<never> {
  const { status, headers, body } = answer;
  if (status !== 200) {
    return readErrorText(body).then((text) => {
      throw statusFailure(status, headers, text, scrub);
    });
  }
  const encoding = headers["content-encoding"] ?? "identity";
  if (encoding.toLowerCase() === "identity") return answer;
  body.destroy();
  throw new UpstreamError("malformed", "The upstream encoded its answer");
}

/** Tests whether an answer is an event stream and not JSON. Throws `malformed` for any other type. */
export function isEventStream(answer: HttpAnswer, isStreamed: boolean): boolean {
  const type = mediaTypeOf(answer.headers) || (isStreamed ? EVENT_STREAM : JSON_TYPE);
  if (type !== EVENT_STREAM && type !== JSON_TYPE) throw unknownType(answer);
  return type === EVENT_STREAM;
}

/** Closes the body of an answer whose media type cannot be read. Returns the failure `malformed`. */
export function unknownType({ headers, body }: HttpAnswer): UpstreamError {
  body.destroy();
  const type = mediaTypeOf(headers).slice(0, 80);
  return new UpstreamError("malformed", `The upstream answered with the content type '${type}'`);
}

/** Returns the media type of an answer in lower case, without parameters; empty if the answer has none. */
export function mediaTypeOf(headers: IncomingHttpHeaders): string {
  const [type = ""] = (headers["content-type"] ?? "").split(";", 1);
  return type.trim().toLowerCase();
}

/**
 * Reads a whole body as text; invalid UTF-8 becomes replacement characters. Rejects as `read` does, or with `malformed` if
 * the body exceeds `bytesMax`. A body of more than 1 MiB is read on when `room` has so much. `pieces` receives the bytes
 * as they arrive.
 */
export async function readText(body: HttpBody, { bytesMax = BODY_BYTES_MAX, room, pieces = [] }: ReadOptions = {}) {
  let length = 0;
  let isLong = false;
  for (let bytes = await body.read(); bytes !== undefined; bytes = await body.read()) {
    // Small pieces would each take many times their length as buffers of their own.
    pieces.push(joined(bytes));
    length += lengthOf(bytes);
    if (length > bytesMax) {
      body.destroy();
      throw answerTooLong(bytesMax);
    }
    if (isLong || length <= LONG_BYTES) continue;
    isLong = true;
    await room?.reserve(bytesMax);
  }
  room?.keep(length);
  return joined(pieces).toString();
}

interface ReadOptions {
  bytesMax?: number;
  room?: AnswerRoom | undefined;
  pieces?: Buffer[];
}

/** Returns the failure of an answer that exceeds `bytesMax`. */
export function answerTooLong(bytesMax = BODY_BYTES_MAX): UpstreamError {
  const text = `answer is longer than ${bytesMax} bytes`;
  return new UpstreamError("malformed", `The ${text}`, { publicReason: `The model's ${text}.` });
}

/** Joins buffers. A single one is returned without a copy. */
export function joined(pieces: readonly Buffer[]): Buffer {
  return pieces.length === 1 ? (pieces[0] as Buffer) : Buffer.concat(pieces);
}

/** Returns the total number of bytes of some buffers. */
export function lengthOf(pieces: readonly Buffer[]): number {
  return pieces.reduce((length, piece) => length + piece.length, 0);
}

/**
 * Reads the body of an error answer: at most 64 KiB, for at most five seconds. If the connection breaks, returns the bytes
 * before the break. Never rejects, because the status alone determines the failure.
 */
async function readErrorText(body: HttpBody): Promise<string> {
  const pieces: Buffer[] = [];
  const timer = setTimeout(() => body.destroy(), ERROR_TIME_MS);
  try {
    await readText(body, { bytesMax: ERROR_BYTES_MAX, pieces });
  } catch {
    // The bytes before the break, or up to the limit, may contain the reason.
  } finally {
    clearTimeout(timer);
    body.destroy();
  }
  return joined(pieces).toString().slice(0, ERROR_BYTES_MAX);
}
