import { dirname, posix } from "node:path";
import { parseSync, visitorKeys } from "oxc-parser";

/** A text file of the project; the path is relative to its root, with forward slashes. */
export interface TextFile {
  path: string;
  text: string;
}

export interface Violation {
  path: string;
  line: number;
  rule: string;
  message: string;
}

export interface AstNode {
  type: string;
  start: number;
  end: number;
  [field: string]: unknown;
}

export interface Import {
  specifier: string;
  /** The imported file's path, where the specifier is relative. */
  target: string | undefined;
  /** True if only types are imported, so that nothing of it exists at run time. */
  typeOnly: boolean;
  line: number;
}

/** A block comment, or all lines of a row of line comments, without the marks. */
interface Comment {
  text: string;
  line: number;
}

export interface Source extends TextFile {
  imports: Import[];
  /** Files reached without an import: workers, by `new URL("./x.ts", import.meta.url)`, and files that settings name. */
  urls: string[];
  program: AstNode;
  comments: Comment[];
  lineOf(offset: number): number;
}

/** Parses a source; a syntax error is thrown, naming the file. */
export function parseSource({ path, text }: TextFile): Source {
  const parsed = parseSync(path, text, { lang: languageOf(path), sourceType: "module" });
  const [error] = parsed.errors;
  if (error !== undefined) throw new Error(`${path}: ${error.message}`);
  const lineOf = lineCounter(text);
  const program = parsed.program as unknown as AstNode;
  const source: Source = {
    path,
    text,
    imports: [],
    urls: [],
    program,
    comments: joinLines(parsed.comments, lineOf),
    lineOf,
  };
  walk(program, (node) => readReference(node, source));
  return source;
}

function languageOf(path: string): "tsx" | "ts" | "js" {
  if (path.endsWith(".tsx")) return "tsx";
  return path.endsWith(".ts") ? "ts" : "js";
}

function readReference(node: AstNode, source: Source): void {
  const add = (specifier: string, typeOnly: boolean) => {
    const target = resolve(source.path, specifier);
    source.imports.push({ specifier, target, typeOnly, line: source.lineOf(node.start) });
  };
  const specifier = textOf(node.source);
  switch (node.type) {
    case "ImportDeclaration":
    case "ExportNamedDeclaration":
    case "ExportAllDeclaration":
      if (specifier !== undefined) add(specifier, takesOnlyTypes(node));
      break;
    case "ImportExpression":
      if (specifier !== undefined) add(specifier, false);
      break;
    case "TSImportType":
      add(textOf(node.source) ?? textOf((node.argument as AstNode | undefined)?.literal) ?? "", true);
      break;
    case "NewExpression":
      if ((node.callee as AstNode).name === "URL") source.urls.push(...filesNamedIn(node, source.path));
      break;
    case "Program":
      if (source.path === "vitest.config.ts") source.urls.push(...filesNamedIn(node, source.path));
      break;
  }
}

/** Every text that may be a path, as in `new URL(fromSource ? "./worker.ts" : "./worker.js", import.meta.url)`. */
function filesNamedIn(node: AstNode, from: string): string[] {
  const files: string[] = [];
  walk(node, (inner) => {
    const text = textOf(inner);
    if (text?.endsWith(".ts")) files.push(posix.join(dirname(from), text));
  });
  return files;
}

function takesOnlyTypes(node: AstNode): boolean {
  if (node.importKind === "type" || node.exportKind === "type") return true;
  const specifiers = (node.specifiers ?? []) as AstNode[];
  return specifiers.length > 0 && specifiers.every((one) => one.importKind === "type" || one.exportKind === "type");
}

function resolve(from: string, specifier: string): string | undefined {
  return /^\.\.?\//.test(specifier) ? posix.join(dirname(from), specifier) : undefined;
}

/** The value of a string literal. */
export function textOf(node: unknown): string | undefined {
  const literal = node as AstNode | null | undefined;
  return literal?.type === "Literal" && typeof literal.value === "string" ? literal.value : undefined;
}

/** Visits a node and all below it, with its ancestors, nearest last. */
export function walk(
  node: AstNode,
  visit: (node: AstNode, ancestors: readonly AstNode[]) => void,
  ancestors: AstNode[] = [],
): void {
  visit(node, ancestors);
  ancestors.push(node);
  for (const key of visitorKeys[node.type] ?? []) {
    const child = node[key];
    for (const one of Array.isArray(child) ? child : [child]) {
      if (one !== null && one !== undefined) walk(one as AstNode, visit, ancestors);
    }
  }
  ancestors.pop();
}

function joinLines(
  comments: readonly { type: string; value: string; start: number }[],
  lineOf: (offset: number) => number,
): Comment[] {
  const joined: Comment[] = [];
  let nextLine = 0;
  for (const { type, value, start } of comments) {
    const line = lineOf(start);
    const before = joined.at(-1);
    if (type === "Line" && before !== undefined && line === nextLine) before.text += value;
    else joined.push({ text: value.replace(/^\*/, "").trimStart(), line });
    nextLine = type === "Line" ? line + 1 : 0;
  }
  return joined;
}

function lineCounter(text: string): (offset: number) => number {
  const starts = [0];
  for (let at = text.indexOf("\n"); at !== -1; at = text.indexOf("\n", at + 1)) starts.push(at + 1);
  return (offset) => {
    let low = 0;
    let high = starts.length;
    while (low < high) {
      const middle = (low + high) >>> 1;
      if ((starts[middle] ?? 0) <= offset) low = middle + 1;
      else high = middle;
    }
    return low;
  };
}
