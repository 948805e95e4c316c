import { isTest, layerOf } from "./layers.ts";
import { type AstNode, type Source, textOf, type Violation, walk } from "./source.ts";

const LINES_A_FUNCTION = 70;
const LINES_A_FILE = 400;

/** Folders that may use the clock and random numbers; `app.ts` passes them to all others. */
const MAY_ASK_THE_CLOCK = new Set(["app", "main", "cli", "config", "internals", "stores"]);
/** The main module of a thread, which cannot be passed a function. */
const THREAD = /-worker\.ts$/;
const CLOCKS = new Set(["Date.now", "Math.random", "performance.now", "crypto.randomUUID", "process.hrtime"]);
const RANDOM_IMPORTS = new Set(["randomBytes", "randomUUID", "randomInt", "getRandomValues", "webcrypto"]);

const PROVIDERS =
  /^(openai|openai-compatible|anthropic|google|google-vertex|gemini|bedrock|azure|mistral|cohere|xai|groq|deepseek|together|fireworks|openrouter|ollama|lm-?studio|llama\.?cpp|vllm|sandbox)([-_/:.].*)?$/i;
const MAY_NAME_PROVIDERS = new Set(["providers", "catalog"]);
/** Headers of Anthropic's API and formats of reasoning: names of wires that clients and several providers speak. */
const WORDS_OF_WIRES = new Set([
  "anthropic-version",
  "anthropic-beta",
  "anthropic-claude-v1",
  "google-gemini-v1",
  "openai-responses-v1",
]);
/** The category of the test models is a value of the public API. */
const CATEGORIES_OF_THE_API = new Set(["src/api/model.ts"]);

const SQL =
  /^\s*(select\s[\s\S]*\sfrom\s|insert\s+(or\s+\w+\s+)?into\s|update\s+\w+\s+set\s|delete\s+from\s|create\s+(unique\s+)?(table|index)\s|alter\s+table\s|pragma\s+\w|begin\s+(immediate|isolation))/;

const COMMENTED_FOLDERS = /^(src|test|bench|overspend|scripts|console\/src)\//;
const COMMENT_OPENING = /^(?:\*\s*)?(What|Of|Whether|Whoever|Where|How)\b/;

/** Checks the rules that concern one source. */
export function checkCode(source: Source): Violation[] {
  const violations: Violation[] = checkComments(source);
  const report = (node: { start: number }, rule: string, message: string) =>
    violations.push({ path: source.path, line: source.lineOf(node.start), rule, message });
  const lines = source.text.trimEnd().split("\n").length;
  if (lines > LINES_A_FILE) {
    violations.push({ path: source.path, line: 1, rule: "size", message: `${lines} lines; at most ${LINES_A_FILE}` });
  }
  const rules = [checkFunction];
  if (source.path.startsWith("src/") && !isTest(source.path)) {
    rules.push(checkEnvironment, checkClock, checkLiterals);
  }
  walk(source.program, (node, ancestors) => {
    for (const rule of rules) rule(node, { source, ancestors, report });
  });
  return violations;
}

/** A comment begins with a verb in the third person or with the noun, and not with a question word. */
function checkComments({ path, comments }: Source): Violation[] {
  if (!COMMENTED_FOLDERS.test(path)) return [];
  return comments.flatMap(({ text, line }) => {
    const word = COMMENT_OPENING.exec(text)?.[1];
    const message = `the comment begins with "${word}"; begin with a verb in the third person or with the noun`;
    return word === undefined ? [] : [{ path, line, rule: "comments", message }];
  });
}

interface Context {
  source: Source;
  ancestors: readonly AstNode[];
  report(node: { start: number }, rule: string, message: string): void;
}

const FUNCTIONS = new Set(["FunctionDeclaration", "FunctionExpression", "ArrowFunctionExpression"]);

function checkFunction(node: AstNode, { source, ancestors, report }: Context): void {
  if (!FUNCTIONS.has(node.type) || isGroupOfTests(ancestors.at(-1))) return;
  const lines = source.lineOf(node.end) - source.lineOf(node.start) + 1;
  if (lines > LINES_A_FUNCTION) report(node, "size", `a function of ${lines} lines; at most ${LINES_A_FUNCTION}`);
}

/** `describe(name, () => …)` and `describe.each(…)(name, () => …)`: a list of tests, not a function to follow. */
function isGroupOfTests(node: AstNode | undefined): boolean {
  let callee = node?.type === "CallExpression" ? (node.callee as AstNode) : undefined;
  while (callee?.type === "CallExpression" || callee?.type === "MemberExpression") {
    callee = (callee.type === "CallExpression" ? callee.callee : callee.object) as AstNode;
  }
  return callee?.type === "Identifier" && callee.name === "describe";
}

function checkEnvironment(node: AstNode, { source, report }: Context): void {
  if (layerOf(source.path) === "config") return;
  const fromImport = node.type === "ImportDeclaration" && textOf(node.source) === "node:process";
  const importsIt = fromImport && specifiersOf(node).includes("env");
  if (importsIt || nameOf(node) === "process.env") {
    report(node, "environment", "process.env is read in src/config.ts only");
  }
}

function checkClock(node: AstNode, { source, report }: Context): void {
  if (MAY_ASK_THE_CLOCK.has(layerOf(source.path)) || THREAD.test(source.path)) return;
  const name = nameOf(node);
  const message = "the clock and random numbers are handed in by app.ts";
  if (name !== undefined && CLOCKS.has(name)) report(node, "clock", `${name}: ${message}`);
  const isNow = node.type === "NewExpression" && (node.arguments as AstNode[]).length === 0;
  if (isNow && (node.callee as AstNode).name === "Date") report(node, "clock", `new Date(): ${message}`);
  if (node.type !== "ImportDeclaration" || textOf(node.source) !== "node:crypto") return;
  for (const imported of specifiersOf(node)) {
    if (RANDOM_IMPORTS.has(imported)) report(node, "clock", `${imported}: ${message}`);
  }
}

function checkLiterals(node: AstNode, { source, ancestors, report }: Context): void {
  if (ancestors.at(-1)?.type === "ImportDeclaration" || ancestors.at(-1)?.type.startsWith("Export")) return;
  const text = node.type === "TemplateElement" ? (node.value as { cooked: string | null }).cooked : textOf(node);
  if (typeof text !== "string") return;
  const layer = layerOf(source.path);
  if (layer !== "stores" && isSql(text)) report(node, "sql", "SQL is allowed in src/stores/ only");
  if (MAY_NAME_PROVIDERS.has(layer) || CATEGORIES_OF_THE_API.has(source.path)) return;
  if (PROVIDERS.test(text) && !WORDS_OF_WIRES.has(text)) {
    report(node, "providers", `"${text}": a provider is named in src/providers/ and src/catalog/ only`);
  }
}

/** `a.b` for a member of a plain name. */
function nameOf(node: AstNode): string | undefined {
  if (node.type !== "MemberExpression" || node.computed === true) return undefined;
  const object = node.object as AstNode;
  return object.type === "Identifier" ? `${object.name}.${(node.property as AstNode).name}` : undefined;
}

function specifiersOf(node: AstNode): string[] {
  const specifiers = (node.specifiers ?? []) as AstNode[];
  return specifiers.map(({ imported }) => String((imported as AstNode | undefined)?.name));
}

/** Statements start with a word in lower or upper case, sentences with neither. */
function isSql(text: string): boolean {
  return SQL.test(text) || (/^\s*[A-Z]{2}/.test(text) && SQL.test(text.toLowerCase()));
}
