import type { Static, TSchema } from "typebox";
import { isObject } from "./json.ts";
import { compileCheck, refuse, refuseIf } from "./validation.ts";
import { UnknownFields } from "./wording.ts";

/** Copies a value; `unknown` collects the fields that the schema does not have. */
type Copy = (value: unknown, unknown: UnknownFields) => unknown;

interface Shape {
  type?: string;
  properties?: Record<string, Shape>;
  items?: Shape;
  anyOf?: Shape[];
  oneOf?: Shape[];
  discriminator?: { propertyName: string };
  const?: unknown;
}

/** Compiles a schema to a reader of bodies: it copies like `compileCopy`, and throws InvalidRequestError. */
export function compileReader<Schema extends TSchema>(
  schema: Schema,
  { silent, refused = {}, refusedNames }: ReaderOptions = {},
): (body: unknown) => { read: Static<Schema>; unknown: UnknownFields } {
  const copy = compileCopy(schema, silent);
  const check = compileCheck(schema);
  const checkRefused = compileCheck({ properties: refused });
  return (body) => {
    refuseIf(checkRefused(body));
    const unknown = new UnknownFields(refusedNames);
    const read = copy(body, unknown) as Static<Schema>;
    refuseIf(check(read));
    const { refused: param } = unknown;
    const message = `'${param}' is not supported by this service.`;
    if (param !== undefined) refuse({ code: "unsupported_value", param, message });
    return { read, unknown };
  };
}

interface ReaderOptions {
  /** Fields that are left out without a note. */
  silent?: readonly string[];
  /** Schemas of fields that are refused, see `refused`. */
  refused?: Record<string, object>;
  /** Matches unknown fields that are refused. */
  refusedNames?: RegExp;
}

/** Compiles a schema to a function that returns a value with only the fields of the schema; undefined if that is invalid. */
export function compileKnown<Schema extends TSchema>(schema: Schema): (value: unknown) => Static<Schema> | undefined {
  const copy = compileCopy(schema);
  const check = compileCheck(schema);
  return (value) => {
    const known = copy(value, new UnknownFields());
    return check(known) === undefined ? (known as Static<Schema>) : undefined;
  };
}

/**
 * Compiles a schema to a function that copies a parsed body, valid or not, with only the fields of the schema, so that no
 * others reach an upstream or the store. `null` counts as absent, except in data without named fields, such as JSON
 * schemas and the input of tools. Fields in `silent`, such as `messages.tool_calls.index`, are left out without a note.
 */
export function compileCopy(schema: TSchema, silent: readonly string[] = []): Copy {
  let copy: Copy | undefined;
  return (value, unknown) => {
    copy ??= copyOf(schema as Shape, "", new Set(silent)) ?? asIs;
    return copy(value, unknown);
  };
}

const asIs: Copy = (value) => value;

/** Returns undefined for a schema without named fields, whose values are taken as they are. */
function copyOf(shape: Shape, place: string, silent: ReadonlySet<string>): Copy | undefined {
  if (shape.properties !== undefined) return copyOfFields(shape.properties, place, silent);
  if (shape.oneOf !== undefined) return copyOfTagged(shape, place, silent);
  if (shape.anyOf !== undefined) return copyOfUnion(shape.anyOf, place, silent);
  const copyItem = shape.items && copyOf(shape.items, place, silent);
  if (copyItem === undefined) return undefined;
  return (value, unknown) => (Array.isArray(value) ? value.map((item) => copyItem(item, unknown)) : value);
}

function copyOfFields(properties: Record<string, Shape>, place: string, silent: ReadonlySet<string>): Copy {
  const known = new Map(
    Object.entries(properties).map(([name, shape]) => [name, copyOf(shape, `${place}${name}.`, silent) ?? asIs]),
  );
  return (value, unknown) => {
    if (!isObject(value)) return value;
    const copied: Record<string, unknown> = {};
    for (const name in value) {
      const field = value[name];
      if (field === null || field === undefined) continue;
      const copy = known.get(name);
      if (copy !== undefined) copied[name] = copy(field, unknown);
      else if (!silent.has(place + name)) unknown.add(place, name);
    }
    return copied;
  };
}

/** A value whose tag no schema has is left to the validator. */
function copyOfTagged({ oneOf = [], discriminator }: Shape, place: string, silent: ReadonlySet<string>): Copy {
  const tag = discriminator?.propertyName ?? "type";
  const branches = new Map(oneOf.map((shape) => [shape.properties?.[tag]?.const, copyOf(shape, place, silent)]));
  return (value, unknown) => (isObject(value) ? (branches.get(value[tag])?.(value, unknown) ?? value) : value);
}

function copyOfUnion(shapes: readonly Shape[], place: string, silent: ReadonlySet<string>): Copy | undefined {
  const ofArray = shapes.filter(({ type }) => type === "array").map((shape) => copyOf(shape, place, silent))[0];
  const ofRecord = shapes.filter(({ type }) => type === "object").map((shape) => copyOf(shape, place, silent))[0];
  if (ofArray === undefined && ofRecord === undefined) return undefined;
  return (value, unknown) => (Array.isArray(value) ? ofArray : ofRecord)?.(value, unknown) ?? value;
}
