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

/** Builds what is out of date; resolves with whether there was anything to build. */
export async function buildConsole(): Promise<boolean> {
  const sources = hashOfSources();
  const dist = join(folder, "dist");
  if (existsSync(join(dist, STAMP)) && readFileSync(join(dist, STAMP), "utf8") === sources) return false;
  // Beside its place and then into it: whoever looks meanwhile finds the one or the other, whole.
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

/** In a process of its own: what NODE_ENV says here, such as in tests, would have React's development build taken. */
async function runVite(words: string[]): Promise<void> {
  const vite = join(root, "node_modules", "vite", "bin", "vite.js");
  const environment = { ...process.env, NODE_ENV: "production" };
  const child = spawn(process.execPath, [vite, ...words], { cwd: root, env: environment, stdio: ["ignore", 2, 2] });
  const [code] = await once(child, "close");
  if (code !== 0) throw new Error("The web console could not be built: what is wrong stands above.");
}

/** One text for all that the build is made of: the console's files, and the packages by their lock. */
function hashOfSources(): string {
  const hash = createHash("sha256").update(readFileSync(join(root, "package-lock.json")));
  const paths = readdirSync(folder, { recursive: true, withFileTypes: true })
    .filter((entry) => entry.isFile())
    .map((entry) => join(entry.parentPath, entry.name))
    .filter((path) => !/[\\/](dist|\.dist-[^\\/]*)[\\/]/.test(path.slice(folder.length)));
  for (const path of paths.sort()) hash.update(path.slice(folder.length)).update("\0").update(readFileSync(path));
  return hash.digest("hex");
}

/** Each file once more, compressed as browsers ask for it, so that no request has to wait for it. */
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
