import { readPattern, TEXT_LENGTH_MAX } from "./instance-pattern.ts";
import { type Schema, UnsupportedSchemaError } from "./unsupported.ts";

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

/** The shortest text that a schema allows, or one that differs by `variant`. Throws UnsupportedSchemaError. */
export function minimalString(schema: Schema, variant: number): string {
  const { format, pattern, minLength, maxLength } = schema;
  const least = typeof minLength === "number" ? minLength : 0;
  const most = typeof maxLength === "number" ? Math.min(maxLength, TEXT_LENGTH_MAX) : TEXT_LENGTH_MAX;
  if (least > TEXT_LENGTH_MAX) throw new UnsupportedSchemaError("a text must be too long");
  const text = makeText(format, pattern, least, variant);
  const length = [...text].length;
  if (length >= least && length <= most) return text;
  throw new UnsupportedSchemaError("it allows no text in one place");
}

function makeText(format: unknown, pattern: unknown, least: number, variant: number): string {
  if (typeof pattern === "string") return matching(pattern, least, variant);
  const make = typeof format === "string" && Object.hasOwn(FORMATS, format) ? FORMATS[format] : undefined;
  if (make === undefined) return (variant === 0 ? "" : String(variant)).padEnd(least, "a");
  if (variant >= VARIANTS_MAX) throw new UnsupportedSchemaError("an array must have too many items");
  return make(variant);
}

/**
 * A text that the pattern matches, grown until it is long enough and differs from the variants before it. Its length
 * grows with the repetitions or stays, so their least number is found by halving.
 */
function matching(pattern: string, least: number, variant: number): string {
  const make = readPattern(pattern);
  let low = 0;
  let high = TEXT_LENGTH_MAX;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (isLongEnough(make, middle, least)) high = middle;
    else low = middle + 1;
  }
  const text = make(low + variant);
  const isNew = variant === 0 || text !== make(low + variant - 1);
  if (isNew && [...text].length >= least) return text;
  throw new UnsupportedSchemaError("a pattern allows no text that is long enough");
}

function isLongEnough(make: (extra: number) => string, extra: number, least: number): boolean {
  if (least === 0) return true;
  try {
    return [...make(extra)].length >= least;
  } catch (error) {
    if (!(error instanceof UnsupportedSchemaError)) throw error;
    return true;
  }
}
