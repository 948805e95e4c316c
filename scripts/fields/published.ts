/** The objects and fields of a request in the types that a provider publishes, each with requests that have them. */
import { createGenerator, type Definition, type SchemaGenerator } from "ts-json-schema-generator";

type Json = Record<string, unknown>;

/** A field of an object, and a request that has it. */
export interface PublishedField {
  name: string;
  /** Path as the service names it: without the places in lists and the kinds of objects. */
  path: string;
  body: Json;
  /** The value of the field in this request. */
  value: unknown;
}

/** An object of a request, such as `messages[user].content[image_url]`. */
export interface PublishedObject {
  name: string;
  fields: PublishedField[];
  /** A request with the object, which has its required fields only. */
  body: Json;
}

/** Values for fields whose type says less than the API, by the end of the path. */
export type Samples = readonly (readonly [path: RegExp, value: unknown])[];

/** Fields that an object needs although its type does not require them, by the end of its name and by the field that is tried. */
export type Needs = readonly (readonly [object: RegExp, needed: (field: string | undefined) => Json])[];

export interface PublishedRequest {
  schema: Definition;
  /** A request with the required fields only. */
  base: Json;
  samples: Samples;
  needs: Needs;
}

interface Schemas extends Pick<PublishedRequest, "samples"> {
  definitions: Readonly<Record<string, Definition>>;
}

/** Generators by their file, because each takes seconds to read the types of a package. */
const generators = new Map<string, SchemaGenerator>();

/** Returns the JSON schema of an exported type in a file, with all definitions that it refers to. */
export function schemaOf(file: string, type: string, tsconfig: string): Definition {
  const config = { path: file, tsconfig, type: "*", skipTypeCheck: true, additionalProperties: true };
  const generator = generators.get(file) ?? createGenerator({ ...config, functions: "hide" });
  generators.set(file, generator);
  return generator.createSchema(type) as Definition;
}

/** Lists the objects of a request, each at its first place. */
export function publishedObjects({ schema, base, samples, needs }: PublishedRequest): PublishedObject[] {
  const schemas: Schemas = { definitions: (schema.definitions ?? {}) as Schemas["definitions"], samples };
  const objects: PublishedObject[] = [];
  const seen = new Set<Definition>();
  const places: Place[] = [{ name: "", path: "", schema, wrap: (fields) => ({ ...base, ...fields }) }];
  for (let place = places.shift(); place !== undefined; place = places.shift()) {
    const definition = resolved(schemas, place.schema);
    if (seen.has(definition)) continue;
    seen.add(definition);
    const needed = needs.find(([object]) => object.test(place?.name ?? ""))?.[1] ?? (() => ({}));
    objects.push(objectAt(schemas, definition, { ...place, needed }, places));
  }
  return objects;
}

interface Place {
  name: string;
  path: string;
  schema: Definition;
  /** Returns a request with an object of these fields at this place. */
  wrap: (fields: Json) => Json;
}

/** Reads the fields of an object, and adds the places of the objects in them. */
function objectAt(
  schemas: Schemas,
  { properties = {} }: Definition,
  place: Place & { needed: Needs[number][1] },
  places: Place[],
): PublishedObject {
  const fields = Object.entries(properties as Record<string, Definition>).map(([name, schema]) => {
    const path = place.path === "" ? name : `${place.path}.${name}`;
    const value = sampleOf(schemas, schema, path);
    for (const { branch, isList } of branchesOf(schemas, schema)) {
      const definition = resolved(schemas, branch);
      const kind = kindOf(schemas, definition);
      const required = requiredOf(schemas, definition, path);
      const wrap = (inner: Json) => {
        const object = { ...required, ...inner };
        return place.wrap({ ...place.needed(name), [name]: isList ? [object] : object });
      };
      const parent = place.name === "" ? "" : `${place.name}.`;
      places.push({ name: `${parent}${name}${kind === undefined ? "" : `[${kind}]`}`, path, schema: branch, wrap });
    }
    return { name, path, value, body: place.wrap({ ...place.needed(name), [name]: value }) };
  });
  return { name: place.name, fields, body: place.wrap(place.needed(undefined)) };
}

/** Follows references. */
function resolved({ definitions }: Schemas, schema: Definition): Definition {
  let definition = schema;
  while (definition.$ref !== undefined) {
    const named = definitions[decodeURIComponent(definition.$ref.replace("#/definitions/", ""))];
    if (named === undefined) throw new Error(`The schema has no definition ${definition.$ref}`);
    definition = named;
  }
  return definition;
}

/** Returns the objects that a value may be, itself or in a list. */
function branchesOf(schemas: Schemas, schema: Definition, isList = false): { branch: Definition; isList: boolean }[] {
  const definition = resolved(schemas, schema);
  const { items, properties } = definition;
  const choices = choicesOf(definition);
  if (choices !== undefined) return choices.flatMap((choice) => branchesOf(schemas, choice, isList));
  if (definition.type === "array" && items !== undefined && !isList) {
    return branchesOf(schemas, items as Definition, true);
  }
  return properties === undefined ? [] : [{ branch: definition, isList }];
}

function choicesOf({ anyOf, oneOf }: Definition): Definition[] | undefined {
  return (anyOf ?? oneOf) as Definition[] | undefined;
}

/** Returns the value of the field that tells kinds of objects apart. */
function kindOf(schemas: Schemas, { properties = {} }: Definition): string | undefined {
  for (const tag of ["type", "role"]) {
    const { const: kind } = resolved(schemas, (properties[tag] ?? {}) as Definition);
    if (typeof kind === "string") return kind;
  }
  return undefined;
}

function requiredOf(schemas: Schemas, { properties = {}, required = [] }: Definition, path: string): Json {
  // A kind is stated also where it may be left out.
  const names = ["type", "role", ...required].filter((name) => {
    const { const: kind } = resolved(schemas, (properties[name] ?? {}) as Definition);
    return required.includes(name) || kind !== undefined;
  });
  return Object.fromEntries(
    names.flatMap((name) => {
      const schema = properties[name];
      return schema === undefined ? [] : [[name, sampleOf(schemas, schema as Definition, `${path}.${name}`)]];
    }),
  );
}

function sampleOf(schemas: Schemas, schema: Definition, path: string): unknown {
  const stated = schemas.samples.find(([end]) => end.test(path));
  if (stated !== undefined) return stated[1];
  const definition = resolved(schemas, schema);
  if (definition.const !== undefined) return definition.const;
  if (definition.enum !== undefined) return definition.enum.find((value) => value !== null && value !== "auto");
  const choices = choicesOf(definition);
  if (choices !== undefined) {
    const [first = {}] = choices.filter(({ type }) => type !== "null");
    return sampleOf(schemas, first, path);
  }
  const type = [definition.type].flat().find((one) => one !== "null");
  if (type === "string") return "x";
  if (type === "number" || type === "integer") return 1;
  if (type === "boolean") return true;
  if (type === "array") return [sampleOf(schemas, (definition.items ?? {}) as Definition, path)];
  return requiredOf(schemas, definition, path);
}
