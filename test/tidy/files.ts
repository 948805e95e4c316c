import { readdirSync, readFileSync } from "node:fs";
import { extname, join } from "node:path";
import type { TextFile } from "./source.ts";

const FOLDERS = ["src", "console", "test", "scripts", "bench", "overspend", "bin", "docs", ".ci"];
const SKIPPED = new Set(["node_modules", "dist"]);
const TEXT = new Set([".ts", ".tsx", ".js", ".css", ".html", ".md", ".json", ".sql", ".yaml", ".yml", ".sh", ""]);
const LOCK = "package-lock.json";

/** Reads every text file of the project, in its folders and at its root, in the order of their paths. */
export function projectFiles(root: string): TextFile[] {
  const atRoot = readdirSync(root, { withFileTypes: true });
  const paths = atRoot.filter((entry) => entry.isFile() && !entry.name.startsWith(".")).map((entry) => entry.name);
  for (const folder of FOLDERS) {
    if (atRoot.some(({ name }) => name === folder)) paths.push(...pathsBelow(root, folder));
  }
  return paths
    .filter((path) => TEXT.has(extname(path)) && !path.endsWith(LOCK))
    .sort()
    .map((path) => ({ path, text: readFileSync(join(root, path), "utf8") }));
}

function pathsBelow(root: string, folder: string): string[] {
  return readdirSync(join(root, folder), { withFileTypes: true }).flatMap((entry) => {
    if (SKIPPED.has(entry.name) || entry.name.startsWith(".dist-")) return [];
    const path = `${folder}/${entry.name}`;
    return entry.isDirectory() ? pathsBelow(root, path) : entry.isFile() ? [path] : [];
  });
}
