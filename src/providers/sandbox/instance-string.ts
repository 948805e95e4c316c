import { parsePattern, TEXT_LENGTH_MAX } from "./instance-pattern.ts";
import { type Schema, UnsupportedSchemaError, type Work } from "./work.ts";

/** One value of each format that tools' schemas use. */
const FORMATS: Readonly<Record<string, (variant: number) => string>> = {
  date: (variant) => new Date(Date.UTC(2000, 0, 1 + variant)).toISOString().slice(0, 10),
  "date-time": (variant) => new Date(Date.UTC(2000, 0, 1 + variant)).toISOString(),
  time: (variant) => `${new Date(Date.UTC(2000, 0, 1) + variant * 1000).toISOString().slice(11, 19)}Z`,
  duration: (variant) => `PT${variant}S`,
  email: (variant) => `person${variant}@example.com`,
  hostname: (variant) => `host${variant}.example.com`,
  ipv4: (variant) => `192.0.2.${variant}`,
  ipv6: (variant) => `2001:db8::${variant.toString(16)}`,
  uri: (variant) => `https://example.com/${variant}`,
  uuid: (variant) => `00000000-0000-4000-8000-${variant.toString(16).padStart(12, "0")}`,
};
const VARIANTS_MAX = 256;

/** Writes the texts of one example. It remembers which text it wrote for which pattern, because no pattern is ever run. */
export class TextWriter {
  readonly #work: Work;
  readonly #parsed = new Map<string, ReturnType<typeof parsePattern>>();
  readonly #written = new Map<string, Set<string>>();

  constructor(work: Work) {
    this.#work = work;
  }

  /** Writes the shortest text that a schema allows, or one that differs by `variant`. Throws UnsupportedSchemaError. */
  write({ format, pattern, minLength, maxLength }: Schema, variant: number): string {
    const least = typeof minLength === "number" ? minLength : 0;
    const most = typeof maxLength === "number" ? Math.min(maxLength, TEXT_LENGTH_MAX) : TEXT_LENGTH_MAX;
    if (least > TEXT_LENGTH_MAX) throw tooLong();
    const text =
      typeof pattern === "string" ? this.#matching(pattern, least, variant) : this.#plain(format, least, variant);
    const length = [...text].length;
    if (length >= least && length <= most) return text;
    throw new UnsupportedSchemaError("it allows no text in one place");
  }

  /** Whether the text was written for this pattern; of other texts it is not known whether they match. */
  hasWritten(text: string, pattern: string): boolean {
    return this.#written.get(pattern)?.has(text) === true;
  }

  #plain(format: unknown, least: number, variant: number): string {
    this.#work.spend(Math.max(least, FORMAT_STEPS));
    const make = typeof format === "string" && Object.hasOwn(FORMATS, format) ? FORMATS[format] : undefined;
    if (make === undefined) return (variant === 0 ? "" : String(variant)).padEnd(least, "a");
    if (variant >= VARIANTS_MAX) throw new UnsupportedSchemaError("an array must have too many items");
    return make(variant);
  }

  /**
   * Repeats the pattern's parts until the text is long enough and differs from the variants before it. Its length grows
   * with the repetitions or stays, so their least number is found by halving.
   */
  #matching(pattern: string, least: number, variant: number): string {
    const part = this.#parsed.get(pattern) ?? parsePattern(pattern, this.#work);
    this.#parsed.set(pattern, part);
    let low = 0;
    let high = least;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (part.lengthWith(middle) >= least) high = middle;
      else low = middle + 1;
    }
    const length = part.lengthWith(low + variant);
    if (length > TEXT_LENGTH_MAX) throw tooLong();
    const isNew = variant === 0 || length > part.lengthWith(low + variant - 1);
    if (length < least || !isNew) throw new UnsupportedSchemaError("a pattern allows no text that is long enough");
    this.#work.spend(length * WRITTEN_STEPS);
    const text = part.write(low + variant);
    const written = this.#written.get(pattern) ?? new Set();
    this.#written.set(pattern, written.add(text));
    return text;
  }
}

const FORMAT_STEPS = 32;
/** A character is written, counted and remembered. */
const WRITTEN_STEPS = 2;

function tooLong(): UnsupportedSchemaError {
  return new UnsupportedSchemaError("a text must be too long");
}
