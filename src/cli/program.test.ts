import { randomBytes } from "node:crypto";
import { mkdirSync, mkdtempSync, readdirSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { DatabaseSync } from "node:sqlite";
import pg from "pg";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { createTestDatabase, hasPostgres } from "../../test/support/postgres.ts";
import { OperatorError, StoreUnavailableError } from "../errors.ts";
import { failureText } from "./command.ts";
import { runCommandLine } from "./program.ts";

const directory = mkdtempSync(join(tmpdir(), "tollgate-program-"));
afterAll(() => rmSync(directory, { recursive: true }));

async function run(...words: string[]) {
  const out: string[] = [];
  const errors: string[] = [];
  const terminal = {
    out: (text: string) => out.push(text),
    error: (text: string) => errors.push(text),
    drained: () => Promise.resolve(),
    clock: Date.now,
    random: randomBytes,
    isInteractive: false,
  };
  const code = await runCommandLine(words, terminal, "1.2.3");
  const [store = null] = errors.flatMap((line) => /^Store: (.*)/.exec(line)?.[1] ?? []);
  return { code, out: out.join("\n"), errors: errors.filter((line) => line !== `Store: ${store}`), store };
}

const COMMANDS = [
  "serve",
  "org create",
  "org list",
  "org pause",
  "org resume",
  "org show",
  "token create",
  "token list",
  "token revoke",
  "token rotate",
  "token update",
  "credits grant",
  "credits balance",
  "credits statement",
  "models list",
  "models check",
  "ledger verify",
  "ledger dead-letters list",
  "ledger dead-letters retry",
  "retention",
  "retention run",
  "store backup",
  "store copy",
  "store restore",
  "config check",
];

describe("help", () => {
  test.each(COMMANDS)("tollgate %s --help", async (command) => {
    const { code, out, errors } = await run(...command.split(" "), "--help");
    expect({ code, errors }).toMatchObject({ code: 0, errors: [] });
    expect(out).toContain(`Usage: tollgate ${command} `);
    for (const flag of ["--config", "--data-dir", "--json", "--help"]) expect(out).toContain(flag);
  });

  test("tollgate --help names every command", async () => {
    const { code, out } = await run("--help");
    expect(code).toBe(0);
    for (const command of COMMANDS) expect(out).toContain(`\n  ${command.split(" ")[0]} `);
  });

  test("tollgate --version", async () => {
    expect(await run("--version")).toMatchObject({ code: 0, out: "1.2.3", errors: [], store: null });
  });

  test.each([
    ["", "a command is missing"],
    ["org", "a command is missing"],
    ["help foo", "unknown command 'foo'"],
    ["org help foo", "unknown command 'foo'"],
  ])("without a known command, the reason and the help go to standard error: tollgate %s", async (words, reason) => {
    const { code, out, errors } = await run(...words.split(" ").filter(Boolean));
    expect({ code, out, line: errors[0] }).toEqual({
      ...{ code: 2, out: "" },
      line: `tollgate: ${reason}; add --help for the usage`,
    });
    expect(errors.join("\n")).toContain("Usage: tollgate");
  });
});

describe("a usage error exits with 2 and prints one line with a hint", () => {
  const hint = "; add --help for the usage";
  test.each([
    ["nonsense", "tollgate: unknown command 'nonsense'"],
    ["org creat", "tollgate: unknown command 'creat' (Did you mean create?)"],
    ["org create", "tollgate: missing required argument 'name'"],
    ["org list x", "tollgate: too many arguments for 'list'. Expected 0 arguments but got 1: x"],
    ["serve --porr 1", "tollgate: unknown option '--porr' (Did you mean --port?)"],
    ["serve --port", "tollgate: option '--port <number>' argument missing"],
    ["token create", "tollgate: required option '--org <id>' not specified"],
  ])("tollgate %s", async (words, message) => {
    expect(await run(...words.split(" "))).toMatchObject({ code: 2, out: "", errors: [`${message}${hint}`] });
  });
});

describe("an invalid value exits with 1 and prints one line", () => {
  const data = ["--data-dir", directory];
  const credits = (flag: string, found: string, least: string) =>
    `tollgate: ${flag} is "${found}", but must be a decimal number of credits, ${least}, at most 9000000000, with at most 6 decimals.`;
  const playground = ["--org", "org_playground"];
  beforeAll(async () => {
    expect((await run("org", "create", "x", ...data)).code).toBe(0);
  });
  test.each([
    [["serve", "--port", "http"], 'tollgate: --port is "http", but must be an integer from 0 to 65535.'],
    [["org", "create", "x", "--credits", "1,5", ...data], credits("--credits", "1,5", "0 or more")],
    [["org", "create", "x", "--credits", "-1", ...data], credits("--credits", "-1", "0 or more")],
    ...["0", "-1", "1e3", "abc", "0.0000001", "9000000001"].map((amount): [string[], string] => [
      ["credits", "grant", amount, ...playground, ...data],
      credits("AMOUNT", amount, "above 0"),
    ]),
    [
      ["credits", "grant", "1", "--org", "o", "--reference", "a\nb", ...data],
      'tollgate: --reference is "a\\nb", but must be 1 to 200 characters on one line, some of them visible, and no controls of the text direction.',
    ],
    [
      ["credits", "grant", "1", "--org", "o", "--expires", "30d", ...data],
      'tollgate: --expires is "30d", but must be a date as YYYY-MM-DD (from 00:00 UTC on), or a time such as 2030-01-31T18:00:00Z.',
    ],
    [
      ["token", "create", ...playground, "--expires", "2020-01-01", ...data],
      'tollgate: --expires is "2020-01-01", but must be a time in the future.',
    ],
    [
      ["token", "create", ...playground, "--scope", "all", ...data],
      'tollgate: scope is "all", but must be one of: chat.completions:write, models:read, usage:read, console:read.',
    ],
    [
      ["token", "rotate", "t", "--overlap", "soon", ...data],
      'tollgate: --overlap is "soon", but must be a number with s, m, h, d or w, such as 90m or 30d.',
    ],
  ])("%j", async (words, message) => {
    expect(await run(...words)).toMatchObject({ code: 1, out: "", errors: [message] });
  });
});

describe("a command in a folder without a store", () => {
  const organization = ["--org", "org_x"];
  test.each([
    ["ledger", "verify"],
    ["org", "list"],
    ["org", "show", "org_x"],
    ["org", "pause", "org_x"],
    ["retention", "--dry-run"],
    ["retention", "run"],
    ["token", "list"],
    ["token", "create", ...organization],
    ["token", "revoke", "tok_x"],
    ["token", "rotate", "tok_x"],
    ["token", "update", "tok_x", "--no-cap"],
    ["credits", "grant", "1", ...organization],
    ["credits", "revoke", "1", ...organization],
    ["credits", "credit", "1", ...organization],
    ["credits", "balance", ...organization],
    ["credits", "statement", ...organization],
    ["credits", "allowance", "list"],
    ["credits", "allowance", "create", "1", ...organization],
    ["credits", "allowance", "end", "allowance_x"],
    ["admin", "token"],
  ])("says so and creates nothing: %s %s", async (...words) => {
    const empty = join(directory, "empty");
    const dataDir = join(empty, "data");
    mkdirSync(empty, { recursive: true });
    expect(await run(...words, "--data-dir", dataDir)).toMatchObject({
      store: null,
      code: 1,
      out: "",
      errors: [
        `tollgate: There is no store in ${dataDir}. To name another place, use --data-dir, --config or, for PostgreSQL, DATABASE_URL; tollgate serve, org create, store migrate and store restore make a store.`,
      ],
    });
    expect(readdirSync(empty)).toEqual([]);
    mkdirSync(dataDir);
    expect((await run(...words, "--data-dir", dataDir)).code).toBe(1);
    expect(readdirSync(dataDir)).toEqual([]);
    rmSync(dataDir, { recursive: true });
  });

  test.skipIf(!hasPostgres)("on PostgreSQL says so and creates no table", async () => {
    const database = await createTestDatabase();
    const file = join(directory, "postgres.yaml");
    writeFileSync(file, JSON.stringify({ database: database.url, dataDir: join(directory, "beside") }));
    const client = new pg.Client({ connectionString: database.url });
    await client.connect();
    try {
      const { code, errors } = await run("ledger", "verify", "--config", file);
      expect(code).toBe(1);
      expect(errors[0]).toMatch(/^tollgate: There is no store in the database at 127\.0\.0\.1:\d+\/\w+\. To name/);
      expect((await client.query("SELECT 1 FROM pg_tables WHERE schemaname = 'public'")).rowCount).toBe(0);
      expect((await run("org", "create", "x", "--config", file)).code).toBe(0);
      expect((await run("ledger", "verify", "--config", file)).code).toBe(0);
      await client.query("INSERT INTO schema_migration VALUES (9999, 'later', '', 0, '2.0.0')");
      const newer = await run("ledger", "verify", "--config", file);
      expect(newer.errors[0]).toMatch(/^tollgate: The database at \S+ was written by a newer Tollgate, 2\.0\.0: /);
    } finally {
      await client.end();
      await database.drop();
    }
  });

  test("a command refuses the schema of a newer version and does not change it", async () => {
    const dataDir = join(directory, "versions");
    expect((await run("org", "create", "x", "--data-dir", dataDir)).code).toBe(0);
    const database = new DatabaseSync(join(dataDir, "tollgate.db"));
    const versions = () => database.prepare("SELECT count(*) AS count FROM schema_migration").get()?.count;
    database.exec("INSERT INTO schema_migration VALUES (9999, 'later', '', 0, '2.0.0', NULL)");
    const left = versions();
    const newer = await run("token", "list", "--data-dir", dataDir);
    expect(newer.errors[0]).toMatch(/was written by a newer Tollgate, 2\.0\.0: its schema is 9999, this one, /);
    expect(versions()).toBe(left);
    database.close();
  });

  test("every command prints its store on standard error, also with --json, and org create that it made one", async () => {
    const dataDir = join(directory, "printed");
    const place = `SQLite in ${dataDir}`;
    const made = await run("org", "create", "x", "--data-dir", dataDir, "--json");
    expect(made.store).toBe(`${place}, created by this command`);
    const { id } = JSON.parse(made.out);
    for (const words of [
      "org list",
      "token list",
      "ledger verify",
      `org show ${id}`,
      "ledger dead-letters list --json",
    ]) {
      expect([words, (await run(...words.split(" "), "--data-dir", dataDir)).store]).toEqual([words, place]);
    }
    expect((await run("store", "migrate", "--data-dir", dataDir)).store).toBe(place);
    expect((await run("store", "backup", join(directory, "printed.db"), "--data-dir", dataDir)).store).toBe(place);
    const failed = await run("org", "show", "org_none", "--data-dir", dataDir);
    expect([failed.store, failed.errors[0]]).toEqual([
      place,
      expect.stringMatching(/^tollgate: There is no organization/),
    ]);
  });

  test("a command refuses a file that is not a store", async () => {
    const dataDir = join(directory, "foreign");
    mkdirSync(dataDir);
    writeFileSync(join(dataDir, "tollgate.db"), "this is no database, and it stays as it is");
    const { code, errors } = await run("token", "list", "--data-dir", dataDir);
    expect(code).toBe(1);
    expect(errors[0]).toContain("the file is not a database");
    expect(readdirSync(dataDir)).toEqual(["tollgate.db"]);
  });
});

describe("a command reads only the settings that it uses", () => {
  const file = join(directory, "unset.yaml");
  const dataDir = join(directory, "settings");
  const yaml = `dataDir: ${dataDir}
providers: [{ id: openai, kind: openai-compatible, baseUrl: "https://api.openai.com/v1", apiKey: "\${UNSET_KEY}" }]
models: [{ id: gpt-5-mini, routes: [{ provider: openai, model: gpt-5-mini }] }]`;
  beforeAll(async () => {
    writeFileSync(file, yaml);
    expect((await run("org", "create", "x", "--config", file)).code).toBe(0);
  });

  test.each(["ledger verify", "org list", "token list", "credits allowance list", "models list"])(
    "the key of a provider is not one of them: tollgate %s",
    async (words) => {
      expect(await run(...words.split(" "), "--config", file)).toMatchObject({
        code: 0,
        errors: [],
        store: words === "models list" ? null : `SQLite in ${dataDir}`,
      });
    },
  );

  test.each(["serve", "models check", "config check"])(
    "the key of a provider is one of them: tollgate %s",
    async (words) => {
      const message = "providers[0].apiKey needs the environment variable UNSET_KEY, which is not set.";
      expect(await run(...words.split(" "), "--config", file)).toMatchObject({
        code: 1,
        errors: [`tollgate: ${file}:2: ${message}`],
      });
    },
  );

  test.each([
    ["database: mysql://a:secret@b/c", "database is mysql://…, but must be a postgres:// or postgresql:// address."],
    [
      "database: postgres://a:12/secret@b/c",
      "database is postgres://…, but must be a postgres:// or postgresql:// address.",
    ],
    ['dataDir: "a\\0b"', 'dataDir is "a\\u0000b", but must be text that is not empty.'],
    ["dataDir: [a]", "dataDir is a list, but must be text that is not empty."],
    // biome-ignore lint/suspicious/noTemplateCurlyInString: the configuration file has placeholders of this form
    ["dataDir: ${UNSET_DIRECTORY}", "dataDir needs the environment variable UNSET_DIRECTORY, which is not set."],
  ])("where the store is is one of them: %s", async (text, message) => {
    const wrong = join(directory, "wrong.yaml");
    writeFileSync(wrong, text);
    expect(await run("org", "list", "--config", wrong)).toMatchObject({
      code: 1,
      out: "",
      errors: [`tollgate: ${wrong}:1: ${message}`],
    });
  });
});

describe("a data directory that cannot be created", () => {
  test.each(["/proc/tollgate/data", "/proc/tollgate", "/proc"])("%s", async (dataDir) => {
    const { code, errors } = await run("org", "create", "x", "--data-dir", dataDir);
    expect({ code, lines: errors.length }).toMatchObject({ code: 1, lines: 1 });
    expect(errors[0]).toMatch(/^tollgate: Cannot use the data directory \/proc\S*: /);
  });
});

test("every failure is reported in one line, and each mistake of a configuration in its own", () => {
  expect(failureText(new OperatorError("port: taken"))).toBe("tollgate: port: taken");
  expect(failureText(new OperatorError("a:1: x\na:2: y"))).toBe("tollgate: a:1: x\ntollgate: a:2: y");
  expect(failureText(new StoreUnavailableError("connect\n ECONNREFUSED"))).toBe(
    "tollgate: the store cannot be reached: connect ECONNREFUSED",
  );
  expect(failureText(new TypeError("x is not a function"))).toBe("tollgate: internal error: x is not a function");
});
