/** A JSON object. Nothing in it has a known type, because an upstream or a caller wrote it. */
export type JsonObject = Readonly<Record<string, unknown>>;

/** Tests whether a value is an object and not an array. */
export function isObject(value: unknown): value is JsonObject {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

/** Returns a value that is a string; undefined for any other value. */
export function textOf(value: unknown): string | undefined {
  return typeof value === "string" ? value : undefined;
}

const NAME = /^[\w.-]{1,100}$/;

/** Returns a value that is a name, as types of events are: it may become a line of a stream. Undefined for any other value. */
export function nameOf(value: unknown): string | undefined {
  return typeof value === "string" && NAME.test(value) ? value : undefined;
}

/** Returns those of the named fields that a record has. */
export function pick<Source extends object, Name extends keyof Source>(record: Source, names: readonly Name[]) {
  const stated = names.filter((name) => record[name] !== undefined).map((name) => [name, record[name]]);
  return Object.fromEntries(stated) as Pick<Source, Name>;
}

/** Parses JSON; undefined if the text is not JSON. The parser's own error quotes the text, which must not reach a log. */
export function parseJson(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}

/** Returns the objects in a list that may be absent. */
export function objectsIn(value: unknown): JsonObject[] {
  return Array.isArray(value) ? value.filter(isObject) : [];
}

/** Returns a nested object that may be absent. */
export function detailsOf(value: unknown): JsonObject {
  return isObject(value) ? value : {};
}

/** Reads the arguments of a call. Other text than an object stays under a name that Anthropic's documentation proposes. */
export function argumentsObject(text: string): JsonObject {
  const given = text.trim() === "" ? {} : parseJson(text);
  return isObject(given) ? given : { INVALID_JSON: text };
}

/** Returns the sources that the annotations of an answer cite. */
export function citedSources(annotations: readonly unknown[] = []): JsonObject[] {
  return objectsIn(annotations)
    .map(({ url_citation: citation }) => citation)
    .filter(isObject);
}
