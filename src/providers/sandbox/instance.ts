import { minimalNumber } from "./instance-number.ts";
import { minimalString } from "./instance-string.ts";
import { type Schema, UnsupportedSchemaError } from "./unsupported.ts";

/** Callers write the schemas: what they can make the service build is bounded. */
const VALUES_MAX = 10_000;
const DEPTH_MAX = 64;
/** Characters of all schemas that are brought together, one counted as often as it is read. */
const MERGED_CHARACTERS_MAX = 10_000_000;
/** Characters of all texts of one value. */
const TEXT_CHARACTERS_MAX = 100_000;

/** Keywords whose rule the sandbox does not follow: it refuses rather than answer with what may not be valid. */
const NOT_FOLLOWED = [
  "not",
  "if",
  "contains",
  "dependencies",
  "dependentRequired",
  "dependentSchemas",
  "propertyNames",
  "$dynamicRef",
] as const;

/**
 * Makes a small value that a JSON schema allows: required properties only, the shortest arrays and texts, the numbers
 * nearest to 0, the first of alternatives that works. Throws UnsupportedSchemaError.
 */
export function minimalInstance(schema: unknown): unknown {
  return new InstanceMaker(schema).make(schema, 0, 0);
}

class InstanceMaker {
  readonly #root: unknown;
  #values = 0;
  #mergedCharacters = 0;
  #textCharacters = 0;
  readonly #lengths = new WeakMap<object, number>();

  constructor(root: unknown) {
    this.#root = root;
  }

  /** `variant` tells apart the items of an array that must be unique. */
  make(given: unknown, variant: number, depth: number): unknown {
    this.#values += 1;
    if (this.#values > VALUES_MAX) throw new UnsupportedSchemaError("it needs too many values");
    if (depth > DEPTH_MAX) throw new UnsupportedSchemaError("it is nested too deeply, or without an end");
    const schema = this.#flatten(given === true ? {} : given, depth);
    const keyword = NOT_FOLLOWED.find((name) => schema[name] !== undefined);
    if (keyword !== undefined) throw new UnsupportedSchemaError(`the keyword '${keyword}' is not supported`);
    if (Array.isArray(schema.anyOf)) return this.#makeFirst(schema, "anyOf", schema.anyOf, variant, depth);
    if (Array.isArray(schema.oneOf)) return this.#makeFirst(schema, "oneOf", schema.oneOf, variant, depth);
    if (schema.const !== undefined) return chosen([schema.const], variant);
    if (Array.isArray(schema.enum)) return chosen(schema.enum, variant);
    return this.#makeTyped(schema, variant, depth);
  }

  #makeTyped(schema: Schema, variant: number, depth: number): unknown {
    switch (typeOf(schema)) {
      case "object":
        return this.#makeObject(schema, variant, depth);
      case "array":
        return this.#makeArray(schema, variant, depth);
      case "string":
        return this.#makeText(schema, variant);
      case "number":
      case "integer":
        return minimalNumber(schema, variant);
      case "boolean":
        return chosen([false, true], variant);
      case "null":
        return chosen([null], variant);
      default:
        throw new UnsupportedSchemaError(`the type ${JSON.stringify(schema.type)?.slice(0, 40)} is not known`);
    }
  }

  #makeText(schema: Schema, variant: number): string {
    const text = minimalString(schema, variant);
    this.#textCharacters += text.length;
    if (this.#textCharacters > TEXT_CHARACTERS_MAX) throw new UnsupportedSchemaError("it needs too much text");
    return text;
  }

  #makeObject(schema: Schema, variant: number, depth: number): unknown {
    const properties = isSchema(schema.properties) ? schema.properties : {};
    const required = new Set(Array.isArray(schema.required) ? schema.required.filter(isText) : []);
    const least = countOf(schema.minProperties);
    if (least > VALUES_MAX) throw new UnsupportedSchemaError("it needs too many values");
    const names = Object.keys(properties).filter((name) => required.has(name));
    for (const name of required) if (!Object.hasOwn(properties, name)) names.push(name);
    for (const name of Object.keys(properties)) {
      if (names.length < least && !required.has(name)) names.push(name);
    }
    for (let number = 1; names.length < least; number += 1) {
      const name = `property${number}`;
      if (!Object.hasOwn(properties, name) && !required.has(name)) names.push(name);
    }
    // Without a prototype, so that a property named __proto__ is one like any other.
    const made: Record<string, unknown> = Object.create(null);
    for (const name of names) {
      const known = Object.hasOwn(properties, name) ? properties[name] : (schema.additionalProperties ?? true);
      made[name] = this.make(known, variant, depth + 1);
    }
    return made;
  }

  #makeArray(schema: Schema, variant: number, depth: number): unknown[] {
    const first = Array.isArray(schema.prefixItems) ? schema.prefixItems : schema.items;
    const tuple: unknown[] = Array.isArray(first) ? first : [];
    const rest = Array.isArray(schema.items) ? schema.additionalItems : schema.items;
    const made: unknown[] = [];
    for (let index = 0; index < countOf(schema.minItems); index += 1) {
      const itemVariant = variant + (schema.uniqueItems === true ? index : 0);
      made.push(this.make(index < tuple.length ? tuple[index] : (rest ?? {}), itemVariant, depth + 1));
    }
    if (variant > 0 && made.length === 0) throw new UnsupportedSchemaError("an array must be unique, but may be empty");
    return made;
  }

  #makeFirst(schema: Schema, keyword: string, options: readonly unknown[], variant: number, depth: number): unknown {
    const { [keyword]: _options, ...rest } = schema;
    let reason = new UnsupportedSchemaError("a list of alternatives is empty");
    for (const option of options) {
      try {
        return this.make({ allOf: [rest, option] }, variant, depth + 1);
      } catch (error) {
        if (!(error instanceof UnsupportedSchemaError)) throw error;
        reason = error;
      }
    }
    throw reason;
  }

  /** One schema without `$ref` and `allOf`. */
  #flatten(schema: unknown, depth: number): Schema {
    if (!isSchema(schema)) throw new UnsupportedSchemaError("it allows no value in one place");
    if (depth > DEPTH_MAX) throw new UnsupportedSchemaError("it is nested too deeply, or without an end");
    const { $ref, allOf, ...own } = schema;
    const others: unknown[] = [...(Array.isArray(allOf) ? allOf : [])];
    if ($ref !== undefined) others.push(this.#resolve($ref));
    let flat: Schema = own;
    for (const other of others) {
      this.#values += 1;
      if (this.#values > VALUES_MAX) throw new UnsupportedSchemaError("it needs too many values");
      if (other === true) continue;
      const flatOther = this.#flatten(other, depth + 1);
      this.#mergedCharacters += this.#lengthOf(flat) + this.#lengthOf(flatOther);
      if (this.#mergedCharacters > MERGED_CHARACTERS_MAX) throw new UnsupportedSchemaError("it is too large");
      flat = merge(flat, flatOther);
    }
    return flat;
  }

  #lengthOf(schema: Schema): number {
    let length = this.#lengths.get(schema);
    if (length === undefined) {
      length = JSON.stringify(schema).length;
      this.#lengths.set(schema, length);
    }
    return length;
  }

  #resolve(reference: unknown): unknown {
    if (typeof reference !== "string" || !/^#(\/|$)/.test(reference)) {
      throw new UnsupportedSchemaError("a $ref leads out of it");
    }
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

/** What both schemas allow, as far as the sandbox follows schemas. */
function merge(one: Schema, other: Schema): Schema {
  const merged: Record<string, unknown> = { ...one };
  for (const [name, value] of Object.entries(other)) {
    const before = one[name];
    merged[name] = before === undefined ? value : mergeKeyword(name, before, value);
  }
  return merged;
}

function mergeKeyword(name: string, one: unknown, other: unknown): unknown {
  if (name === "required" && Array.isArray(one) && Array.isArray(other)) return [...one, ...other];
  if (name === "properties" && isSchema(one) && isSchema(other)) {
    const merged = new Map(Object.entries(one));
    for (const [property, schema] of Object.entries(other)) {
      merged.set(property, merged.has(property) ? { allOf: [merged.get(property), schema] } : schema);
    }
    return Object.fromEntries(merged);
  }
  if (typeof one === "number" && typeof other === "number" && /^(m|exclusiveM)(in|ax)/.test(name)) {
    return /^(min|exclusiveMin)/.test(name) ? Math.max(one, other) : Math.min(one, other);
  }
  if (name === "type" || name === "enum") return common(name, one, other);
  const isSame = JSON.stringify(one) === JSON.stringify(other);
  const isNote = name === "title" || name === "description" || name.startsWith("$") || name === "definitions";
  if (isSame || isNote) return other;
  throw new UnsupportedSchemaError(`the keyword '${name}' is given twice for one value`);
}

function common(name: string, one: unknown, other: unknown): unknown {
  const left: unknown[] = Array.isArray(one) ? one : [one];
  const right: unknown[] = Array.isArray(other) ? other : [other];
  const rightTexts = new Set(right.map((value) => JSON.stringify(value)));
  const both = left.filter((value) => rightTexts.has(JSON.stringify(value)));
  const all = [...left, ...right];
  if (name === "type" && both.length === 0 && all.includes("integer") && all.includes("number")) return "integer";
  if (both.length === 0) throw new UnsupportedSchemaError("it allows no value in one place");
  return both;
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

function chosen(values: readonly unknown[], variant: number): unknown {
  if (variant < values.length) return values[variant];
  throw new UnsupportedSchemaError("it allows fewer different values than an array must have");
}

function countOf(value: unknown): number {
  return typeof value === "number" && value > 0 ? value : 0;
}

function decoded(step: string): string {
  try {
    return decodeURIComponent(step);
  } catch {
    return step;
  }
}

function isSchema(value: unknown): value is Schema {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

function isText(value: unknown): value is string {
  return typeof value === "string";
}
