import { existsSync } from "node:fs";
import { createRequire } from "node:module";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import packageJson from "../../package.json" with { type: "json" };

const VERSIONS: Record<string, string> = packageJson.optionalDependencies;
const require = createRequire(import.meta.url);

/** Returns those of the optional packages that are not installed. Loads none. */
export function missingOf(names: readonly string[]): string[] {
  return names.filter((name) => {
    try {
      require.resolve(name);
      return false;
    } catch (error) {
      // Node throws another error for a package that can only be imported.
      return (error as NodeJS.ErrnoException).code === "MODULE_NOT_FOUND";
    }
  });
}

/** Returns the command that installs optional packages in the tested versions; `prefix` is the folder in quotes of the shell. */
export function installCommand(names: readonly string[], prefix?: string, folder = installationFolder()): string {
  const script = "scripts/ensure-installed.js";
  // In a clone, npm on an old Node would leave them out again.
  if (existsSync(join(folder, script))) return `node ${prefix ?? folder}/${script}`;
  const flag = prefix === undefined ? [] : ["--prefix", prefix];
  return ["npm install", ...flag, ...names.map((name) => `${name}@${VERSIONS[name]}`)].join(" ");
}

/** Returns the end of a message about packages that something needs. */
export function notInstalledText(names: readonly string[]): string {
  const [noun, verb] = names.length === 1 ? ["package", "is"] : ["packages", "are"];
  return `the ${noun} ${names.join(" and ")}, which ${verb} not installed: ${installCommand(names)}`;
}

/** Returns the folder to install packages in: the one whose `node_modules` has this package, or this clone. */
export function installationFolder(): string {
  return fileURLToPath(new URL("../..", import.meta.url)).replace(/[\\/](node_modules[\\/]tollgate[\\/])?$/, "");
}
