import { isTest } from "./layers.ts";
import type { Source, Violation } from "./source.ts";

const ENTRIES = ["src/main.ts", "console/src/main.tsx"];

/** Imports that name no file, and circles of imports, types included. */
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
