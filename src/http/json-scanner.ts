/** Bounds on a JSON text. A value counts once; the name of an object's member does not count. */
export interface JsonBounds {
  /** Levels of arrays and objects. */
  depth: number;
  values: number;
}

const QUOTE = 0x22;
const BACKSLASH = 0x5c;
const COMMA = 0x2c;
const OPENING_BRACKET = 0x5b;
const CLOSING_BRACKET = 0x5d;
const OPENING_BRACE = 0x7b;
const CLOSING_BRACE = 0x7d;

/**
 * Watches the bytes of a JSON text as they arrive, so that a text which would be expensive to parse is refused before it
 * is there. It is exact up to the first syntax error, and a parser reads no further than that.
 */
export class JsonScanner {
  readonly #bounds: JsonBounds;
  #depth = 0;
  /** The outermost value is one; every comma and every element or member that a bracket opens is another one. */
  #values = 1;
  #isInString = false;
  #isEscaped = false;

  constructor(bounds: JsonBounds) {
    this.#bounds = bounds;
  }

  /** Reads the next bytes. Returns the bound that they exceed; the text is not to be scanned any further then. */
  scan(bytes: Uint8Array): keyof JsonBounds | undefined {
    let [depth, values, isInString, isEscaped] = [this.#depth, this.#values, this.#isInString, this.#isEscaped];
    const { depth: depthMax, values: valuesMax } = this.#bounds;
    for (let at = 0; at < bytes.length; at += 1) {
      const byte = bytes[at];
      if (isInString) {
        if (isEscaped) isEscaped = false;
        else if (byte === BACKSLASH) isEscaped = true;
        else if (byte === QUOTE) isInString = false;
      } else if (byte === QUOTE) isInString = true;
      else if (byte === COMMA) {
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
