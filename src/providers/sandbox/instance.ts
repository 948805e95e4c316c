import { InstanceChecker, itemSchemas } from "./instance-check.ts";
import { merge, sizeOf } from "./instance-merge.ts";
import { minimalNumber } from "./instance-number.ts";
import { TextWriter } from "./instance-string.ts";
import { isSchema, textOf } from "./json.ts";
import { type Schema, STEPS, UnsupportedSchemaError, type Work, WorkExceededError } from "./work.ts";

const DEPTH_MAX = 64;
const PATH_STEP_LENGTH_MAX = 40;
const PLACE_LENGTH_MAX = 160;

/** Keywords whose rule the sandbox does not follow: it refuses rather than answer with what may not be valid. */
const NOT_FOLLOWED = [
  "not",
  "if",
  "contains",
  "dependencies",
  "dependentRequired",
  "dependentSchemas",
  "$dynamicRef",
] as const;

/**
 * Makes a small value that a JSON schema allows: required properties only, the shortest arrays and texts, the numbers
 * nearest to 0, the first of alternatives that works. The value is valid, or this throws UnsupportedSchemaError, which
 * names the place in the schema; WorkExceededError where it would cost more than the work budget.
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
  readonly #texts: TextWriter;
  readonly #checker: InstanceChecker;
  /** Steps from the root to the schema at work; after a failure, to the schema that failed. */
  readonly #path: (string | number)[] = [];

  constructor(root: unknown, work: Work) {
    this.#root = root;
    this.#work = work;
    this.#texts = new TextWriter(work);
    this.#checker = new InstanceChecker((reference) => this.#resolve(reference), this.#texts, work);
  }

  makeValid(): unknown {
    const made = this.#make(this.#root, 0, 0);
    if (this.#checker.check(made, this.#root) === true) return made;
    throw new UnsupportedSchemaError("the example that it leads to is not surely valid");
  }

  /** The schema at work, as a JSON pointer in a URI fragment; cut where it is long. */
  place(): string {
    const place = ["#", ...this.#path].join("/");
    return place.length <= PLACE_LENGTH_MAX ? place : `${place.slice(0, PLACE_LENGTH_MAX - 1)}…`;
  }

  #makeAt(path: readonly (string | number)[], given: unknown, variant: number, depth: number): unknown {
    for (const step of path) this.#path.push(pathStep(step));
    const made = this.#make(given, variant, depth);
    this.#path.length -= path.length;
    return made;
  }

  /** `variant` tells apart the items of an array that must be unique. */
  #make(given: unknown, variant: number, depth: number): unknown {
    this.#work.spend(STEPS.value);
    if (depth > DEPTH_MAX) throw new UnsupportedSchemaError("it is nested too deeply, or without an end");
    const schema = this.#flatten(given === true ? {} : given, depth);
    const keyword = NOT_FOLLOWED.find((name) => schema[name] !== undefined);
    if (keyword !== undefined) throw new UnsupportedSchemaError(`the keyword '${keyword}' is not supported`);
    if (Array.isArray(schema.anyOf)) return this.#makeFirst(schema, "anyOf", schema.anyOf, variant, depth);
    if (Array.isArray(schema.oneOf)) return this.#makeFirst(schema, "oneOf", schema.oneOf, variant, depth);
    if (schema.const !== undefined) return this.#given([schema.const], schema, variant);
    if (Array.isArray(schema.enum)) return this.#given(schema.enum, schema, variant);
    return this.#makeTyped(schema, variant, depth);
  }

  #makeTyped(schema: Schema, variant: number, depth: number): unknown {
    switch (typeOf(schema)) {
      case "object":
        return this.#makeObject(schema, variant, depth);
      case "array":
        return this.#makeArray(schema, variant, depth);
      case "string":
        return this.#texts.write(schema, variant);
      case "number":
      case "integer":
        return minimalNumber(schema, variant);
      case "boolean":
        return this.#given([false, true], schema, variant);
      case "null":
        return this.#given([null], schema, variant);
      default:
        throw new UnsupportedSchemaError("its type is not known");
    }
  }

  /** One of the values that the schema itself lists. It costs its length: it is written as often as it is used. */
  #given(values: readonly unknown[], schema: Schema, variant: number): unknown {
    this.#work.spend(sizeOf(schema) * STEPS.key);
    const { enum: _values, ...rest } = schema;
    let left = variant;
    for (const value of values) {
      if (this.#checker.check(value, rest) === false) continue;
      if (left === 0) {
        this.#work.spend(textOf(value, this.#work).length);
        return value;
      }
      left -= 1;
    }
    throw new UnsupportedSchemaError(
      variant === 0 ? "it allows no value in one place" : "it allows fewer different values than an array must have",
    );
  }

  #makeObject(schema: Schema, variant: number, depth: number): unknown {
    const properties = isSchema(schema.properties) ? schema.properties : {};
    // Without a prototype, so that a property named __proto__ is one like any other.
    const made: Record<string, unknown> = Object.create(null);
    for (const name of this.#namesOf(schema, properties)) {
      this.#work.spend(name.length);
      const isKnown = Object.hasOwn(properties, name);
      const known = isKnown ? properties[name] : (schema.additionalProperties ?? true);
      const path = isKnown ? ["properties", name] : ["additionalProperties"];
      made[name] = this.#makeAt(path, known, variant, depth + 1);
    }
    return made;
  }

  /** The properties of an object: the required ones, and others until there are enough. */
  #namesOf(schema: Schema, properties: Schema): readonly string[] {
    const least = countOf(schema.minProperties);
    const listed = Array.isArray(schema.required) ? schema.required : [];
    if (listed.length + least === 0) return [];
    this.#work.spend((sizeOf(properties) + listed.length + least) * STEPS.key);
    const required = new Set(listed.filter((name) => typeof name === "string"));
    const names = Object.keys(properties).filter((name) => required.has(name));
    for (const name of required) if (!Object.hasOwn(properties, name)) names.push(name);
    for (const name of Object.keys(properties)) {
      if (names.length < least && !required.has(name)) names.push(name);
    }
    for (let number = 1; names.length < least; number += 1) {
      const name = `property${number}`;
      if (!Object.hasOwn(properties, name) && !required.has(name)) names.push(name);
    }
    return names;
  }

  #makeArray(schema: Schema, variant: number, depth: number): unknown[] {
    const { tuple, rest } = itemSchemas(schema);
    const made: unknown[] = [];
    for (let index = 0; index < countOf(schema.minItems); index += 1) {
      const itemVariant = variant + (schema.uniqueItems === true ? index : 0);
      const path = index < tuple.length ? ["prefixItems", index] : ["items"];
      made.push(this.#makeAt(path, index < tuple.length ? tuple[index] : rest, itemVariant, depth + 1));
    }
    if (variant > 0 && made.length === 0) throw new UnsupportedSchemaError("an array must be unique, but may be empty");
    return made;
  }

  #makeFirst(schema: Schema, keyword: string, options: readonly unknown[], variant: number, depth: number): unknown {
    this.#work.spend(sizeOf(schema) * STEPS.key);
    const { [keyword]: _options, ...rest } = schema;
    const { length } = this.#path;
    let reason = new UnsupportedSchemaError("a list of alternatives is empty");
    for (const [index, option] of options.entries()) {
      try {
        return this.#makeAt([keyword, index], { allOf: [rest, option] }, variant, depth + 1);
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

  /** One schema without `$ref` and `allOf`. */
  #flatten(schema: unknown, depth: number): Schema {
    if (!isSchema(schema)) throw new UnsupportedSchemaError("it allows no value in one place");
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
      throw new UnsupportedSchemaError("a $ref leads out of it");
    }
    this.#work.spend(reference.length);
    let target: unknown = this.#root;
    for (const step of reference.split("/").slice(1)) {
      const name = decoded(step).replaceAll("~1", "/").replaceAll("~0", "~");
      const holder = target;
      const isThere = typeof holder === "object" && holder !== null && Object.hasOwn(holder, name);
      if (!isThere) throw new UnsupportedSchemaError("a $ref leads nowhere");
      target = (holder as Record<string, unknown>)[name];
    }
    return target;
  }
}

function typeOf(schema: Schema): unknown {
  const { type } = schema;
  if (Array.isArray(type)) return type[0];
  if (type !== undefined) return type;
  if (schema.properties !== undefined || schema.required !== undefined) return "object";
  if (schema.items !== undefined || schema.minItems !== undefined || schema.prefixItems !== undefined) return "array";
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
