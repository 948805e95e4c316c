import {
  type Document,
  isMap,
  isNode,
  isScalar,
  isSeq,
  LineCounter,
  parseDocument,
  Scalar,
  stringify,
  visit,
} from "yaml";
import { OperatorError } from "../errors.ts";
import type { SchemaNode } from "./schema.ts";
import type { Variables } from "./variables.ts";

export type Path = (string | number)[];

/** A parsed configuration file. Its `place` is "tollgate.yaml:12" for the value at a path, or for the nearest one around it. */
export type ConfigFile = ReturnType<typeof parseFile>;

/** Formats a path as people write it: `providers[0].baseUrl`. */
export function keyText(path: readonly (string | number)[]): string {
  return path
    .map((step, index) => (typeof step === "number" ? `[${step}]` : `${index > 0 ? "." : ""}${step}`))
    .join("");
}

export interface ParseOptions {
  variables: Variables;
  /** The part of the schema at a path. Absent: every value stays as it was written. */
  schemaAt?: (path: Path) => SchemaNode | undefined;
  /** The keys of the top level to read. Absent: all of them. */
  only?: readonly string[];
  /** Keys whose texts stay as they were written, with `${NAME}` in them. */
  unread?: ReadonlySet<string | number>;
}

/**
 * Parses a configuration file with merge keys, `${NAME}` for variables, `${file:PATH}` for files, and `$${` for `${`. A key without
 * a value counts as absent, and prices keep their digits.
 */
export function parseFile(name: string, text: string, options: ParseOptions) {
  const { document, place } = openDocument(name, text, (at) => (at === undefined ? name : `${name}:${at.line}`));
  const tree = treeOf(name, document);
  if (typeof tree !== "object" || Array.isArray(tree)) {
    throw new OperatorError(
      `${name} is ${Array.isArray(tree) ? "a list" : "a single value"}, but must be a group of settings.`,
    );
  }
  const entries = Object.entries(tree).filter(([key]) => options.only?.includes(key) ?? true);
  const reading: Reading = { unread: new Set(), schemaAt: () => undefined, ...options, place, mistakes: [] };
  const values = settle(Object.fromEntries(entries), [], reading) as Record<string, unknown>;
  if (reading.mistakes.length > 0) throw new OperatorError(reading.mistakes.join("\n"));
  return { name, values, place };
}

const DOCUMENT_BYTES_MAX = 4 * 1024 * 1024;

/** Yields the documents of a YAML file with the places of their values, one at a time to save memory. Throws OperatorError. */
export function* yamlDocuments(name: string, text: string): Generator<Pick<ConfigFile, "place"> & { values: unknown }> {
  let linesBefore = 0;
  for (const part of text.split(/^---(?=\s)/m)) {
    const before = linesBefore;
    if (Buffer.byteLength(part) > DOCUMENT_BYTES_MAX) {
      throw new OperatorError(
        `${name}:${before + 1}: a document is larger than ${DOCUMENT_BYTES_MAX} bytes. Split it with a line of ---.`,
      );
    }
    const { document, place } = openDocument(name, part, (at) =>
      at === undefined ? `${name}:${before + 1}` : `${name}:${before + at.line}:${at.col}`,
    );
    const values: unknown = plainOf(name, document) ?? null;
    if (values !== null) yield { values, place };
    linesBefore += part.split("\n").length - 1;
  }
}

/** Formats a YAML document, without anchors and without a final line feed. */
export function yamlText(document: object): string {
  return stringify(document, { aliasDuplicateObjects: false }).trimEnd();
}

/** Parses a document. `placeAt` names a position in it, or the document itself. Throws OperatorError. */
function openDocument(name: string, text: string, placeAt: (position?: { line: number; col: number }) => string) {
  const lines = new LineCounter();
  let document: Document;
  try {
    document = parseDocument(text, { lineCounter: lines, merge: true, resolveKnownTags: false });
  } catch (error) {
    if (error instanceof RangeError) throw new OperatorError(`${name}: the values are nested too deeply`);
    throw error;
  }
  const fault = document.errors[0] ?? document.warnings[0];
  if (fault !== undefined) {
    const reason = (fault.message.split("\n")[0] ?? "").replace(/ at line \d+, column \d+:$/, "");
    throw new OperatorError(`${placeAt(lines.linePos(fault.pos[0]))}: this is not valid YAML: ${reason}`);
  }
  const place = (path: Path): string => {
    for (let length = path.length; length > 0; length -= 1) {
      const offset = offsetAt(document, path.slice(0, length));
      if (offset !== undefined) return placeAt(lines.linePos(offset));
    }
    return placeAt();
  };
  return { document, place };
}

/** Returns the values of a document, in which a number is a node, which has its digits. */
function treeOf(name: string, document: Document): object {
  visit(document, {
    Scalar(key, node) {
      if (key === "key" || typeof node.value !== "number") return;
      const written = new Scalar<unknown>(node.value);
      node.value = Object.assign(written, { source: node.source });
    },
  });
  return plainOf(name, document) ?? {};
}

/** Returns the values of a document, with aliases and merge keys resolved. Throws OperatorError. */
function plainOf(name: string, document: Document): object | null | undefined {
  try {
    return document.toJS();
  } catch (error) {
    // An alias without its anchor, aliases that multiply without bound, or a merge key with something else than a map.
    const reason = error instanceof RangeError ? "the values are nested too deeply" : (error as Error).message;
    throw new OperatorError(`${name}: this is not valid YAML: ${reason.split("\n")[0]}`, { cause: error });
  }
}

/** Far more than any setting needs; an alias can stand within its own anchor. */
const DEPTH_MAX = 64;

interface Reading extends Required<Omit<ParseOptions, "only">> {
  place(path: Path): string;
  /** References that cannot be replaced, a line each. */
  mistakes: string[];
}

function settle(value: unknown, path: Path, reading: Reading): unknown {
  if (path.length > DEPTH_MAX) {
    throw new OperatorError(
      `${reading.place(path)}: the values are nested more than ${DEPTH_MAX} deep, or contain themselves.`,
    );
  }
  if (typeof value === "string")
    return path.some((step) => reading.unread.has(step)) ? value : fillIn(value, path, reading);
  if (isScalar<number>(value)) return isDecimal(reading.schemaAt(path)) ? decimalText(value) : value.value;
  if (Array.isArray(value)) return value.map((item, index) => settle(item, [...path, index], reading));
  if (typeof value !== "object" || value === null) return value;
  return Object.fromEntries(
    Object.entries(value)
      .filter(([, member]) => member !== null)
      .map(([key, member]) => [key, settle(member, [...path, key], reading)]),
  );
}

function fillIn(text: string, path: Path, { variables, place, schemaAt, mistakes }: Reading): unknown {
  let replaced = false;
  const filled = text.replace(/\$\$\{|\$\{([^}]*)(\}?)/g, (found, reference: string | undefined, end: string) => {
    if (reference === undefined) return "${";
    const setting = `${place(path)}: ${keyText(path)}`;
    if (end === "" || !REFERENCE.test(reference)) {
      mistakes.push(
        `${setting} contains ${found}. Write \${NAME} with the name of a variable, \${file:PATH} with the path of a file, or $\${ for a literal \${.`,
      );
      return found;
    }
    const value = variables.textOf(reference, setting);
    if (value === undefined) mistakes.push(`${setting} needs the environment variable ${reference}, which is not set.`);
    replaced = true;
    return value ?? "";
  });
  return replaced ? valueOfText(filled, schemaAt(path)) : filled;
}

const REFERENCE = /^([A-Za-z_][A-Za-z0-9_]*|file:.+)$/;

/** Converts text to the type in the schema where possible; other text stays, for the check to refuse. */
export function valueOfText(text: string, schema: SchemaNode | undefined): unknown {
  const types = [schema?.type].flat();
  if ((types.includes("integer") || types.includes("number")) && !isDecimal(schema)) {
    if (/^-?\d{1,15}(\.\d{1,15})?$/.test(text)) return Number(text);
  }
  if (types.includes("boolean") && (text === "true" || text === "false")) return text === "true";
  return text;
}

function isDecimal(schema: SchemaNode | undefined): boolean {
  return schema?.format?.startsWith("decimal") ?? false;
}

function decimalText({ value, source }: Scalar<number>): string {
  return source !== undefined && /^\d+(\.\d+)?$/.test(source) ? source : String(value);
}

function offsetAt(document: Document, path: Path): number | undefined {
  const step = path.at(-1);
  const group = document.getIn(path.slice(0, -1), true);
  const found = isMap(group)
    ? group.items.find(({ key }) => isScalar(key) && key.value === step)?.key
    : isSeq(group) && group.items[Number(step)];
  return isNode(found) ? found.range?.[0] : undefined;
}
