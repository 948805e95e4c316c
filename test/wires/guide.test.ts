import { execFile } from "node:child_process";
import { cp, mkdtemp, readFile, rm, symlink, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { promisify } from "node:util";
import { expect, test } from "vitest";
import { blocksOf, ROOT, readDocuments } from "../support/documents.ts";

/** The two blocks of the page that tell how to add a provider: its file, and its line in the table. */
function guide(): { file: string; line: string } {
  const page = readDocuments().find(({ path }) => path === "docs/providers.md");
  const [file, line, ...others] = page === undefined ? [] : blocksOf(page).filter(({ language }) => language === "ts");
  if (file === undefined || line === undefined || others.length > 0) throw new Error("The guide has not two blocks");
  return { file: file.text, line: line.text };
}

test("the guide adds a provider by one file and one line", async () => {
  const folder = await mkdtemp(join(tmpdir(), "tollgate-guide-"));
  try {
    await cp(join(ROOT, "src"), join(folder, "src"), { recursive: true });
    await cp(join(ROOT, "package.json"), join(folder, "package.json"));
    await symlink(join(ROOT, "node_modules"), join(folder, "node_modules"));
    const { file, line } = guide();
    await writeFile(join(folder, "src/providers/registry/lumen.ts"), file);
    const table = join(folder, "src/catalog/known-providers.ts");
    const text = await readFile(table, "utf8");
    const [name = ""] = line.trim().split(",");
    const added = text.replace("KnownProvider[] = [\n", (found) => `${found}${line}\n`);
    await writeFile(table, `import { ${name} } from "./providers/${name}.ts";\n${added}`);
    const model = { id: "m", routes: [{ provider: "lumen", model: "large" }], price: { input: 1, output: 2 } };
    await writeFile(join(folder, "tollgate.yaml"), JSON.stringify({ models: [model] }));
    const environment = { PATH: process.env.PATH, LUMEN_API_KEY: "key" };
    const words = ["src/main.ts", "config", "check", "--json"];
    const { stdout } = await promisify(execFile)(process.execPath, words, { cwd: folder, env: environment });
    expect(JSON.parse(stdout)).toMatchObject({
      ok: true,
      providers: ["lumen"],
      models: ["m", "sandbox/echo", "sandbox/fault", "sandbox/story"],
    });
  } finally {
    await rm(folder, { recursive: true, force: true });
  }
});
