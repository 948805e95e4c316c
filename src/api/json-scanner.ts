import { JSON_DEPTH_MAX, JSON_VALUES_MAX } from "./chat/request.ts";

/** Limits of a JSON text. Member names do not count as values. */
interface JsonBounds {
  /** Nested arrays and objects. */
  depth: number;
  values: number;
}

/** The limits of a request body, and of each JSON text inside of it. */
export const JSON_BOUNDS: JsonBounds = { depth: JSON_DEPTH_MAX, values: JSON_VALUES_MAX };

const QUOTE = 0x22;
const BACKSLASH = 0x5c;
const COMMA = 0x2c;
const OPENING_BRACKET = 0x5b;
const CLOSING_BRACKET = 0x5d;
const OPENING_BRACE = 0x7b;
const CLOSING_BRACE = 0x7d;
/** Bytes of a string that are read one by one before its end is searched: a search costs as much. */
const SHORT_BYTES = 64;

const UNBOUNDED: JsonBounds = { depth: Number.POSITIVE_INFINITY, values: Number.POSITIVE_INFINITY };

/** Counts the depth and the values of a JSON text while its bytes arrive, so that it is rejected early. */
export class JsonScanner {
  readonly #bounds: JsonBounds;
  #depth = 0;
  /** The outermost value, and one for each comma and each opening bracket. */
  #values = 1;
  #isInString = false;
  #isEscaped = false;

  constructor(bounds: JsonBounds = UNBOUNDED) {
    this.#bounds = bounds;
  }

  /** True after the beginning of an array or an object that has not ended. */
  get isWithin(): boolean {
    return this.#depth > 0;
  }

  /** Scans the next bytes. Returns the limit that they exceed; do not call it again afterwards. */
  scan(bytes: Uint8Array): keyof JsonBounds | undefined {
    let [depth, values, isInString, isEscaped] = [this.#depth, this.#values, this.#isInString, this.#isEscaped];
    const { depth: depthMax, values: valuesMax } = this.#bounds;
    let searchAt = SHORT_BYTES;
    for (let at = 0; at < bytes.length; at += 1) {
      const byte = bytes[at];
      if (isInString) {
        if (isEscaped) isEscaped = false;
        else if (at >= searchAt) {
          const quote = bytes.indexOf(QUOTE, at);
          const end = quote < 0 ? bytes.length : quote;
          isEscaped = isEscapedAt(bytes, at, end);
          at = end - 1;
          searchAt = end + SHORT_BYTES;
        } else if (byte === BACKSLASH) isEscaped = true;
        else if (byte === QUOTE) isInString = false;
      } else if (byte === QUOTE) {
        isInString = true;
        searchAt = at + SHORT_BYTES;
      } else if (byte === COMMA) {
        values += 1;
        if (values > valuesMax) return "values";
      } else if (byte === OPENING_BRACE || byte === OPENING_BRACKET) {
        depth += 1;
        values += 1;
        if (depth > depthMax) return "depth";
        if (values > valuesMax) return "values";
      } else if (byte === CLOSING_BRACE || byte === CLOSING_BRACKET) depth -= 1;
    }
    [this.#depth, this.#values, this.#isInString, this.#isEscaped] = [depth, values, isInString, isEscaped];
    return undefined;
  }
}

/** Tests whether the byte at `end` is escaped, where the one at `from` is not. */
function isEscapedAt(bytes: Uint8Array, from: number, end: number): boolean {
  let start = end;
  while (start > from && bytes[start - 1] === BACKSLASH) start -= 1;
  return (end - start) % 2 === 1;
}
