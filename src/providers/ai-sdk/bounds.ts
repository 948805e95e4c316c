import { EVENT_LENGTH_MAX } from "../event-stream.ts";
import { BODY_BYTES_MAX } from "../http/body.ts";
import { UpstreamError } from "../provider.ts";

/** A frame's length, the length of its headers and their checksum; the shortest frame has a checksum more. */
const FRAME_BYTES_MIN = 16;

/** Takes a piece of an answer and gives what may go on; throws UpstreamError where the answer grows beyond its bounds. */
type Bounds = (piece: Uint8Array) => Uint8Array;

/** The bounds of an answer of a media type: the packages keep an unfinished event, however long it grows. */
export function boundsOf(mediaType: string): Bounds {
  const total = boundTotal();
  if (mediaType === "text/event-stream") return inTurn(total, boundEvents());
  return mediaType === "application/vnd.amazon.eventstream" ? inTurn(total, wholeFrames()) : total;
}

function inTurn(first: Bounds, second: Bounds): Bounds {
  return (piece) => second(first(piece));
}

function boundTotal(): Bounds {
  let bytes = 0;
  return (piece) => {
    bytes += piece.length;
    if (bytes > BODY_BYTES_MAX) throw tooLong("answer", BODY_BYTES_MAX);
    return piece;
  };
}

const LINE_FEED = 0x0a;
const CARRIAGE_RETURN = 0x0d;

/** Counts what comes between two empty lines. */
function boundEvents(): Bounds {
  let eventBytes = 0;
  let lineBytes = 0;
  let isAfterCarriage = false;
  return (piece) => {
    let start = 0;
    for (let end = nextEnd(piece, 0); end >= 0; end = nextEnd(piece, start)) {
      const isSameEnd = isAfterCarriage && end === start && piece[end] === LINE_FEED;
      lineBytes += end - start;
      eventBytes = lineBytes === 0 && !isSameEnd ? 0 : eventBytes + end - start;
      lineBytes = 0;
      isAfterCarriage = piece[end] === CARRIAGE_RETURN;
      start = end + 1;
    }
    if (start < piece.length) isAfterCarriage = false;
    eventBytes += piece.length - start;
    lineBytes += piece.length - start;
    if (eventBytes > EVENT_LENGTH_MAX) throw tooLong("event", EVENT_LENGTH_MAX);
    return piece;
  };
}

function nextEnd(piece: Uint8Array, from: number): number {
  const feed = piece.indexOf(LINE_FEED, from);
  const carriage = piece.indexOf(CARRIAGE_RETURN, from);
  return feed < 0 || carriage < 0 ? Math.max(feed, carriage) : Math.min(feed, carriage);
}

/**
 * Passes on only whole frames of Amazon's event stream (application/vnd.amazon.eventstream, "Event stream encoding" of
 * the Smithy specification): the package would throw away whole frames that stand before a broken one.
 */
function wholeFrames(): Bounds {
  let kept: Uint8Array = new Uint8Array();
  return (piece) => {
    const bytes = kept.length === 0 ? piece : Buffer.concat([kept, piece]);
    const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
    let end = 0;
    while (bytes.length - end >= 4) {
      const length = view.getUint32(end);
      if (length > EVENT_LENGTH_MAX) throw tooLong("event", EVENT_LENGTH_MAX);
      if (length < FRAME_BYTES_MIN) throw new UpstreamError("malformed", "The upstream sent a frame without a length");
      if (bytes.length - end < length) break;
      end += length;
    }
    kept = bytes.slice(end);
    return bytes.subarray(0, end);
  };
}

function tooLong(what: string, bytes: number): UpstreamError {
  return new UpstreamError("malformed", `The upstream sent an ${what} of more than ${bytes} bytes`);
}
