import { isTest } from "./layers.ts";
import type { AstNode, Source, Violation } from "./source.ts";

const SMALL_FILE_LINES = 40;
/** Each file of these folders is a row of a table, however small. */
const TABLES = [
  "src/http/routes/",
  "src/operations/",
  "src/providers/registry/",
  "src/providers/ai-sdk/wires/",
  "src/catalog/facts/",
];
const ENTRIES = ["src/main.ts", "console/src/main.tsx"];

/** Import cycles, types included. */
export function checkCycles(sources: Map<string, Source>): Violation[] {
  const violations: Violation[] = [];
  const done = new Set<string>();
  const visit = (path: string, trail: string[]): void => {
    if (done.has(path)) return;
    for (const { target, line } of sources.get(path)?.imports ?? []) {
      if (target === undefined || !sources.has(target)) continue;
      const at = [...trail, path].indexOf(target);
      if (at === -1) visit(target, [...trail, path]);
      else {
        const circle = [...trail, path].slice(at).concat(target).join(" -> ");
        violations.push({ path, line, rule: "no import cycle", message: circle });
      }
    }
    done.add(path);
  };
  for (const path of sources.keys()) visit(path, []);
  return violations;
}

/** Sources of src/ that neither the process nor its workers reach, and helpers of tests that no test reaches. */
export function checkDeadFiles(sources: Map<string, Source>): Violation[] {
  const serving = reachable(sources, ENTRIES);
  const tests = [...sources.keys()].filter(
    (path) => /\.test\.tsx?$/.test(path) || !/^(src|test|console\/src)\//.test(path),
  );
  const tested = reachable(sources, [...tests, ...ENTRIES]);
  const dead = [...sources.keys()].filter((path) => {
    const isProduct = /^(console\/)?src\//.test(path) && !isTest(path);
    return !(isProduct ? serving : tested).has(path);
  });
  return dead.map((path) => ({ path, line: 1, rule: "no dead file", message: "nothing reaches this file" }));
}

/** Files of src/ under 40 lines that only one other file imports: they belong into it. */
export function checkSmallFiles(sources: Map<string, Source>): Violation[] {
  const product = productOf(sources);
  const importers = Map.groupBy(
    product.flatMap(({ path, imports }) =>
      [...new Set(imports.map(({ target }) => target))].map((to) => ({ path, to })),
    ),
    ({ to }) => to,
  );
  return product.flatMap(({ path, text }) => {
    const [only, ...others] = importers.get(path) ?? [];
    const isSmall = text.trimEnd().split("\n").length < SMALL_FILE_LINES;
    if (only === undefined || others.length > 0 || !isSmall || TABLES.some((table) => path.startsWith(table)))
      return [];
    return [{ path, line: 1, rule: "small file", message: `under 40 lines, and only ${only.path} imports it` }];
  });
}

/** Names that two files of src/ export, apart from those that each store has. */
export function checkExportedNames(sources: Map<string, Source>): Violation[] {
  const firstPaths = new Map<string, string>();
  return productOf(sources).flatMap(({ path, program, lineOf }) =>
    (program.body as AstNode[]).flatMap((node) =>
      exportedNames(node).flatMap((name) => {
        const first = firstPaths.get(name);
        if (first === undefined) firstPaths.set(name, path);
        if (first === undefined || roleOf(first) === roleOf(path)) return [];
        const message = `${first} exports another ${name}`;
        return [{ path, line: lineOf(node.start), rule: "exported name", message }];
      }),
    ),
  );
}

/** Returns the names that a statement declares and exports. */
function exportedNames(node: AstNode): string[] {
  const declaration = node.type === "ExportNamedDeclaration" ? (node.declaration as AstNode | null) : null;
  const declared = (declaration?.declarations as AstNode[] | undefined) ?? (declaration === null ? [] : [declaration]);
  return declared.map(({ id }) => (id as AstNode).name).filter((name) => typeof name === "string");
}

/** Both stores have functions of the same names, which do the same. */
function roleOf(path: string): string {
  return path.replace(/^src\/stores\/(sqlite|postgres)\/.*/, "a store");
}

function productOf(sources: Map<string, Source>): Source[] {
  return [...sources.values()].filter(({ path }) => path.startsWith("src/") && !isTest(path));
}

function reachable(sources: Map<string, Source>, entries: readonly string[]): Set<string> {
  const reached = new Set<string>();
  const open = entries.filter((path) => sources.has(path));
  for (let path = open.pop(); path !== undefined; path = open.pop()) {
    if (reached.has(path)) continue;
    reached.add(path);
    const source = sources.get(path);
    const targets = [...(source?.imports ?? []).map(({ target }) => target), ...(source?.urls ?? [])];
    open.push(...targets.filter((target) => target !== undefined && sources.has(target)).map(String));
  }
  return reached;
}
