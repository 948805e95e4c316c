/**
 * `npm run build`: builds the web console, bundles src/ into JavaScript files in dist/, and copies the files that are read at
 * run time. The commit is that of the clone. Where there is none, as in the image, TOLLGATE_COMMIT names it, as
 * `git log -1 --abbrev=7 --format='%h %ct'` prints it.
 */
import { cpSync, readdirSync, writeFileSync } from "node:fs";
import { dirname, extname, join } from "node:path";
import { fileURLToPath, pathToFileURL } from "node:url";
import { cloneCommit, parseCommit } from "../src/version.ts";
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

const commit = cloneCommit(pathToFileURL(`${root}/`)) ?? parseCommit(process.env.TOLLGATE_COMMIT ?? "");
if (commit !== undefined) writeFileSync(join(root, "dist", "commit.json"), JSON.stringify(commit));
