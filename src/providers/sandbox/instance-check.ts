import { isObject } from "../json.ts";
import { canonicalText, type Schema, STEPS, UnsupportedSchemaError, type Work } from "./work.ts";

const STEPS_A_SCHEMA = 50;
const STEPS_AN_OPTION = 4;
const DEPTH_MAX = 256;

/** Keywords that the sandbox does not support. It refuses them, because its value might not be valid. */
const UNSUPPORTED_KEYWORDS = [
  "not",
  "if",
  "contains",
  "dependencies",
  "dependentRequired",
  "dependentSchemas",
  "patternProperties",
  "prefixItems",
  "unevaluatedItems",
  "unevaluatedProperties",
  "$dynamicRef",
  "$recursiveRef",
] as const;

/** Throws UnsupportedSchemaError if a schema has a keyword that the sandbox does not support. */
export function refuseUnsupported(schema: Schema): void {
  const keyword = UNSUPPORTED_KEYWORDS.find((name) => schema[name] !== undefined);
  if (keyword !== undefined) throw new UnsupportedSchemaError(`the keyword '${keyword}' is not supported`);
}

/**
 * Checks values against the whole schema before they are sent, because the maker follows its keywords one by one. Patterns
 * are not run: a text matches a pattern if it was written for it. Pays for each step from the work budget.
 */
export class InstanceChecker {
  readonly #resolve: (reference: unknown) => unknown;
  readonly #textOfPattern: (pattern: string) => string;
  readonly #work: Work;

  constructor(resolve: (reference: unknown) => unknown, textOfPattern: (pattern: string) => string, work: Work) {
    this.#resolve = resolve;
    this.#textOfPattern = textOfPattern;
    this.#work = work;
  }

  /** Tests whether a value is valid. Throws UnsupportedSchemaError if that cannot be decided, and WorkExceededError. */
  check(value: unknown, schema: unknown, depth = 0): boolean {
    this.#work.spend(STEPS_A_SCHEMA);
    if (typeof schema === "boolean") return schema;
    if (!isObject(schema)) return false;
    if (depth > DEPTH_MAX) throw new UnsupportedSchemaError("it is nested too deeply, or without an end");
    if (!this.#hasType(value, schema.type) || !this.#isListed(value, schema)) return false;
    refuseUnsupported(schema);
    return this.#fitsItsType(value, schema, depth + 1) && this.#fitsOthers(value, schema, depth + 1);
  }

  #hasType(value: unknown, type: unknown): boolean {
    if (type === undefined) return true;
    const types = Array.isArray(type) ? type : [type];
    this.#work.spend(types.length);
    return types.some((name) => name === typeNameOf(value) || (name === "integer" && Number.isInteger(value)));
  }

  #isListed(value: unknown, schema: Schema): boolean {
    if (schema.const !== undefined && !this.#isSame(value, schema.const)) return false;
    if (!Array.isArray(schema.enum)) return true;
    return schema.enum.some((option) => {
      this.#work.spend(STEPS_AN_OPTION);
      return this.#isSame(value, option);
    });
  }

  #isSame(value: unknown, other: unknown): boolean {
    return value === other || canonicalText(value, this.#work) === canonicalText(other, this.#work);
  }

  #fitsItsType(value: unknown, schema: Schema, depth: number): boolean {
    if (typeof value === "number") return isNumberValid(value, schema);
    if (typeof value === "string") return this.#isTextValid(value, schema);
    if (Array.isArray(value)) return this.#isArrayValid(value, schema, depth);
    return !isObject(value) || this.#isObjectValid(value, schema, depth);
  }

  /** Checks `$ref`, `allOf`, `anyOf` and `oneOf`. */
  #fitsOthers(value: unknown, { $ref, allOf, anyOf, oneOf }: Schema, depth: number): boolean {
    const fits = (part: unknown) => this.check(value, part, depth);
    if ($ref !== undefined && !fits(this.#resolve($ref))) return false;
    if (!listOf(allOf).every(fits)) return false;
    if (Array.isArray(anyOf) && !anyOf.some(fits)) return false;
    return !Array.isArray(oneOf) || oneOf.filter(fits).length === 1;
  }

  #isTextValid(value: string, { minLength, maxLength, pattern }: Schema): boolean {
    this.#work.spend(value.length);
    if (!isWithin([...value].length, minLength, maxLength)) return false;
    if (typeof pattern !== "string" || value === this.#textOfPattern(pattern)) return true;
    throw new UnsupportedSchemaError("a pattern applies to a text that was not written for it");
  }

  #isArrayValid(value: readonly unknown[], schema: Schema, depth: number): boolean {
    const { minItems, maxItems, uniqueItems, items = true } = schema;
    if (!isWithin(value.length, minItems, maxItems)) return false;
    if (uniqueItems === true && new Set(value.map((item) => canonicalText(item, this.#work))).size < value.length)
      return false;
    return value.every((item) => this.check(item, items, depth));
  }

  #isObjectValid(value: Schema, schema: Schema, depth: number): boolean {
    const names = Object.keys(value);
    const required = listOf(schema.required);
    this.#work.spend((names.length + required.length) * STEPS.key);
    if (!isWithin(names.length, schema.minProperties, schema.maxProperties)) return false;
    if (!required.every((name) => typeof name !== "string" || Object.hasOwn(value, name))) return false;
    const known = isObject(schema.properties) ? schema.properties : {};
    const { additionalProperties = true, propertyNames = true } = schema;
    return names.every((name) => {
      const property = Object.hasOwn(known, name) ? known[name] : additionalProperties;
      return this.check(name, propertyNames, depth) && this.check(value[name], property, depth);
    });
  }
}

/** Tests a number against the bounds of a schema and its `multipleOf`. */
export function isNumberValid(value: number, schema: Schema): boolean {
  const { minimum, maximum, exclusiveMinimum, exclusiveMaximum, multipleOf } = schema;
  if (!isWithin(value, minimum, maximum)) return false;
  if (typeof exclusiveMinimum === "boolean" || typeof exclusiveMaximum === "boolean") {
    throw new UnsupportedSchemaError("an exclusive bound must be a number");
  }
  if (typeof exclusiveMinimum === "number" && value <= exclusiveMinimum) return false;
  if (typeof exclusiveMaximum === "number" && value >= exclusiveMaximum) return false;
  return typeof multipleOf !== "number" || Number.isInteger(value / multipleOf);
}

function isWithin(value: number, least: unknown, most: unknown): boolean {
  return !(typeof least === "number" && value < least) && !(typeof most === "number" && value > most);
}

function typeNameOf(value: unknown): string {
  if (value === null) return "null";
  return Array.isArray(value) ? "array" : typeof value;
}

function listOf(value: unknown): readonly unknown[] {
  return Array.isArray(value) ? value : [];
}
