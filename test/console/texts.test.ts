import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { expect, test } from "vitest";
import { ROOT } from "../support/documents.ts";
import { type AstNode, parseSource, textOf, walk } from "../tidy/source.ts";

const SOURCES = join(ROOT, "console", "src");
/** Code samples are not prose. */
const EXEMPT = /^snippets\//;

/** Attributes that are never shown. Strings in any other attribute count as texts. */
const HIDDEN_ATTRIBUTES =
  /^(className|href|key|id|type|role|rel|target|tone|look|name|what|style|viewBox|d|fill|stroke\w*|(?!aria-label)aria-.*)$/;
/** Calls whose arguments are never shown. */
const HIDDEN_CALLS = /^(querySelector|\w*[sS]howModal|addEventListener|removeEventListener|DateTimeFormat|fetch)$/;

/** One capitalized word, or several words. */
const PROSE = /^[A-Z][a-z]|[A-Za-z]{2,}[.,:;]? [\w{(]/;

test("The snapshot contains every text that the console shows.", async () => {
  const paths = readdirSync(SOURCES, { recursive: true, encoding: "utf8" });
  const files = paths.filter((path) => /\.tsx?$/.test(path) && !/\.test\.tsx?$/.test(path) && !EXEMPT.test(path));
  const groups = files.sort().flatMap((path) => {
    const texts = textsOf(path, readFileSync(join(SOURCES, path), "utf8"));
    return texts.length === 0 ? [] : [`${path}\n${texts.map((text) => `  ${text}\n`).join("")}`];
  });
  expect(groups.length).toBeGreaterThan(30);
  await expect(groups.join("\n")).toMatchFileSnapshot("texts.snap.txt");
});

test("A text is found in elements, attributes, tables and templates, and a value that is not shown is left out.", () => {
  const source = `
    const WORDS = { done: "Completed", id: "request_id" };
    const at = (n: number) => \`\${n} requests per minute\`;
    if (key === "Escape") run("/path of a page");
    const page = <Card title="Audit log" className="card wide" about={open ? "Closes soon" : null}>
      Sign in with <b>a token</b>, {name}.
    </Card>;`;
  const texts = ["Completed", "{…} requests per minute", "Audit log", "Closes soon", "Sign in with a token, {…}."];
  expect(textsOf("page.tsx", source)).toEqual(texts.sort());
});

/** The texts of one source, each of them once, sorted. */
function textsOf(path: string, text: string): string[] {
  const texts = new Set<string>();
  walk(parseSource({ path, text }).program, (node, ancestors) => {
    const found = isElement(node) ? sentenceOf(node, ancestors) : literalOf(node, ancestors);
    if (found !== undefined) texts.add(found.trim());
  });
  return [...texts].sort();
}

const isElement = ({ type }: AstNode) => type === "JSXElement" || type === "JSXFragment";
const children = (node: AstNode) => node.children as AstNode[];

const hasOwnText = (node: AstNode) =>
  isElement(node) && children(node).some((child) => child.type === "JSXText" && /\p{L}/u.test(String(child.value)));

/** The text of an element with that of the elements inside it; of these, only the outermost with text counts. */
function sentenceOf(node: AstNode, ancestors: readonly AstNode[]): string | undefined {
  const parent = ancestors.at(-1);
  if (!hasOwnText(node) || (parent !== undefined && hasOwnText(parent))) return undefined;
  return flatten(node).replaceAll(/\s+/g, " ").trim();
}

function flatten(node: AstNode): string {
  if (node.type === "JSXText") return String(node.value).replaceAll(/^\s*\n\s*|\s*\n\s*$/g, "");
  if (isElement(node)) return children(node).map(flatten).join("");
  const value = node.type === "JSXExpressionContainer" ? textOf(node.expression) : undefined;
  return value ?? "{…}";
}

/** The text of a string or template literal, unless its place or its form says that it is not shown. */
function literalOf(node: AstNode, ancestors: readonly AstNode[]): string | undefined {
  const text = node.type === "TemplateLiteral" ? templateText(node) : textOf(node);
  if (text === undefined || !PROSE.test(text) || /^([./#]|Bearer )/.test(text)) return undefined;
  return ancestors.some((ancestor, index) => isHidden(ancestor, ancestors[index + 1] ?? node)) ? undefined : text;
}

function templateText({ quasis }: AstNode): string {
  return (quasis as { value: { cooked: string } }[]).map(({ value }) => value.cooked).join("{…}");
}

/** Returns true where a part of a node is never shown. */
function isHidden(node: AstNode, part: AstNode): boolean {
  switch (node.type) {
    case "ImportDeclaration":
    case "ImportExpression":
    case "TSLiteralType":
    case "BinaryExpression":
      return true;
    case "Property":
      return part === node.key;
    case "MemberExpression":
      return node.computed === true && part === node.property;
    case "JSXAttribute":
      return HIDDEN_ATTRIBUTES.test(String((node.name as AstNode).name));
    case "CallExpression":
    case "NewExpression": {
      const callee = node.callee as AstNode;
      return HIDDEN_CALLS.test(String(callee.name ?? (callee.property as AstNode | undefined)?.name));
    }
    default:
      return false;
  }
}
