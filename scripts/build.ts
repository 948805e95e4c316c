/**
 * `npm run build`: builds the web console, and bundles src/ into JavaScript files in dist/. The commit is that of the clone;
 * in a folder that is no clone, such as the image's, TOLLGATE_COMMIT names it, as
 * `git log -1 --abbrev=7 --format='%h %ct'` prints it.
 */
import { writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath, pathToFileURL } from "node:url";
import { cloneCommit, parseCommit } from "../src/version.ts";
import { buildConsole } from "./build-console.ts";
import { bundle } from "./bundle.ts";

const root = dirname(dirname(fileURLToPath(import.meta.url)));

await buildConsole();
await bundle(join(root, "dist"));

const commit = cloneCommit(pathToFileURL(`${root}/`)) ?? parseCommit(process.env.TOLLGATE_COMMIT ?? "");
if (commit !== undefined) writeFileSync(join(root, "dist", "commit.json"), JSON.stringify(commit));
