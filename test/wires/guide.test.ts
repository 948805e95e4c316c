import { execFile } from "node:child_process";
import { cp, mkdtemp, readFile, rm, symlink, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { promisify } from "node:util";
import { expect, test } from "vitest";
import { blocksOf, ROOT, readDocuments } from "../support/documents.ts";

/** Returns the row that the page adds to the registry. */
function rowOfGuide(): string {
  const page = readDocuments().find(({ path }) => path === "docs/providers.md");
  const [row, ...others] = page === undefined ? [] : blocksOf(page).filter(({ language }) => language === "ts");
  if (row === undefined || others.length > 0) throw new Error("docs/providers.md must have one block of TypeScript");
  return row.text;
}

test("The row of the guide adds a provider that its key alone sets up.", async () => {
  const folder = await mkdtemp(join(tmpdir(), "tollgate-guide-"));
  try {
    await cp(join(ROOT, "src"), join(folder, "src"), { recursive: true });
    await cp(join(ROOT, "package.json"), join(folder, "package.json"));
    await symlink(join(ROOT, "node_modules"), join(folder, "node_modules"));
    const registry = join(folder, "src/providers/registry.ts");
    const text = await readFile(registry, "utf8");
    await writeFile(
      registry,
      text.replace("Row[] = [\n", (found) => `${found}${rowOfGuide()}\n`),
    );
    const model = { id: "m", routes: [{ provider: "lumen", model: "large" }], price: { input: 1, output: 2 } };
    await writeFile(join(folder, "tollgate.yaml"), JSON.stringify({ models: [model] }));
    const environment = { PATH: process.env.PATH, LUMEN_API_KEY: "key" };
    const words = ["src/main.ts", "config", "check", "--json"];
    const { stdout } = await promisify(execFile)(process.execPath, words, { cwd: folder, env: environment });
    expect(JSON.parse(stdout)).toMatchObject({
      ok: true,
      providers: ["lumen"],
      models: [
        "m",
        "sandbox/echo",
        "sandbox/embed",
        "sandbox/fault",
        "sandbox/image",
        "sandbox/speech",
        "sandbox/story",
        "sandbox/transcribe",
      ],
    });
  } finally {
    await rm(folder, { recursive: true, force: true });
  }
});
