import { checkCode } from "./code.ts";
import { checkCycles, checkDeadFiles, checkExportedNames, checkSmallFiles } from "./graph.ts";
import { checkLayers } from "./layers.ts";
import { parseSource, type Source, type TextFile, type Violation } from "./source.ts";
import { checkText } from "./text.ts";

/** Generated files and data of third parties, which the rules do not concern. */
const EXEMPT = /(^|\/)(fixtures|data|facts|generated)\/|\.generated\.ts$/;

/** Returns every violation of every rule in the given files. */
export function checkFiles(files: readonly TextFile[]): Violation[] {
  const readable = files.filter(({ path }) => !EXEMPT.test(path));
  const code = readable.filter(({ path }) => /\.(tsx?|js)$/.test(path));
  const sources = new Map<string, Source>(code.map((file) => [file.path, parseSource(file)]));
  return [
    ...readable.flatMap(checkText),
    ...[...sources.values()].flatMap((source) => [...checkLayers(source), ...checkCode(source)]),
    ...checkCycles(sources),
    ...checkDeadFiles(sources),
    ...checkSmallFiles(sources),
    ...checkExportedNames(sources),
  ];
}

/** Formats a violation as one line: its place, its rule, and what is wrong. */
export function toLine({ path, line, rule, message }: Violation): string {
  return `${path}:${line} [${rule}] ${message}`;
}
