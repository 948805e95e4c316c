import { isSchema, textOf } from "./json.ts";
import { type Schema, STEPS, UnsupportedSchemaError, type Work } from "./work.ts";

/** Merges two schemas into one that allows what both allow, as far as the sandbox follows schemas. */
export function merge(one: Schema, other: Schema, work: Work): Schema {
  work.spend((sizeOf(one) + sizeOf(other)) * STEPS.key);
  const merged: Record<string, unknown> = { ...one };
  for (const [name, value] of Object.entries(other)) {
    const before = one[name];
    merged[name] = before === undefined ? value : mergeKeyword(name, before, value, work);
  }
  return merged;
}

/** Number of entries, counted once for each object: the next look at a large one costs nothing before it is paid for. */
export function sizeOf(value: object): number {
  const known = sizes.get(value);
  if (known !== undefined) return known;
  const size = Array.isArray(value) ? value.length : Object.keys(value).length;
  sizes.set(value, size);
  return size;
}

const sizes = new WeakMap<object, number>();

function mergeKeyword(name: string, one: unknown, other: unknown, work: Work): unknown {
  if (one === other) return one;
  if (name === "required" && Array.isArray(one) && Array.isArray(other)) {
    work.spend((one.length + other.length) * STEPS.key);
    return [...one, ...other];
  }
  if (name === "properties" && isSchema(one) && isSchema(other)) return mergeProperties(one, other, work);
  if (typeof one === "number" && typeof other === "number" && /^(m|exclusiveM)(in|ax)/.test(name)) {
    return /^(min|exclusiveMin)/.test(name) ? Math.max(one, other) : Math.min(one, other);
  }
  if (name === "type" || name === "enum") return common(name, one, other, work);
  const isNote = name === "title" || name === "description" || name.startsWith("$") || name === "definitions";
  if (isNote || textOf(one, work) === textOf(other, work)) return other;
  throw new UnsupportedSchemaError(`the keyword '${name.slice(0, 40)}' is given twice for one value`);
}

function mergeProperties(one: Schema, other: Schema, work: Work): Schema {
  work.spend((sizeOf(one) + sizeOf(other)) * STEPS.key);
  const merged = new Map(Object.entries(one));
  for (const [property, schema] of Object.entries(other)) {
    merged.set(property, merged.has(property) ? { allOf: [merged.get(property), schema] } : schema);
  }
  return Object.fromEntries(merged);
}

function common(name: string, one: unknown, other: unknown, work: Work): unknown {
  const left: unknown[] = Array.isArray(one) ? one : [one];
  const right: unknown[] = Array.isArray(other) ? other : [other];
  const rightTexts = new Set(right.map((value) => textOf(value, work)));
  const both = left.filter((value) => rightTexts.has(textOf(value, work)));
  const all = [...left, ...right];
  if (name === "type" && both.length === 0 && all.includes("integer") && all.includes("number")) return "integer";
  if (both.length === 0) throw new UnsupportedSchemaError("it allows no value in one place");
  return both;
}
