import { readdirSync } from "node:fs";
import { dirname } from "node:path";
import { fileURLToPath } from "node:url";
import { describe, expect, test } from "vitest";
import { checkFiles, toLine } from "./tidy/check.ts";
import { projectFiles } from "./tidy/files.ts";

const root = dirname(dirname(fileURLToPath(import.meta.url)));

test("The project keeps its own rules.", () => {
  expect(checkFiles(projectFiles(root)).map(toLine)).toEqual([]);
});

test("Both stores have the same migrations, each with a number of its own.", () => {
  const namesOf = (store: string) => readdirSync(new URL(`../src/stores/${store}/migrations/`, import.meta.url)).sort();
  const names = namesOf("sqlite");
  const numbers = names.map((name) => name.slice(0, 4));
  expect(numbers).toEqual([...new Set(numbers)]);
  expect(namesOf("postgres")).toEqual(names);
});

/** Lists the rules that sources break. With `reach`, src/main.ts imports every file, and small files are allowed. */
function broken(files: Record<string, string>, reach = true): string[] {
  const imports = Object.keys(files).filter((path) => path.startsWith("src/") && path !== "src/main.ts");
  const main = imports.map((path) => `import "./${path.slice("src/".length)}";`).join("\n");
  const all = reach ? { "src/main.ts": main, ...files } : files;
  const texts = Object.entries(all).map(([path, text]) => ({ path, text }));
  const found = checkFiles(texts).filter(({ rule }) => !reach || rule !== "small file");
  return found.map(({ path, line, rule }) => `${path}:${line} ${rule}`);
}

const lines = (count: number, line = "run();") => Array.from({ length: count }, () => line).join("\n");

describe("A violation is reported:", () => {
  const cases: [name: string, files: Record<string, string>, found: string[]][] = [
    [
      "an import against the layers",
      { "src/credits/a.ts": 'import { b } from "../gateway/b.ts";', "src/gateway/b.ts": "export const b = 1;" },
      ["src/credits/a.ts:1 layers"],
    ],
    [
      "a value where only a type may be imported",
      {
        "src/gateway/a.ts": '\nimport { one } from "../providers/provider.ts";',
        "src/providers/provider.ts": "export const one = 1;",
      },
      ["src/gateway/a.ts:2 layers"],
    ],
    [
      "a type of another file than the seam",
      {
        "src/ledger/a.ts": 'import type { Row } from "../stores/rows.ts";',
        "src/stores/rows.ts": "export type Row = 1;",
      },
      ["src/ledger/a.ts:1 layers"],
    ],
    [
      "an exported import",
      { "src/api/a.ts": 'export { b } from "../errors.ts";', "src/errors.ts": "export const b = 1;" },
      ["src/api/a.ts:1 layers"],
    ],
    [
      "a dynamic import",
      { "src/admin/a.ts": 'await import("../http/b.ts");', "src/http/b.ts": "export {};" },
      ["src/admin/a.ts:1 layers"],
    ],
    ["a folder that is not part of the layout", { "src/helpers/a.ts": "" }, ["src/helpers/a.ts:1 layers"]],
    ["a driver outside the stores", { "src/ledger/a.ts": 'import pg from "pg";' }, ["src/ledger/a.ts:1 layers"]],
    ["input and output in credits", { "src/credits/a.ts": 'import "node:fs";' }, ["src/credits/a.ts:1 layers"]],
    [
      "an import cycle",
      { "src/http/a.ts": 'import "./b.ts";', "src/http/b.ts": 'import type { A } from "./a.ts";' },
      ["src/http/b.ts:1 no import cycle"],
    ],
    [
      "code of the service in the console",
      {
        "console/src/main.tsx": 'import type { A } from "../../src/api/a.ts";\nimport { b } from "../../src/api/a.ts";',
        "src/api/a.ts": "export type A = 1;",
      },
      ["console/src/main.tsx:2 layers"],
    ],
    [
      "code of the service, or a package, in the benchmark of overspending",
      {
        "overspend/a.ts": 'import "../src/api/a.ts";\nimport "undici";\nimport "node:http";',
        "src/api/a.ts": "",
      },
      ["overspend/a.ts:1 layers", "overspend/a.ts:2 layers"],
    ],
    [
      "a long component",
      { "console/src/main.tsx": `function A() {\n${lines(70)}\nreturn <p />;\n}` },
      ["console/src/main.tsx:1 size"],
    ],
    ["a long function", { "src/http/a.ts": `function a() {\n${lines(69)}\n}` }, ["src/http/a.ts:1 size"]],
    [
      "a long test",
      { "test/a.test.ts": `describe("x", () => {\ntest("y", () => {\n${lines(69)}\n})})` },
      ["test/a.test.ts:2 size"],
    ],
    ["a long file", { "src/http/a.ts": lines(401) }, ["src/http/a.ts:1 size"]],
    ["a silenced compiler", { "src/http/a.ts": "// @ts-" + "ignore" }, ["src/http/a.ts:1 types"]],
    ["SQL outside the stores", { "src/cli/a.ts": "q(`\n SELECT a FROM b`);" }, ["src/cli/a.ts:1 sql"]],
    ["a provider's name", { "src/http/a.ts": 'if (kind === "anthropic") run();' }, ["src/http/a.ts:1 providers"]],
    ["a provider's model", { "src/gateway/a.ts": "is(`sandbox/$" + "{name}`);" }, ["src/gateway/a.ts:1 providers"]],
    ["the environment", { "src/app.ts": "run(process.env.PORT);" }, ["src/app.ts:1 environment"]],
    ["the environment by name", { "src/app.ts": 'import { env } from "node:process";' }, ["src/app.ts:1 environment"]],
    ["the clock", { "src/ledger/a.ts": "run(Date.now());\nrun(new Date());" }, lineOne("clock", 2)],
    ["random numbers", { "src/ledger/a.ts": 'import { randomUUID } from "node:crypto";' }, lineOne("clock", 1)],
    [
      "comments that begin with a question word",
      {
        "test/a.test.ts":
          "/** What it does. */\nrun();\n\n// Of no use.\nrun();\n/**\n * Whether it is set.\n */\nrun();",
      },
      ["test/a.test.ts:1 comments", "test/a.test.ts:4 comments", "test/a.test.ts:6 comments"],
    ],
    [
      "an exported name with two meanings",
      { "src/http/a.ts": "export interface A {}", "src/http/b.ts": "run();\nexport class A {}" },
      ["src/http/b.ts:2 exported name"],
    ],
    [
      "a function with the name of an exported constant",
      { "src/api/a.ts": "export const [c] = [1], b = 1;", "src/http/b.ts": "export async function b() {}" },
      ["src/http/b.ts:1 exported name"],
    ],
    ["unfinished work", { "docs/a.md": "TO" + "DO: write this" }, ["docs/a.md:1 unfinished"]],
    ["a path of one machine", { "docs/a.md": "see /ho" + "me/me/notes" }, ["docs/a.md:1 machine"]],
  ];
  function lineOne(rule: string, count: number): string[] {
    return Array.from({ length: count }, (_, index) => `src/ledger/a.ts:${index + 1} ${rule}`);
  }
  test.each(cases)("%s", (_name, files, found) => {
    expect(broken(files)).toEqual(found);
  });

  test("A file without importers is reported.", () => {
    const files = { "src/main.ts": "", "src/http/a.ts": "", "src/http/a.test.ts": 'import "./a.ts";', "test/b.ts": "" };
    expect(broken(files, false)).toEqual(["src/http/a.ts:1 no dead file", "test/b.ts:1 no dead file"]);
  });

  test("A small file with a single importer is reported, except in a table.", () => {
    const main = 'import "./http/a.ts"; import "./http/b.ts"; import "./http/c.ts"; import "./http/routes/d.ts";';
    const files = {
      "src/main.ts": main,
      "src/http/a.ts": 'import "./b.ts";',
      "src/http/b.ts": "",
      "src/http/c.ts": lines(40),
      "src/http/routes/d.ts": "",
    };
    expect(broken(files, false)).toEqual(["src/http/a.ts:1 small file"]);
  });
});

describe("Code that follows the rules is accepted:", () => {
  const cases: [name: string, files: Record<string, string>][] = [
    [
      "the type of a seam",
      {
        "src/gateway/a.ts": 'import type { Provider } from "../providers/provider.ts";',
        "src/ledger/a.ts": 'import { type Books } from "../stores/store.ts";',
        "src/providers/provider.ts": "export type Provider = 1;",
        "src/stores/store.ts": "export type Books = 1;",
      },
    ],
    [
      "a test that imports what its folder may not",
      { "src/credits/a.test.ts": 'import "../gateway/b.ts"; run(Date.now(), "openai");', "src/gateway/b.ts": "" },
    ],
    ["a function of 70 lines", { "src/http/a.ts": `function a() {\n${lines(68)}\n}` }],
    ["a long list of tests", { "test/a.test.ts": `describe.each(x)("x", () => {\n${lines(100)}\n});` }],
    ["prose that looks like SQL", { "src/cli/a.ts": 'say("Select a model from the list of models");' }],
    ["a clock that was passed in", { "src/ledger/a.ts": "run(clock(), new Date(atMs), Date.parse(text));" }],
    ["a provider in prose", { "src/http/a.ts": 'say("Works with OpenAI clients.");' }],
    [
      "comments that only continue with a question word",
      { "test/a.test.ts": "// Waits.\n// What follows is read.\nrun(); /** Whatever. */" },
    ],
    [
      "a type that is not exported, or of a test",
      {
        "src/http/a.ts": "export interface A {}",
        "src/http/b.ts": "interface A {}",
        "test/a.test.ts": "export type A = 1;",
      },
    ],
    ["a worker", { "src/stores/a.ts": 'new URL(b ? "./w.ts" : "./w.js", import.meta.url);', "src/stores/w.ts": "" }],
  ];
  test.each(cases)("%s", (_name, files) => {
    expect(broken(files)).toEqual([]);
  });

  test("A worker is reached by its URL.", () => {
    const files = { "src/main.ts": 'new URL("./cli/w.ts", import.meta.url);', "src/cli/w.ts": "" };
    expect(broken(files, false)).toEqual([]);
  });

  test("A global setup file is reached by its name.", () => {
    const files = { "vitest.config.ts": 'export default { globalSetup: ["test/a.ts"] };', "test/a.ts": "" };
    expect(broken(files, false)).toEqual([]);
  });
});
