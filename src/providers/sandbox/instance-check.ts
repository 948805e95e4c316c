import type { TextWriter } from "./instance-string.ts";
import { isSchema, textOf } from "./json.ts";
import { type Schema, STEPS, UnsupportedSchemaError, type Work } from "./work.ts";

/** Whether a value conforms; undefined where the sandbox cannot know. */
type Verdict = boolean | undefined;

const STEPS_A_SCHEMA = 50;
const STEPS_AN_OPTION = 4;
const DEPTH_MAX = 256;

/** Keywords that no check reads: what they say of a value is not known. */
const UNKNOWN_KEYWORDS = [
  "not",
  "if",
  "contains",
  "dependencies",
  "dependentRequired",
  "dependentSchemas",
  "patternProperties",
  "unevaluatedItems",
  "$dynamicRef",
  "$recursiveRef",
] as const;

/**
 * Checks examples against the whole schema before they are sent, because the steps that make them follow its keywords
 * one by one. Runs no pattern: a text matches one if it was written for it. Pays for each step from the work budget.
 */
export class InstanceChecker {
  readonly #resolve: (reference: unknown) => unknown;
  readonly #texts: TextWriter;
  readonly #work: Work;

  constructor(resolve: (reference: unknown) => unknown, texts: TextWriter, work: Work) {
    this.#resolve = resolve;
    this.#texts = texts;
    this.#work = work;
  }

  check(value: unknown, schema: unknown, depth = 0): Verdict {
    this.#work.spend(STEPS_A_SCHEMA);
    if (typeof schema === "boolean") return schema;
    if (!isSchema(schema)) return false;
    if (depth > DEPTH_MAX) throw new UnsupportedSchemaError("it is nested too deeply, or without an end");
    return every(this.#verdicts(value, schema, depth + 1));
  }

  *#verdicts(value: unknown, schema: Schema, depth: number): Generator<Verdict> {
    if (schema.type !== undefined) yield this.#hasType(value, schema.type);
    if (schema.const !== undefined) yield this.#isSame(value, schema.const);
    if (Array.isArray(schema.enum)) yield this.#isAmong(value, schema.enum);
    if (typeof value === "number") yield* numberVerdicts(value, schema);
    if (typeof value === "string") yield* this.#textVerdicts(value, schema);
    if (Array.isArray(value)) yield* this.#arrayVerdicts(value, schema, depth);
    if (isSchema(value)) yield* this.#objectVerdicts(value, schema, depth);
    if (schema.$ref !== undefined) yield this.check(value, this.#resolve(schema.$ref), depth);
    for (const part of listOf(schema.allOf)) yield this.check(value, part, depth);
    if (Array.isArray(schema.anyOf)) yield this.#isOfSome(value, schema.anyOf, depth);
    if (Array.isArray(schema.oneOf)) yield this.#isOfOne(value, schema.oneOf, depth);
    if (UNKNOWN_KEYWORDS.some((name) => schema[name] !== undefined)) yield undefined;
  }

  #hasType(value: unknown, type: unknown): boolean {
    const types = Array.isArray(type) ? type : [type];
    this.#work.spend(types.length);
    return types.some((name) => name === typeNameOf(value) || (name === "integer" && Number.isInteger(value)));
  }

  #isSame(value: unknown, other: unknown): boolean {
    return value === other || textOf(value, this.#work) === textOf(other, this.#work);
  }

  #isAmong(value: unknown, options: readonly unknown[]): boolean {
    return options.some((option) => {
      this.#work.spend(STEPS_AN_OPTION);
      return this.#isSame(value, option);
    });
  }

  *#textVerdicts(value: string, { minLength, maxLength, pattern }: Schema): Generator<Verdict> {
    if (minLength !== undefined || maxLength !== undefined) {
      this.#work.spend(value.length);
      const { length } = [...value];
      if (typeof minLength === "number") yield length >= minLength;
      if (typeof maxLength === "number") yield length <= maxLength;
    }
    if (typeof pattern === "string") yield this.#texts.hasWritten(value, pattern) || undefined;
  }

  *#arrayVerdicts(value: readonly unknown[], schema: Schema, depth: number): Generator<Verdict> {
    const { minItems, maxItems, uniqueItems } = schema;
    if (typeof minItems === "number") yield value.length >= minItems;
    if (typeof maxItems === "number") yield value.length <= maxItems;
    if (uniqueItems === true) yield new Set(value.map((item) => textOf(item, this.#work))).size === value.length;
    const { tuple, rest } = itemSchemas(schema);
    for (const [index, item] of value.entries())
      yield this.check(item, index < tuple.length ? tuple[index] : rest, depth);
  }

  *#objectVerdicts(value: Schema, schema: Schema, depth: number): Generator<Verdict> {
    const names = Object.keys(value);
    this.#work.spend(names.length * STEPS.key);
    if (typeof schema.minProperties === "number") yield names.length >= schema.minProperties;
    if (typeof schema.maxProperties === "number") yield names.length <= schema.maxProperties;
    const required = listOf(schema.required);
    this.#work.spend(required.length * STEPS.key);
    yield required.every((name) => typeof name !== "string" || Object.hasOwn(value, name));
    const known = isSchema(schema.properties) ? schema.properties : {};
    const { additionalProperties = true, unevaluatedProperties = true, propertyNames = true } = schema;
    for (const name of names) {
      if (propertyNames !== true) yield this.check(name, propertyNames, depth);
      if (Object.hasOwn(known, name)) yield this.check(value[name], known[name], depth);
      else if (additionalProperties !== true) yield this.check(value[name], additionalProperties, depth);
      // Other parts of the schema may have evaluated it.
      else if (unevaluatedProperties !== true) yield undefined;
    }
  }

  #isOfSome(value: unknown, options: readonly unknown[], depth: number): Verdict {
    let verdict: Verdict = false;
    for (const option of options) {
      const one = this.check(value, option, depth);
      if (one === true) return true;
      if (one === undefined) verdict = undefined;
    }
    return verdict;
  }

  #isOfOne(value: unknown, options: readonly unknown[], depth: number): Verdict {
    const verdicts = options.map((option) => this.check(value, option, depth));
    const count = verdicts.filter((verdict) => verdict === true).length;
    if (count > 1) return false;
    return verdicts.includes(undefined) ? undefined : count === 1;
  }
}

/** Schemas of an array's first items, and of the others: as in draft 2020-12, or as in the drafts before it. */
export function itemSchemas({ prefixItems, items, additionalItems }: Schema): { tuple: unknown[]; rest: unknown } {
  if (Array.isArray(prefixItems)) return { tuple: prefixItems, rest: items ?? true };
  if (Array.isArray(items)) return { tuple: items, rest: additionalItems ?? true };
  return { tuple: [], rest: items ?? true };
}

/** True only where every verdict is; false as soon as one is. */
function every(verdicts: Iterable<Verdict>): Verdict {
  let together: Verdict = true;
  for (const verdict of verdicts) {
    if (verdict === false) return false;
    if (verdict === undefined) together = undefined;
  }
  return together;
}

function* numberVerdicts(value: number, schema: Schema): Generator<Verdict> {
  const { minimum, maximum, exclusiveMinimum, exclusiveMaximum, multipleOf } = schema;
  if (typeof minimum === "number") yield exclusiveMinimum === true ? value > minimum : value >= minimum;
  if (typeof maximum === "number") yield exclusiveMaximum === true ? value < maximum : value <= maximum;
  if (typeof exclusiveMinimum === "number") yield value > exclusiveMinimum;
  if (typeof exclusiveMaximum === "number") yield value < exclusiveMaximum;
  if (typeof multipleOf === "number") yield Number.isInteger(value / multipleOf);
}

function typeNameOf(value: unknown): string {
  if (value === null) return "null";
  return Array.isArray(value) ? "array" : typeof value;
}

function listOf(value: unknown): readonly unknown[] {
  return Array.isArray(value) ? value : [];
}
