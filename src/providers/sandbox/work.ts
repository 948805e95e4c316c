import { isObject, type JsonObject } from "../json.ts";

/** A JSON schema as an object of keywords. */
export type Schema = JsonObject;

/** A schema for which the sandbox makes no example; the message has the reason. */
export class UnsupportedSchemaError extends Error {
  /** The part of the schema, as a JSON pointer from its root; undefined until it is known. */
  place: string | undefined;

  constructor(message: string) {
    super(message);
    this.name = "UnsupportedSchemaError";
  }
}

/** The work budget of a request is exhausted. No further alternative of the schema is tried. */
export class WorkExceededError extends UnsupportedSchemaError {
  constructor() {
    super("it needs too much work");
    this.name = "WorkExceededError";
  }
}

/** Work budget of one request, in steps. A step is about one character or keyword that is read, compared or written. */
export const WORK_STEPS_MAX = 500_000;

/** Costs of the more expensive operations, measured relative to reading one character. */
export const STEPS = {
  /** A value that is made, in addition to its characters. */
  value: 100,
  /** A keyword or property that is listed or copied. */
  key: 20,
  /** An alternative that does not work. */
  failure: 400,
} as const;

/**
 * The work budget of one request. Each piece of output is paid for before it is made, so that no request can block the
 * event loop. The budget is counted in steps, not in time, so that a request has the same outcome on every machine.
 */
export class Work {
  #left = WORK_STEPS_MAX;

  /** Steps spent so far. */
  get spent(): number {
    return WORK_STEPS_MAX - this.#left;
  }

  /** Takes steps from the budget. Throws WorkExceededError if not enough are left. */
  spend(steps: number): void {
    if (!(steps <= this.#left)) throw new WorkExceededError();
    this.#left -= steps;
  }
}

/** Limit of the nesting of values that are written as JSON. */
const DEPTH_MAX = 256;
const STEPS_A_VALUE = 10;

/**
 * Writes a value as JSON in one line, with spaces between its parts, so that it has several tokens. With `isSorted`, the
 * members of objects are sorted, so that equal values have equal texts. Throws UnsupportedSchemaError if the value is
 * nested too deeply, and WorkExceededError.
 */
export function toJson(value: unknown, work: Work, isSorted = false, depth = 0): string {
  if (depth > DEPTH_MAX) throw new UnsupportedSchemaError("it is nested too deeply, or without an end");
  work.spend(STEPS_A_VALUE + (typeof value === "string" ? value.length : 0));
  if (Array.isArray(value)) {
    const items = value.map((item) => toJson(item, work, isSorted, depth + 1));
    return items.length === 0 ? "[]" : `[ ${items.join(", ")} ]`;
  }
  if (!isObject(value)) return JSON.stringify(value);
  const names = Object.keys(value);
  const members = (isSorted ? names.sort() : names).map((name) => {
    work.spend(name.length);
    return `${JSON.stringify(name)}: ${toJson(value[name], work, isSorted, depth + 1)}`;
  });
  return members.length === 0 ? "{}" : `{ ${members.join(", ")} }`;
}

/** Returns a text that is the same for equal values. The texts of objects are cached, so that each is paid for once. */
export function canonicalText(value: unknown, work: Work): string {
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
