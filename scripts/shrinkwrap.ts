/**
 * Writes npm-shrinkwrap.json for the packed tarball: the entries of package-lock.json that an installation needs, so that
 * an installation from a registry gets the versions that were tested, each with its integrity. The development packages
 * are left out, because npm would install them too. Runs before `npm pack`; with `--remove` it deletes the file again,
 * because npm would prefer it to package-lock.json in the clone.
 */
import { readFileSync, rmSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";

interface Lock {
  packages: Record<string, { dev?: boolean; link?: boolean; devDependencies?: unknown }>;
}

const root = dirname(dirname(fileURLToPath(import.meta.url)));
const shrinkwrap = join(root, "npm-shrinkwrap.json");

if (process.argv.includes("--remove")) {
  rmSync(shrinkwrap, { force: true });
} else {
  const lock: Lock = JSON.parse(readFileSync(join(root, "package-lock.json"), "utf8"));
  const entries = Object.entries(lock.packages).filter(([, { dev, link }]) => dev !== true && link !== true);
  const packages = Object.fromEntries(entries.map(([path, { devDependencies: _, ...entry }]) => [path, entry]));
  writeFileSync(shrinkwrap, `${JSON.stringify({ ...lock, packages }, null, 2)}\n`);
}
