/**
 * `npm run build`: builds the web console, bundles src/ into JavaScript files in dist/, and copies the files that are read at
 * run time.
 */
import { cpSync, readdirSync } from "node:fs";
import { dirname, extname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { buildConsole } from "./build-console.ts";
import { bundle } from "./bundle.ts";

const root = dirname(dirname(fileURLToPath(import.meta.url)));
const copied = new Set([".sql", ".json"]);

await buildConsole();
await bundle(join(root, "dist"));

const sources = readdirSync(join(root, "src"), { recursive: true, encoding: "utf8" });
for (const path of sources.filter((candidate) => copied.has(extname(candidate)))) {
  cpSync(join(root, "src", path), join(root, "dist", path));
}
