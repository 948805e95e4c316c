/**
 * Bundles packages of very many modules into one file each of the compiled package: Kysely has 255 and TypeBox 709, which
 * took more than half of the time of a short command.
 */
import { cpSync, readdirSync, readFileSync, writeFileSync } from "node:fs";
import { dirname, join, relative } from "node:path";
import { fileURLToPath } from "node:url";
import { build } from "vite";

const root = dirname(dirname(fileURLToPath(import.meta.url)));
/** Names of the bundled packages, and the files of their licences. */
export const PACKAGES = { kysely: "LICENSE", typebox: "license" };
const IMPORT = new RegExp(`(?<= from )"(${Object.keys(PACKAGES).join("|")})"`, "g");

/** Writes `vendor/NAME.js` and its licence into the folder of the compiled files, and makes those import it. */
export async function bundlePackages(dist: string): Promise<void> {
  const vendor = join(dist, "vendor");
  for (const [name, license] of Object.entries(PACKAGES)) {
    await bundle(name, vendor);
    cpSync(join(root, "node_modules", name, license), join(vendor, `${name}.LICENSE`));
  }
  for (const path of readdirSync(dist, { recursive: true, encoding: "utf8" })) {
    const file = join(dist, path);
    if (!file.endsWith(".js") || dirname(file) === vendor) continue;
    const text = readFileSync(file, "utf8");
    const changed = text.replace(IMPORT, (_found, name: string) => {
      const bundled = relative(dirname(file), join(vendor, `${name}.js`)).replaceAll("\\", "/");
      return JSON.stringify(bundled.startsWith(".") ? bundled : `./${bundled}`);
    });
    if (changed !== text) writeFileSync(file, changed);
  }
}

async function bundle(name: string, folder: string): Promise<void> {
  await build({
    configFile: false,
    logLevel: "warn",
    ssr: { noExternal: true },
    build: {
      ssr: true,
      target: "node24",
      minify: false,
      outDir: folder,
      emptyOutDir: false,
      rollupOptions: {
        input: { [name]: fileURLToPath(import.meta.resolve(name)) },
        output: { entryFileNames: "[name].js" },
      },
    },
  });
}
