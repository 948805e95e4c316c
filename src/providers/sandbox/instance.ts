import { isObject } from "../json.ts";
import { InstanceChecker, isNumberValid, refuseUnsupported } from "./instance-check.ts";
import { TEXT_LENGTH_MAX, textMatching } from "./pattern.ts";
import { canonicalText, type Schema, STEPS, UnsupportedSchemaError, type Work, WorkExceededError } from "./work.ts";

const DEPTH_MAX = 64;
const PATH_STEP_LENGTH_MAX = 40;
const PLACE_LENGTH_MAX = 160;

/** One value of each format that structured outputs support, and of `uri`. */
const FORMATS: Readonly<Record<string, string>> = {
  date: "2000-01-01",
  "date-time": "2000-01-01T00:00:00.000Z",
  time: "00:00:00Z",
  duration: "PT0S",
  email: "person@example.com",
  hostname: "host.example.com",
  ipv4: "192.0.2.0",
  ipv6: "2001:db8::",
  uri: "https://example.com/",
  uuid: "00000000-0000-4000-8000-000000000000",
};

/**
 * Makes a small value that a JSON schema allows: required properties only, the shortest arrays and texts, numbers near 0,
 * the first alternative that works. Throws UnsupportedSchemaError, which names the place in the schema, if it finds no valid
 * value, and WorkExceededError if the value would cost more than the work budget.
 */
export function minimalInstance(schema: unknown, work: Work): unknown {
  const maker = new InstanceMaker(schema, work);
  try {
    return maker.makeValid();
  } catch (error) {
    if (error instanceof UnsupportedSchemaError) error.place ??= maker.place();
    throw error;
  }
}

class InstanceMaker {
  readonly #root: unknown;
  readonly #work: Work;
  readonly #textsOfPatterns = new Map<string, string>();
  readonly #checker: InstanceChecker;
  /** Steps from the root to the current schema; after a failure, to the schema that failed. */
  readonly #path: (string | number)[] = [];

  constructor(root: unknown, work: Work) {
    this.#root = root;
    this.#work = work;
    this.#checker = new InstanceChecker(
      (reference) => this.#resolve(reference),
      (pattern) => this.#textOfPattern(pattern),
      work,
    );
  }

  makeValid(): unknown {
    const made = this.#make(this.#root, 0);
    if (this.#checker.check(made, this.#root)) return made;
    throw new UnsupportedSchemaError("the smallest example is not valid");
  }

  /** The current schema as a JSON pointer in a URI fragment, shortened if it is long. */
  place(): string {
    const place = ["#", ...this.#path].join("/");
    return place.length <= PLACE_LENGTH_MAX ? place : `${place.slice(0, PLACE_LENGTH_MAX - 1)}…`;
  }

  #makeAt(path: readonly (string | number)[], given: unknown, depth: number): unknown {
    for (const step of path) this.#path.push(pathStep(step));
    const made = this.#make(given, depth);
    this.#path.length -= path.length;
    return made;
  }

  #make(given: unknown, depth: number): unknown {
    this.#work.spend(STEPS.value);
    const schema = this.#flatten(given === true ? {} : given, depth);
    refuseUnsupported(schema);
    if (Array.isArray(schema.anyOf)) return this.#makeFirst(schema, "anyOf", schema.anyOf, depth);
    if (Array.isArray(schema.oneOf)) return this.#makeFirst(schema, "oneOf", schema.oneOf, depth);
    if (schema.const !== undefined) return this.#choose([schema.const], schema);
    if (Array.isArray(schema.enum)) return this.#choose(schema.enum, schema);
    switch (typeOf(schema)) {
      case "object":
        return this.#makeObject(schema, depth);
      case "array":
        return this.#makeArray(schema, depth);
      case "string":
        return this.#makeText(schema);
      case "number":
      case "integer":
        return smallNumber(schema);
      case "boolean":
        return false;
      case "null":
        return null;
      default:
        throw new UnsupportedSchemaError("its type is not known");
    }
  }

  /** Returns the first listed value that fits. Pays for its length at each use, because it is written each time. */
  #choose(values: readonly unknown[], schema: Schema): unknown {
    this.#work.spend(sizeOf(schema) * STEPS.key);
    const { enum: _values, ...others } = schema;
    const fit = values.findIndex((value) => this.#checker.check(value, others));
    if (fit < 0) throw new UnsupportedSchemaError("it allows no value in one place");
    this.#work.spend(canonicalText(values[fit], this.#work).length);
    return values[fit];
  }

  #makeObject(schema: Schema, depth: number): unknown {
    const properties = isObject(schema.properties) ? schema.properties : {};
    const required = Array.isArray(schema.required) ? schema.required : [];
    // Without a prototype, so that a property named __proto__ is like any other.
    const made: Record<string, unknown> = Object.create(null);
    if (required.length === 0) return made;
    this.#work.spend((sizeOf(properties) + required.length) * STEPS.key);
    const missing = new Set(required.filter((name) => typeof name === "string"));
    const known = Object.keys(properties).filter((name) => missing.delete(name));
    for (const name of known) {
      this.#work.spend(name.length);
      made[name] = this.#makeAt(["properties", name], properties[name], depth + 1);
    }
    for (const name of missing) {
      this.#work.spend(name.length);
      made[name] = this.#makeAt(["additionalProperties"], schema.additionalProperties ?? true, depth + 1);
    }
    return made;
  }

  #makeArray({ minItems, items = true }: Schema, depth: number): unknown[] {
    const made: unknown[] = [];
    for (let left = countOf(minItems); left > 0; left -= 1) made.push(this.#makeAt(["items"], items, depth + 1));
    return made;
  }

  #makeText({ pattern, format, minLength }: Schema): string {
    if (typeof pattern === "string") return this.#textOfPattern(pattern);
    const known = typeof format === "string" && Object.hasOwn(FORMATS, format) ? FORMATS[format] : undefined;
    const length = countOf(minLength);
    if (length > TEXT_LENGTH_MAX) throw new UnsupportedSchemaError("a text must be too long");
    this.#work.spend(length);
    return known ?? "a".repeat(length);
  }

  /** Returns the text for a pattern; the same text at each call. */
  #textOfPattern(pattern: string): string {
    const text = this.#textsOfPatterns.get(pattern) ?? textMatching(pattern, this.#work);
    this.#textsOfPatterns.set(pattern, text);
    this.#work.spend(text.length);
    return text;
  }

  #makeFirst(schema: Schema, keyword: string, options: readonly unknown[], depth: number): unknown {
    this.#work.spend(sizeOf(schema) * STEPS.key);
    const { [keyword]: _options, ...others } = schema;
    const { length } = this.#path;
    let reason = new UnsupportedSchemaError("a list of alternatives is empty");
    for (const [index, option] of options.entries()) {
      try {
        const made = this.#makeAt([keyword, index], { allOf: [others, option] }, depth + 1);
        if (this.#checker.check(made, option)) return made;
        throw new UnsupportedSchemaError("the smallest example of an alternative is not valid");
      } catch (error) {
        if (!(error instanceof UnsupportedSchemaError) || error instanceof WorkExceededError) throw error;
        this.#work.spend(STEPS.failure + this.#path.length * STEPS.key);
        reason = error;
        reason.place ??= this.place();
        this.#path.length = length;
      }
    }
    throw reason;
  }

  /** Merges a schema with those of its `$ref` and `allOf`. */
  #flatten(schema: unknown, depth: number): Schema {
    if (!isObject(schema)) throw new UnsupportedSchemaError("it allows no value in one place");
    if (depth > DEPTH_MAX) throw new UnsupportedSchemaError("it is nested too deeply, or without an end");
    if (schema.$ref === undefined && schema.allOf === undefined) return schema;
    this.#work.spend(STEPS.value + sizeOf(schema) * STEPS.key);
    const { $ref, allOf, ...own } = schema;
    const others: readonly unknown[] = Array.isArray(allOf) ? allOf : [];
    let flat: Schema = own;
    const add = (other: unknown) => {
      this.#work.spend(STEPS.key);
      if (other !== true) flat = merge(flat, this.#flatten(other, depth + 1), this.#work);
    };
    for (const other of others) add(other);
    if ($ref !== undefined) add(this.#resolve($ref));
    return flat;
  }

  #resolve(reference: unknown): unknown {
    if (typeof reference !== "string" || !/^#(\/|$)/.test(reference)) {
      throw new UnsupportedSchemaError("a $ref points outside of it");
    }
    this.#work.spend(reference.length);
    let target: unknown = this.#root;
    for (const step of reference.split("/").slice(1)) {
      const name = decoded(step).replaceAll("~1", "/").replaceAll("~0", "~");
      const holder = target;
      const isThere = typeof holder === "object" && holder !== null && Object.hasOwn(holder, name);
      if (!isThere) throw new UnsupportedSchemaError("a $ref points to nothing");
      target = (holder as Record<string, unknown>)[name];
    }
    return target;
  }
}

/** Returns a number near 0 that a schema allows. Throws UnsupportedSchemaError if there is none. */
function smallNumber(schema: Schema): number {
  const { minimum, maximum, exclusiveMinimum, exclusiveMaximum, multipleOf } = schema;
  const step = typeof multipleOf === "number" && multipleOf > 0 ? multipleOf : 1;
  const bound = (value: unknown, none: number) => (typeof value === "number" ? value : none);
  const low = Math.max(bound(minimum, Number.NEGATIVE_INFINITY), bound(exclusiveMinimum, Number.NEGATIVE_INFINITY));
  const high = Math.min(bound(maximum, Number.POSITIVE_INFINITY), bound(exclusiveMaximum, Number.POSITIVE_INFINITY));
  const above = Math.ceil(low / step) * step;
  const below = Math.floor(high / step) * step;
  const nearest = low > 0 || (low === 0 && exclusiveMinimum === 0) ? [above, above + step] : [below, below - step];
  const isWhole = typeOf(schema) === "integer";
  const found = [0, ...nearest, (low + high) / 2].find(
    (value) => (isWhole ? Number.isInteger(value) : Number.isFinite(value)) && isNumberValid(value, schema),
  );
  if (found === undefined) throw new UnsupportedSchemaError("it allows no number in one place");
  // Converts a negative zero to zero.
  return found + 0;
}

/**
 * Merges two schemas. If both have a keyword, the second one's value counts, except that properties and required
 * properties of both count. The check of the finished value finds the cases in which this is not enough.
 */
function merge(one: Schema, other: Schema, work: Work): Schema {
  work.spend((sizeOf(one) + sizeOf(other)) * STEPS.key);
  const merged: Record<string, unknown> = { ...one, ...other };
  if (Array.isArray(one.required) && Array.isArray(other.required)) {
    work.spend((one.required.length + other.required.length) * STEPS.key);
    merged.required = [...one.required, ...other.required];
  }
  if (isObject(one.properties) && isObject(other.properties)) {
    work.spend((sizeOf(one.properties) + sizeOf(other.properties)) * STEPS.key);
    const properties = new Map(Object.entries(one.properties));
    for (const [name, schema] of Object.entries(other.properties)) {
      properties.set(name, properties.has(name) ? { allOf: [properties.get(name), schema] } : schema);
    }
    merged.properties = Object.fromEntries(properties);
  }
  return merged;
}

/** Returns the number of entries of an object or array. It is cached, so that a large object is counted once. */
function sizeOf(value: object): number {
  const known = sizes.get(value);
  if (known !== undefined) return known;
  const size = Array.isArray(value) ? value.length : Object.keys(value).length;
  sizes.set(value, size);
  return size;
}

const sizes = new WeakMap<object, number>();

function typeOf(schema: Schema): unknown {
  const { type } = schema;
  if (Array.isArray(type)) return type[0];
  if (type !== undefined) return type;
  if (schema.properties !== undefined || schema.required !== undefined) return "object";
  if (schema.items !== undefined || schema.minItems !== undefined) return "array";
  if (schema.minimum !== undefined || schema.maximum !== undefined || schema.multipleOf !== undefined) return "integer";
  return "string";
}

function countOf(value: unknown): number {
  return typeof value === "number" && value > 0 ? value : 0;
}

function pathStep(step: string | number): string {
  return String(step).slice(0, PATH_STEP_LENGTH_MAX).replaceAll("~", "~0").replaceAll("/", "~1");
}

function decoded(step: string): string {
  try {
    return decodeURIComponent(step);
  } catch {
    return step;
  }
}
