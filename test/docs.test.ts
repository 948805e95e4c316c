import { spawnSync } from "node:child_process";
import { existsSync, readFileSync } from "node:fs";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { Ajv } from "ajv";
import type { Command } from "commander";
import { describe, expect, test } from "vitest";
import packageJson from "../package.json" with { type: "json" };
import { AGENTS } from "../scripts/agents/agents.ts";
import { CLIENTS } from "../scripts/agents/clients.ts";
import { withTables } from "../scripts/providers-table.ts";
import { ChatCompletion } from "../src/api/chat/completion.ts";
import { Model } from "../src/api/model.ts";
import { UsageReport } from "../src/api/usage.ts";
import { createProgram } from "../src/cli/program.ts";
import { allowedWords, configNode, type SchemaNode } from "../src/config/schema.ts";
import { errorCatalog, UpstreamError, type UpstreamFailure } from "../src/errors.ts";
import { CONSEQUENCES, toApiError } from "../src/gateway/failures.ts";
import { adminEndpoints } from "../src/http/admin/endpoint.ts";
import { readFault } from "../src/providers/sandbox/fault.ts";
import { TRIALS } from "./crash/trials.ts";
import { runCommand } from "./support/command-line.ts";
import { COUNTS } from "./support/counts.ts";
import { blocksOf, codeOf, headingsOf, linksOf, ROOT, readDocuments, tableOf } from "./support/documents.ts";
import { LAYERS } from "./tidy/layers.ts";

const documents = readDocuments();
const document = (path: string) => {
  const found = documents.find((one) => one.path === path);
  if (found === undefined) throw new Error(`There is no ${path}`);
  return found;
};

test("every link leads to a page and a heading that exist", () => {
  const broken = documents.flatMap((from) =>
    linksOf(from).filter(({ target, heading }) => {
      if (!existsSync(join(ROOT, target))) return true;
      return heading !== undefined && !headingsOf(document(target)).includes(heading);
    }),
  );
  expect(documents.flatMap(linksOf).length).toBeGreaterThan(20);
  expect(broken).toEqual([]);
});

test("every file that is named exists", () => {
  const named = documents.flatMap((from) =>
    codeOf(from).flatMap(
      (code) => code.match(/(?<![\w./-])(?:src|test|docs|bench|scripts|bin)\/[\w./-]*\w(?:\/|\b)/g) ?? [],
    ),
  );
  expect(named.length).toBeGreaterThan(20);
  expect(named.filter((path) => !existsSync(join(ROOT, path)))).toEqual([]);
});

test("Every step of the walk in architecture.md names a file and a function or class in it.", () => {
  const { text } = document("docs/architecture.md");
  const steps = [...text.matchAll(/^\| .+ \| `(src\/[^`]+)` \| `(\w+)` \|$/gm)].map(([, path = "", name = ""]) => ({
    path,
    name,
  }));
  const wrong = steps.filter(({ path, name }) => {
    const file = join(ROOT, path);
    const declaration = new RegExp(
      `^(?:export |default )*(?:async )?(?:function|class|interface|const) ${name}\\b|^ +(?:async )?${name}(?:<.+>)?\\(.*\\{$`,
      "m",
    );
    return !existsSync(file) || !declaration.test(readFileSync(file, "utf8"));
  });
  expect(steps.length).toBeGreaterThan(20);
  expect(wrong).toEqual([]);
});

test("The table of imports in architecture.md names what the check of the layers allows", () => {
  const rows = tableOf(document("docs/architecture.md"), "folder | may import");
  const documented = rows.flatMap(([folders = "", allowed = ""]) => {
    const files = [...allowed.matchAll(/`(?:src\/\w+\/)?([\w-]+(?:\.ts|\/))`/g)].map(([, name]) => name);
    const folderNames = allowed.replaceAll(/`[^`]*`/g, "").match(/\w+/g) ?? [];
    const names = [...folderNames.filter((name) => name in LAYERS), ...files].sort();
    return folders.split(", ").map((folder) => [folder, names]);
  });
  const nameOf = (one: string) => one.replace(/^(?:type:)?\w+\/(?=.)/, "");
  for (const [folder, allowed] of Object.entries(LAYERS)) {
    expect(documented).toContainEqual([folder, allowed.map(nameOf).sort()]);
  }
});

test("The list of the files of a completion in architecture.md names files that exist, and counts them", () => {
  const { text } = document("docs/architecture.md");
  const rows = [...text.matchAll(/^\| `(src\/[^`]+)` \| (\d+) \| (.+) \|$/gm)].map(
    ([, folder = "", count = "", names = ""]) => ({
      count: Number(count),
      files: [...names.matchAll(/`([^`]+)`/g)].map(([, name]) => `${folder}${name}.ts`),
    }),
  );
  const files = rows.flatMap((row) => row.files);
  expect(files.filter((path) => !existsSync(join(ROOT, path)))).toEqual([]);
  expect(rows.map(({ count }) => count)).toEqual(rows.map((row) => row.files.length));
  expect(text).toContain(`runs functions in these ${files.length} files`);
});

test("every diff in CONTRIBUTING.md that names its files applies to them", () => {
  const blocks = [...document("CONTRIBUTING.md").text.matchAll(/^ {2}```diff\n([\s\S]*?)^ {2}```$/gm)];
  const diffs = blocks.map(([, text = ""]) => text.replaceAll(/^ {2}/gm, "")).filter((text) => text.startsWith("--- "));
  const answers = diffs.map((input) => {
    return spawnSync("git", ["apply", "--check", "-"], { cwd: ROOT, input, encoding: "utf8" });
  });
  expect(answers.map(({ status, stderr }) => `${status} ${stderr}`)).toEqual(diffs.map(() => "0 "));
  expect(diffs.length).toBeGreaterThan(1);
});

test("every page of docs/ is linked to", () => {
  const linked = new Set(documents.flatMap(linksOf).map(({ target }) => target));
  expect(documents.map(({ path }) => path).filter((path) => path.startsWith("docs/") && !linked.has(path))).toEqual([]);
});

describe("configuration.md", () => {
  /** The table's rows as the schema has them. */
  function rowsOf(schema: SchemaNode, path = ""): string[][] {
    const properties = Object.entries((schema.properties ?? {}) as Record<string, Described>);
    return properties.flatMap(([key, node]) => {
      const at = path === "" ? key : `${path}.${key}`;
      if (node.type === "object" && node.properties !== undefined) return rowsOf(node, at);
      const isRequired = (schema as Described).required?.includes(key) === true;
      const entries = node.items?.properties === undefined ? [] : rowsOf(node.items, `${at}[]`);
      return [[`\`${at}\``, allowedWords(node), defaultOf(node, isRequired), meaningOf(node)], ...entries];
    });
  }
  interface Described extends SchemaNode {
    default?: unknown;
    description?: string;
    required?: string[];
  }
  function defaultOf(node: Described, isRequired: boolean): string {
    if (node.default !== undefined) return `\`${textOf(node.default)}\``;
    return isRequired ? "required" : "";
  }
  const textOf = (value: unknown) => (typeof value === "string" ? value : JSON.stringify(value));
  const meaningOf = (node: Described) => node.description ?? `Any of ${node.items?.enum?.join(", ")}.`;

  test("lists every key with what is allowed, its default and what it sets", () => {
    expect(tableOf(document("docs/configuration.md"), "key")).toEqual(rowsOf(configNode));
  });

  test("lists every key that takes effect at a reload", () => {
    const flagged = (schema: SchemaNode, path = ""): string[] =>
      Object.entries(schema.properties ?? {}).flatMap(([key, node]) => {
        const at = path === "" ? key : `${path}.${key}`;
        return node.reload === true ? [`\`${at}\``] : flagged(node, at);
      });
    const rows = tableOf(document("docs/configuration.md"), "keys that take effect at a reload");
    expect(rows.map(([key]) => key)).toEqual(flagged(configNode));
  });

  test("lists every command with its flags", () => {
    const common = new Set(["--config", "--data-dir", "--json", "--help"]);
    const rows = tableOf(document("docs/configuration.md"), "command").map(([command = "", does = ""]) => {
      const words = command.replaceAll("`", "").replace(/^tollgate /, "");
      return [words.replace(/( [A-Z]+)+$/, ""), (does.match(/--[\w-]+/g) ?? []).sort().join(" ")];
    });
    const real = commandsOf(program).map(({ name, command }) => {
      const flags = command.options.map((option) => option.long ?? "").filter((flag) => !common.has(flag));
      return [name, flags.sort().join(" ")];
    });
    expect(rows.sort()).toEqual(real.sort());
  });
});

const terminal = {
  out() {},
  error() {},
  drained: () => Promise.resolve(),
  clock: () => 0,
  random: (size: number) => Buffer.alloc(size),
  isInteractive: false,
  exitWith() {},
};
const program = createProgram(terminal, "0.0.0");

function commandsOf(parent: Command, prefix = ""): { name: string; command: Command }[] {
  return parent.commands
    .filter((command) => command.name() !== "help")
    .flatMap((command) => {
      const name = `${prefix}${command.name()}`;
      // Only a command that does something has options. The commands below it come first, because their names are longer.
      const own = command.options.length === 0 ? [] : [{ name, command }];
      return [...commandsOf(command, `${name} `), ...own];
    });
}

test("every command that is shown exists, with its flags", () => {
  const commands = commandsOf(program);
  const shown = documents.flatMap((from) =>
    codeOf(from).flatMap((code) => code.match(/(?<![\w/@.-])tollgate [a-z][^|;]*/g) ?? []),
  );
  const wrong = shown.filter((line) => {
    const words = line.replace(/^tollgate /, "");
    const known = commands.find(({ name }) => words === name || words.startsWith(`${name} `));
    const flags = [...(known?.command.options.map(({ long }) => long) ?? []), "--help"];
    return known === undefined || !(words.match(/--[\w-]+/g) ?? []).every((flag) => flags.includes(flag));
  });
  expect(shown.length).toBeGreaterThan(20);
  expect(wrong).toEqual([]);
});

test("every error code with a status is in the catalog with that status", () => {
  const named = documents.flatMap(({ text }) => [...text.matchAll(/\b([45]\d\d) `([a-z_]+)`/g)]);
  const statuses = new Map<string, number>(Object.entries(errorCatalog).map(([code, { status }]) => [code, status]));
  expect(named.length).toBeGreaterThan(3);
  expect(named.filter(([, status, code = ""]) => statuses.get(code) !== Number(status))).toEqual([]);
});

test("the guide updates a package of which newer patches may be taken", () => {
  const guide = documents.find(({ path }) => path === "docs/guide.md");
  const updated = /^npm update (\S+)$/m.exec(guide?.text ?? "")?.[1] ?? "";
  const dependencies: Record<string, string> = packageJson.dependencies;
  expect(dependencies[updated]).toMatch(/^\^/);
});

test("reliability.md has the number of runs of each trial in the tests", () => {
  const rows = tableOf(document("docs/reliability.md"), "trial");
  const documented = rows.flatMap(([keys = "", ...runs]) => keys.split(", ").map((key) => [key, ...runs.slice(0, 2)]));
  const tested = TRIALS.filter(({ runs }) => Object.values(runs).some((count) => count > 0));
  const real = tested.map(({ key, runs: { sqlite = "–", postgres = "–" } }) => [
    `\`${key}\``,
    `${sqlite}`,
    `${postgres}`,
  ]);
  expect(documented).toEqual(real);
});

test("reliability.md has the numbers of cases of the tests and of soaks", () => {
  const rows = tableOf(document("docs/reliability.md"), "cases").map((cells) => cells.slice(0, 3));
  const played = Object.entries(COUNTS).filter(([name]) => !TRIALS.some(({ key }) => key === name));
  const text = (count: number) => count.toLocaleString("en");
  expect(rows).toEqual(played.map(([name, { tests, soak }]) => [`\`${name}\``, text(tests), text(soak)]));
});

test("charging.md and ledger.md name the exceptions to never overspending in the same words, and the README links to them", () => {
  const exceptions = ["docs/charging.md", "docs/ledger.md"].map((path) => {
    const { text } = document(path);
    const start = text.indexOf("Credits are never overspent, with three exceptions.");
    expect(start).toBeGreaterThan(0);
    const list = text.slice(start).split("\n\n").slice(0, 2).join("\n\n");
    expect(list.match(/^- /gm)).toHaveLength(3);
    return list.trimEnd();
  });
  expect(exceptions[0]).toBe(exceptions[1]);
  expect(document("README.md").text).toContain("(docs/charging.md#never-overspent-and-what-remains)");
});

test("providers.md has its tables as the code has them: node scripts/providers-table.ts", () => {
  const page = readFileSync(join(ROOT, "docs/providers.md"), "utf8");
  expect(withTables(page)).toBe(page);
});

describe("every configuration that is shown passes `config check`", () => {
  const blocks = documents.flatMap(blocksOf).filter(({ language }) => language === "yaml");
  // Files with organizations are no configuration; test/organizations-as-code.test.ts applies them.
  const shown = blocks.filter(({ text }) => !text.startsWith("organizations:"));

  test.each(shown.map((block) => [block.path, block.text]))("%s", async (_path, text) => {
    const folder = await mkdtemp(join(tmpdir(), "tollgate-docs-"));
    try {
      const file = join(folder, "tollgate.yaml");
      await writeFile(file, text);
      const names = [...text.matchAll(/(?<!\$)\$\{(\w+)\}/g)].map(([, name = ""]) => name);
      const environment = Object.fromEntries(names.map((name) => [name, "none-needed-here"]));
      const { stdout } = await runCommand(["config", "check", "--config", file, "--json"], folder, environment);
      expect(JSON.parse(stdout)).toMatchObject({ ok: true });
    } finally {
      await rm(folder, { recursive: true, force: true });
    }
  });
});

test("providers.md has every kind of failure, with the other routes, the circuit and the error of the caller as the code has them", () => {
  const routes = {
    elsewhere: "tried",
    "elsewhere or again": "tried; without another, the same one once more",
    larger: "tried if their known context window is larger",
    nowhere: "not tried: they would refuse the request too",
  };
  const calls = {
    works: "unchanged: the upstream works",
    unchanged: "unchanged: it was not called",
    failed: "counts for the organization",
    paused: "a pause for everybody",
  };
  const expected = Object.entries(CONSEQUENCES).map(([failure, { next, circuit }]) => {
    const { status, code } = toApiError(new UpstreamError(failure as UpstreamFailure, "It failed"));
    return [`\`${failure}\``, routes[next], calls[circuit], `${status} \`${code}\``];
  });
  const rows = tableOf(document("docs/providers.md"), "failure").map(([failure, , other = "", after = "", error]) => {
    return [failure, other.replace(/, and the log has an error.*/, ""), after.replace(/, as long as .*/, ""), error];
  });
  expect(rows).toEqual(expected);
});

test("the answers in api.md are answers that the contract allows", () => {
  const schemas: Record<string, object> = { "chat.completion": ChatCompletion, model: Model, usage: UsageReport };
  const blocks = blocksOf(document("docs/api.md")).filter(({ language }) => language === "json");
  const answers = blocks.map(({ text }) => JSON.parse(text)).filter((one) => one.object !== undefined);
  expect(answers.map((answer) => answer.object).sort()).toEqual(Object.keys(schemas).sort());
  for (const answer of answers) {
    const check = new Ajv({ strict: false }).compile({ ...schemas[answer.object], additionalProperties: false });
    check(answer);
    expect(check.errors).toBeNull();
  }
});

describe("docs/clients/", () => {
  const pages = documents.filter(({ path }) => path.startsWith("docs/clients/"));
  const page = document("docs/clients/coding-agents.md");

  test.each(AGENTS)("shows the configuration of $name with which it was tried", (agent) => {
    const url = "http://127.0.0.1:8484";
    const names = { model: "gpt-5-mini", embeddingModel: "text-embedding-3-small" };
    const place = { url, token: "sk-tg-…", work: "", home: "", ...names };
    const files = Object.entries(agent.files?.(place) ?? {});
    const variables = Object.entries(agent.environment?.(place) ?? {}).map(
      ([name, value]) => `export ${name}=${value}`,
    );
    const setup = agent.setup === undefined ? [] : [[agent.program, ...agent.setup(place)].join(" ")];
    const blocks = blocksOf(page).map(({ text }) => text);
    const lines = blocks.flatMap((text) => text.split("\n"));
    expect(files.filter(([path, text]) => !page.text.includes(`~/${path}`) || !blocks.includes(`${text}\n`))).toEqual(
      [],
    );
    expect([...variables, ...setup].filter((line) => !lines.includes(line))).toEqual([]);
    expect(files.length + variables.length + setup.length).toBeGreaterThan(0);
  });

  test("the table has the clients and versions of `npm run agents`, and all of them work", () => {
    const rows = tableOf(document("docs/clients/README.md"), "client").map((cells) => cells.slice(0, 4));
    const real = [...AGENTS, ...CLIENTS].map((client) => {
      const { name, packages, wire } = client;
      const [first, version] = Object.entries(packages)[0] ?? [];
      const result = "needsMaxTokens" in client ? "works with one setting" : "works";
      return [name, `\`${first}\` ${version}`, wire, result];
    });
    expect(rows).toEqual(real);
  });

  test("every base URL is one of the service, and every model one of the two of the examples", () => {
    const found = (pattern: RegExp) => new Set(pages.flatMap(({ text }) => text.match(pattern) ?? []));
    const urls = found(/http:\/\/(?:127\.0\.0\.1|host\.docker\.internal)[^\s"'`]*/g);
    const hosts = ["http://127.0.0.1:8484", "http://host.docker.internal:8484"];
    const allowed = hosts.flatMap((host) => [host, `${host}/v1`]);
    expect([...urls].filter((url) => !allowed.includes(url))).toEqual([]);
    const models = found(/\b(?:(?:gpt|claude)-\d|text-embedding-)[\w.-]*/g);
    expect([...models].sort()).toEqual(["gpt-5-mini", "text-embedding-3-small"]);
  });
});

test("admin-api.md lists every operation of the admin API with who may call it", () => {
  const rows = tableOf(document("docs/admin-api.md"), "operation");
  const real = adminEndpoints.map(({ method, path, permission, summary }) => {
    return [`\`${method} ${path.replace(/:(\w+)/g, "{$1}")}\``, `\`${permission}\``, summary];
  });
  expect(rows).toEqual(real);
});

test("sandbox.md lists every phrase of sandbox/fault, as the model itself does", () => {
  const listed = tableOf(document("docs/sandbox.md"), "phrase").map(([phrase = ""]) => phrase.replaceAll("`", ""));
  expect(listed).toEqual(understoodPhrases());
});

function understoodPhrases(): string[] {
  try {
    readFault("no such phrase");
  } catch (error) {
    const reason = error instanceof UpstreamError ? (error.publicReason ?? "") : "";
    const list = reason.slice(reason.indexOf("also together:"));
    return [...list.matchAll(/'([^']+)'/g)].map(([, phrase = ""]) => phrase);
  }
  throw new Error("An unknown phrase was understood");
}
