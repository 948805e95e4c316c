/**
 * `npm run build`: builds the web console, compiles src/ to JavaScript in dist/, and copies the files that are read at
 * run time.
 */
import { spawnSync } from "node:child_process";
import { cpSync, readdirSync, rmSync } from "node:fs";
import { dirname, extname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { buildConsole } from "./build-console.ts";
import { bundlePackages } from "./bundle-packages.ts";

const root = dirname(dirname(fileURLToPath(import.meta.url)));
const copied = new Set([".sql", ".json"]);

await buildConsole();
rmSync(join(root, "dist"), { recursive: true, force: true });
const compiler = join(root, "node_modules", "typescript", "bin", "tsc");
const { status } = spawnSync(process.execPath, [compiler, "--project", "tsconfig.build.json"], {
  cwd: root,
  stdio: "inherit",
});
if (status !== 0) process.exit(status ?? 1);
await bundlePackages(join(root, "dist"));

const sources = readdirSync(join(root, "src"), { recursive: true, encoding: "utf8" });
for (const path of sources.filter((candidate) => copied.has(extname(candidate)))) {
  cpSync(join(root, "src", path), join(root, "dist", path));
}
