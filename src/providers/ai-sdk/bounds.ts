import { EVENT_LENGTH_MAX, EventStreamReader } from "../event-stream.ts";
import { answerTooLong, BODY_BYTES_MAX } from "../http/body.ts";
import { failureInside, type Scrub } from "../openai/errors.ts";
import { UpstreamError } from "../provider.ts";

/** A frame's length, the length of its headers and their checksum; the shortest frame has a checksum more. */
const FRAME_BYTES_MIN = 16;

/** Takes a piece of an answer and passes on what of it is whole; throws UpstreamError where the answer grows beyond its bounds. */
type Bounds = (piece: Buffer, pass: Pass) => void;
type Pass = (whole: Uint8Array) => void;

/** The bounds of an answer of a media type: the packages keep an unfinished event, however long it grows. */
export function boundsOf(mediaType: string, scrub: Scrub): Bounds {
  const total = boundTotal();
  const whole = WHOLE[mediaType]?.(scrub);
  return (piece, pass) => {
    total(piece);
    if (whole === undefined) pass(piece);
    else whole(piece, pass);
  };
}

const WHOLE: Readonly<Record<string, (scrub: Scrub) => Bounds>> = {
  "text/event-stream": wholeEvents,
  "application/vnd.amazon.eventstream": wholeFrames,
};

function boundTotal(): (piece: Buffer) => void {
  let bytes = 0;
  return (piece) => {
    bytes += piece.length;
    if (bytes > BODY_BYTES_MAX) throw answerTooLong();
  };
}

/**
 * Passes on only whole events, each written in the plainest way: the packages make an error of an event without data, and
 * lose the last one of a stream whose lines end in CR. Some of them also pass over an event that is an error and nothing
 * else: that ends the answer here.
 */
function wholeEvents(scrub: Scrub): Bounds {
  const reader = new EventStreamReader();
  return (piece, pass) => {
    const events: string[] = [];
    let failure: UpstreamError | undefined;
    try {
      reader.push(piece, events);
    } catch {
      failure = tooLong();
    }
    const end = events.findIndex((data) => IS_ERROR.test(data));
    passTogether(end < 0 ? events : events.slice(0, end), pass);
    failure = toldBy(events[end], scrub) ?? failure;
    if (failure !== undefined) throw failure;
  };
}

const IS_ERROR = /^\s*\{\s*"error"\s*:\s*\{/;

function toldBy(data: string | undefined, scrub: Scrub): UpstreamError | undefined {
  if (data === undefined) return undefined;
  try {
    return failureInside(JSON.parse(data), scrub);
  } catch {
    return new UpstreamError("malformed", "The upstream sent an error that is not JSON");
  }
}

/** Size at which a group of small events is passed to the package. Its pipes buffer that much while the reader is not reading. */
export const PIECE_BYTES = 4 * 1024;
/** Small buffers share one of 64 KiB, which any of them keeps; what this makes keeps itself alone. */
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

/**
 * Passes on only whole frames of Amazon's event stream (application/vnd.amazon.eventstream, "Event stream encoding" of
 * the Smithy specification), one by one: the package would throw away whole frames that stand before a broken one, and
 * copies all that it was given at once again for each frame of it.
 */
function wholeFrames(): Bounds {
  let kept: Buffer = Buffer.alloc(0);
  return (piece, pass) => {
    const bytes = kept.length === 0 ? piece : Buffer.concat([kept, piece]);
    let start = 0;
    for (let end = endOfFrame(bytes, start); end <= bytes.length; end = endOfFrame(bytes, start)) {
      pass(bytes.subarray(start, end));
      start = end;
    }
    kept = Buffer.from(bytes.subarray(start));
  };
}

/** Returns the end of the frame that begins at `start`; infinity while its length has not arrived. */
function endOfFrame(bytes: Buffer, start: number): number {
  if (bytes.length - start < 4) return Number.POSITIVE_INFINITY;
  const length = bytes.readUInt32BE(start);
  if (length > EVENT_LENGTH_MAX) throw tooLong();
  if (length < FRAME_BYTES_MIN) throw new UpstreamError("malformed", "The upstream sent a frame without a length");
  return start + length;
}

function tooLong(): UpstreamError {
  return new UpstreamError("malformed", `The upstream sent an event of more than ${EVENT_LENGTH_MAX} bytes`);
}
