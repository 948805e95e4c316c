import { type Schema, UnsupportedSchemaError } from "./unsupported.ts";

/** No text longer than this is made up. */
const LENGTH_MAX = 10_000;

/** One value of each format that tools' schemas use. */
const FORMATS: Readonly<Record<string, (variant: number) => string>> = {
  date: (variant) => new Date(Date.UTC(2000, 0, 1 + variant)).toISOString().slice(0, 10),
  "date-time": (variant) => new Date(Date.UTC(2000, 0, 1 + variant)).toISOString(),
  time: (variant) => `${new Date(Date.UTC(2000, 0, 1) + variant * 1000).toISOString().slice(11, 19)}Z`,
  duration: (variant) => `PT${variant}S`,
  email: (variant) => `person${variant}@example.com`,
  hostname: (variant) => `host${variant}.example.com`,
  ipv4: (variant) => `192.0.2.${variant % 256}`,
  ipv6: (variant) => `2001:db8::${(variant % 65_536).toString(16)}`,
  uri: (variant) => `https://example.com/${variant}`,
  uuid: (variant) => `00000000-0000-4000-8000-${variant.toString(16).padStart(12, "0")}`,
};

/** The shortest text that a schema allows, or one that differs by `variant`. Throws UnsupportedSchemaError. */
export function minimalString(schema: Schema, variant: number): string {
  const { format, pattern, minLength, maxLength } = schema;
  if (pattern !== undefined) throw new UnsupportedSchemaError("the keyword 'pattern' is not supported");
  const least = typeof minLength === "number" ? minLength : 0;
  const most = typeof maxLength === "number" ? maxLength : LENGTH_MAX;
  if (least > LENGTH_MAX) throw new UnsupportedSchemaError("a text must be too long");
  const make = typeof format === "string" && Object.hasOwn(FORMATS, format) ? FORMATS[format] : undefined;
  const text = make === undefined ? (variant === 0 ? "" : String(variant)).padEnd(least, "a") : make(variant);
  if (text.length >= least && text.length <= most) return text;
  throw new UnsupportedSchemaError("it allows no text in one place");
}
