import { type Schema, UnsupportedSchemaError, type Work } from "./work.ts";

/** Levels of nesting of the schemas and values that the sandbox reads. */
const DEPTH_MAX = 256;
const STEPS_A_VALUE = 10;

/**
 * Writes a value as JSON in one line, with a space between its parts so that it has more tokens than one. With
 * `isSorted`, the members of objects are sorted, so that equal values have equal texts. Throws UnsupportedSchemaError.
 */
export function toJson(value: unknown, work: Work, isSorted = false, depth = 0): string {
  if (depth > DEPTH_MAX) throw new UnsupportedSchemaError("it is nested too deeply, or without an end");
  work.spend(STEPS_A_VALUE + (typeof value === "string" ? value.length : 0));
  if (Array.isArray(value)) {
    const items = value.map((item) => toJson(item, work, isSorted, depth + 1));
    return items.length === 0 ? "[]" : `[ ${items.join(", ")} ]`;
  }
  if (!isSchema(value)) return JSON.stringify(value);
  const names = Object.keys(value);
  const members = (isSorted ? names.sort() : names).map((name) => {
    work.spend(name.length);
    return `${JSON.stringify(name)}: ${toJson(value[name], work, isSorted, depth + 1)}`;
  });
  return members.length === 0 ? "{}" : `{ ${members.join(", ")} }`;
}

/** The text that all values equal to this one have. Kept for objects, so that it is paid for once. */
export function textOf(value: unknown, work: Work): string {
  if (typeof value !== "object" || value === null) return toJson(value, work, true);
  let text = texts.get(value);
  if (text === undefined) {
    text = toJson(value, work, true);
    texts.set(value, text);
  }
  work.spend(STEPS_A_VALUE + text.length / CHARACTERS_COMPARED_A_STEP);
  return text;
}

const texts = new WeakMap<object, string>();
const CHARACTERS_COMPARED_A_STEP = 16;

/** True if a value is an object and not an array: as a schema, one with keywords. */
export function isSchema(value: unknown): value is Schema {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}
