/**
 * Bundles src/ into few JavaScript files for the package: half of a start went to loading hundreds of modules. Each dynamic
 * import stays a file of its own, so that a command loads only what it uses. Packages stay imports, except for those of
 * very many modules: TypeBox has 709.
 */
import { cpSync, mkdirSync, readdirSync } from "node:fs";
import { dirname, extname, join, relative, sep } from "node:path";
import { fileURLToPath } from "node:url";
import { build, type Plugin } from "vite";

const root = dirname(dirname(fileURLToPath(import.meta.url)));
const source = join(root, "src");
/** Names of the bundled packages, and the files of their licences. */
export const PACKAGES = { typebox: "license" };
/** Files that Node starts, by their path without extension: the process, and its threads. */
const ENTRIES = ["main", "gateway/token-counter-worker", "stores/sqlite/worker"];
/** Files of src/ that are read at run time. */
const READ = new Set([".json", ".lua", ".sql"]);

/**
 * Writes the bundled files, the files that they read, and the licences of the bundled packages into a folder. `entries` are
 * the paths of further files to bundle, by their name.
 */
export async function bundle(folder: string, entries: Record<string, string> = {}): Promise<void> {
  await build({
    configFile: false,
    root,
    logLevel: "warn",
    ssr: { noExternal: Object.keys(PACKAGES) },
    plugins: [sourceUrls()],
    build: {
      ssr: true,
      target: "node24",
      minify: false,
      outDir: folder,
      emptyOutDir: true,
      rollupOptions: {
        input: { ...Object.fromEntries(ENTRIES.map((entry) => [entry, join(source, `${entry}.ts`)])), ...entries },
        // V8 keeps the text of each file: two bytes for each character if one of them is not ASCII.
        output: { entryFileNames: "[name].js", chunkFileNames: "[name]-[hash].js", charset: "ascii", comments: false },
      },
    },
  });
  const paths = readdirSync(source, { recursive: true, encoding: "utf8" });
  for (const path of paths.filter((one) => READ.has(extname(one)))) cpSync(join(source, path), join(folder, path));
  const licenses = join(folder, "licenses");
  mkdirSync(licenses);
  for (const [name, license] of Object.entries(PACKAGES)) {
    cpSync(join(root, "node_modules", name, license), join(licenses, `${name}.LICENSE`));
  }
}

/** Gives `import.meta.url` the value that it would have in a file of its own, for the files that modules read beside them. */
function sourceUrls(): Plugin {
  const top = "import.meta.TOLLGATE_FOLDER";
  return {
    name: "source-urls",
    transform(code, id) {
      if (!id.startsWith(source)) return;
      const path = relative(source, id).replaceAll(sep, "/").replace(/\.ts$/, ".js");
      return code.replaceAll("import.meta.url", `new URL(${JSON.stringify(path)}, ${top}).href`);
    },
    renderChunk(code, { fileName }) {
      const up = "../".repeat(fileName.split("/").length - 1) || "./";
      return code.replaceAll(top, `new URL("${up}", import.meta.url)`);
    },
  };
}
