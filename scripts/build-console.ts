/**
 * Builds the web console into console/dist, where its sources or the packages differ from those of the last build.
 * Runs before `npm start`, `npm test` and `npm pack`; when nothing has changed it takes no longer than reading them.
 */
import { spawn } from "node:child_process";
import { createHash } from "node:crypto";
import { once } from "node:events";
import { existsSync, readdirSync, readFileSync, renameSync, rmSync, writeFileSync } from "node:fs";
import { dirname, extname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { brotliCompressSync, gzipSync } from "node:zlib";

const root = dirname(dirname(fileURLToPath(import.meta.url)));
const folder = join(root, "console");
const STAMP = ".sources";
const COMPRESSED = new Set([".js", ".css", ".svg"]);

/** Builds the console if it is out of date; resolves with true if it did. */
export async function buildConsole(): Promise<boolean> {
  const sources = hashOfSources();
  const dist = join(folder, "dist");
  if (existsSync(join(dist, STAMP)) && readFileSync(join(dist, STAMP), "utf8") === sources) return false;
  // Builds next to the folder and renames: readers find either the old or the new build, complete.
  const made = join(folder, `.dist-${process.pid}`);
  try {
    await runVite(["build", folder, "--outDir", made, "--logLevel", "warn"]);
    compress(made);
    writeFileSync(join(made, STAMP), sources);
    rmSync(dist, { recursive: true, force: true });
    renameSync(made, dist);
  } finally {
    rmSync(made, { recursive: true, force: true });
  }
  return true;
}

/** Runs Vite in a separate process: with this process's NODE_ENV, as in tests, it could use React's development build. */
async function runVite(words: string[]): Promise<void> {
  const vite = join(root, "node_modules", "vite", "bin", "vite.js");
  const environment = { ...process.env, NODE_ENV: "production" };
  const child = spawn(process.execPath, [vite, ...words], { cwd: root, env: environment, stdio: ["ignore", 2, 2] });
  const [code] = await once(child, "close");
  if (code !== 0) throw new Error("The web console could not be built. The errors are above.");
}

/** Hashes everything that the build depends on: the console's files, and the lock file of the packages. */
function hashOfSources(): string {
  const hash = createHash("sha256").update(readFileSync(join(root, "package-lock.json")));
  const paths = readdirSync(folder, { recursive: true, withFileTypes: true })
    .filter((entry) => entry.isFile())
    .map((entry) => join(entry.parentPath, entry.name))
    .filter((path) => !/[\\/](dist|\.dist-[^\\/]*)[\\/]/.test(path.slice(folder.length)));
  for (const path of paths.sort()) hash.update(path.slice(folder.length)).update("\0").update(readFileSync(path));
  return hash.digest("hex");
}

/** Writes a compressed copy of each file, so that no request has to wait for compression. */
function compress(built: string): void {
  for (const path of readdirSync(built, { recursive: true, encoding: "utf8" })) {
    if (!COMPRESSED.has(extname(path))) continue;
    const content = readFileSync(join(built, path));
    writeFileSync(join(built, `${path}.br`), brotliCompressSync(content));
    writeFileSync(join(built, `${path}.gz`), gzipSync(content, { level: 9 }));
  }
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  const startedAtMs = Date.now();
  if (await buildConsole())
    console.error(`Built the web console in ${((Date.now() - startedAtMs) / 1000).toFixed(1)} s.`);
}
