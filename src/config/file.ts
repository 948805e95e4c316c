import { isMap, isScalar, LineCounter, parseDocument } from "yaml";
import { OperatorError } from "../errors.ts";
import { keyText } from "./mistake.ts";
import { type SchemaNode, schemaAt } from "./schema.ts";

export type Path = (string | number)[];
export type Environment = Record<string, string | undefined>;

/** A configuration file as read: its values, and where each stands. */
export interface ConfigFile {
  name: string;
  values: Record<string, unknown>;
  /** "tollgate.yaml:12" for the value at a path, or for the nearest one around it. */
  place(path: Path): string;
}

/**
 * Parses a configuration file. `${NAME}` in a text is replaced from the environment (`$${` stands for `${`), a key
 * without a value counts as absent, and prices keep the digits that were written.
 */
export function parseFile(name: string, text: string, environment: Environment): ConfigFile {
  const lines = new LineCounter();
  const document = parseDocument(text, { lineCounter: lines });
  const fault = document.errors[0] ?? document.warnings[0];
  if (fault !== undefined) {
    const reason = (fault.message.split("\n")[0] ?? "").replace(/ at line \d+, column \d+:$/, "");
    throw new OperatorError(`${name}:${fault.linePos?.[0].line ?? 1}: this is not valid YAML: ${reason}`);
  }
  const place = (path: Path): string => {
    for (let length = path.length; length > 0; length -= 1) {
      const range = nodeAt(document.contents, path.slice(0, length));
      if (range !== undefined) return `${name}:${lines.linePos(range).line}`;
    }
    return name;
  };
  const tree: unknown = document.toJS() ?? {};
  if (typeof tree !== "object" || Array.isArray(tree)) {
    throw new OperatorError(
      `${name}: found ${Array.isArray(tree) ? "a list" : "a single value"}; allowed: keys and values`,
    );
  }
  const sourceOf = (path: Path) => {
    const node = document.getIn(path, true);
    return isScalar(node) ? node.source : undefined;
  };
  const values = settle(tree, [], { environment, place, sourceOf }) as Record<string, unknown>;
  return { name, values, place };
}

interface Reading {
  environment: Environment;
  place(path: Path): string;
  sourceOf(path: Path): string | undefined;
}

function settle(value: unknown, path: Path, reading: Reading): unknown {
  if (typeof value === "string") return fillIn(value, path, reading);
  if (typeof value === "number" && isDecimal(schemaAt(path))) return decimalText(value, reading.sourceOf(path));
  if (Array.isArray(value)) return value.map((item, index) => settle(item, [...path, index], reading));
  if (typeof value !== "object" || value === null) return value;
  return Object.fromEntries(
    Object.entries(value)
      .filter(([, member]) => member !== null)
      .map(([key, member]) => [key, settle(member, [...path, key], reading)]),
  );
}

function fillIn(text: string, path: Path, { environment, place }: Reading): unknown {
  let replaced = false;
  const filled = text.replace(/\$\$\{|\$\{([^}]*)(\}?)/g, (found, name: string | undefined, end: string) => {
    if (name === undefined) return "${";
    if (end === "" || !/^[A-Za-z_][A-Za-z0-9_]*$/.test(name)) {
      throw new OperatorError(
        `${place(path)}: ${keyText(path)}: found ${found}; allowed: \${NAME} with the name of a variable, or $\${ for the characters themselves`,
      );
    }
    const value = environment[name];
    if (value === undefined) {
      throw new OperatorError(`${place(path)}: ${keyText(path)}: the environment variable ${name} is not set`);
    }
    replaced = true;
    return value;
  });
  return replaced ? valueOfText(filled, schemaAt(path)) : filled;
}

/** A text as the type that the schema asks for, where the text reads as one; otherwise as it is, for the check to refuse. */
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

function decimalText(value: number, source: string | undefined): string {
  return source !== undefined && /^\d+(\.\d+)?$/.test(source) ? source : String(value);
}

/** Where the value at a path starts in the text; a key's own place for a value of several lines. */
function nodeAt(root: unknown, path: Path): number | undefined {
  let node: unknown = root;
  let start: number | undefined;
  for (const step of path) {
    if (typeof step === "number") {
      node = (node as { items?: unknown[] } | null)?.items?.[step];
      start = (node as { range?: number[] } | undefined)?.range?.[0];
    } else {
      const pair = isMap(node) ? node.items.find(({ key }) => isScalar(key) && key.value === step) : undefined;
      node = pair?.value;
      start = isScalar(pair?.key) ? pair.key.range?.[0] : undefined;
    }
  }
  return start;
}
