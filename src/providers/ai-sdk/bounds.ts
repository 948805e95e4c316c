import { isObject, parseJson } from "../../api/json.ts";
import { failureInside } from "../errors.ts";
import { answerTooLong, BODY_BYTES_MAX, EVENT_STREAM } from "../http/answer.ts";
import { EVENT_LENGTH_MAX, EventStreamReader, eventTooLong } from "../http/event-stream.ts";
import { UpstreamError } from "../provider.ts";
import type { Scrub } from "../scrub.ts";

/** The media type of Amazon's event streams. */
export const AMAZON_EVENT_STREAM = "application/vnd.amazon.eventstream";

/** Bytes of the shortest frame: its length, the length of its headers, and two checksums. */
const FRAME_BYTES_MIN = 16;

/** Passes on whole events. Returns the length of the one that has begun. Throws UpstreamError if it is too long. */
type Bounds = (piece: Buffer, pass: Pass) => number;
type Pass = (whole: Uint8Array) => void;

/** Creates the bounds of one answer. The packages buffer an unfinished event without a limit. */
export function byteBoundsOf(mediaType: string, scrub: Scrub): Bounds {
  let bytes = 0;
  const whole = WHOLE[mediaType]?.(scrub);
  return (piece, pass) => {
    bytes += piece.length;
    if (bytes > BODY_BYTES_MAX) throw answerTooLong();
    if (whole !== undefined) return whole(piece, pass);
    pass(piece);
    return 0;
  };
}

const WHOLE: Readonly<Record<string, (scrub: Scrub) => Bounds>> = {
  [EVENT_STREAM]: wholeEvents,
  [AMAZON_EVENT_STREAM]: wholeFrames,
};

/** Passes on events in a form that the packages read: with data, and with LF. An error in one ends the answer. */
function wholeEvents(scrub: Scrub): Bounds {
  const reader = new EventStreamReader();
  return (piece, pass) => {
    const events: string[] = [];
    let failure: unknown;
    try {
      reader.push(piece, events);
    } catch (error) {
      failure = error;
    }
    const end = events.findIndex((data) => IS_ERROR.test(data));
    passTogether(end < 0 ? events : events.slice(0, end), pass);
    failure = failureOf(events[end], scrub) ?? failure;
    if (failure !== undefined) throw failure;
    return reader.pendingLength;
  };
}

const IS_ERROR = /^\s*\{\s*"error"\s*:\s*\{/;

function failureOf(data: string | undefined, scrub: Scrub): UpstreamError | undefined {
  if (data === undefined) return undefined;
  const error = parseJson(data);
  if (isObject(error)) return failureInside(error, scrub);
  return new UpstreamError("malformed", "The upstream sent an error that is not JSON");
}

/** Size at which a group of small events is passed to the package. Its pipes buffer that much while the reader is not reading. */
export const PIECE_BYTES = 4 * 1024;
/** Allocates each result separately. Small Node buffers share 64 KiB, which each of them keeps in memory. */
const encoder = new TextEncoder();

function passTogether(events: readonly string[], pass: Pass): void {
  let together = "";
  for (const data of events) {
    together += `data: ${data.replaceAll("\n", "\ndata: ")}\n\n`;
    if (together.length < PIECE_BYTES) continue;
    pass(encoder.encode(together));
    together = "";
  }
  if (together !== "") pass(encoder.encode(together));
}

/** Passes on whole frames (Smithy, "Event stream encoding"): the package would drop those before a broken one. */
function wholeFrames(): Bounds {
  /** The frame that has begun. Small pieces would each take many times their length as buffers of their own. */
  let frame = Buffer.alloc(0);
  let keptBytes = 0;
  return (piece, pass) => {
    if (keptBytes + piece.length < frame.length) {
      keptBytes += piece.copy(frame, keptBytes);
      return keptBytes;
    }
    const bytes = keptBytes === 0 ? piece : Buffer.concat([frame.subarray(0, keptBytes), piece]);
    let [start, end] = [0, endOfFrame(bytes, 0)];
    for (; end <= bytes.length; end = endOfFrame(bytes, start)) {
      pass(bytes.subarray(start, end));
      start = end;
    }
    frame = Buffer.allocUnsafeSlow(end - start);
    keptBytes = bytes.copy(frame, 0, start);
    return keptBytes;
  };
}

/** Returns the end of the frame that begins at `start`, or of its length if that has not arrived. */
function endOfFrame(bytes: Buffer, start: number): number {
  if (bytes.length - start < 4) return start + 4;
  const length = bytes.readUInt32BE(start);
  if (length > EVENT_LENGTH_MAX) throw eventTooLong();
  if (length < FRAME_BYTES_MIN) throw new UpstreamError("malformed", "The upstream sent a frame without a length");
  return start + length;
}
