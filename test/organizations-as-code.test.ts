import { randomBytes } from "node:crypto";
import { mkdirSync, readdirSync, readFileSync, statSync, truncateSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { DatabaseSync } from "node:sqlite";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { COMMAND_ACTOR } from "../src/admin/audit.ts";
import { addOrganization } from "../src/operations/organizations.ts";
import { openStore } from "../src/stores/open.ts";
import { commandsDirectory } from "./support/commands.ts";
import { blocksOf, readDocuments } from "./support/documents.ts";
import { createTestDatabase, hasPostgres, type TestDatabase } from "./support/postgres.ts";
import { loadHost } from "./support/service.ts";
import { mountSmallDisk, NoSmallDiskError } from "./support/small-disk.ts";

const { directory, json, line, run } = commandsDirectory();

function write(name: string, text: string): string {
  const path = join(directory, name);
  writeFileSync(path, text);
  return path;
}

/** Makes a store of its own, and returns the flags that select it. */
async function placeOf(name: string, settings = ""): Promise<string[]> {
  const place = ["--data-dir", join(directory, name), "--config", write(`${name}.config.yaml`, settings)];
  await json("org", "create", "First", ...place);
  return place;
}

const DECLARED = `
organizations:
  - external_id: customer-7
    name: Acme
    models: [a, b]
    contacts: [ada@example.com]
    tokens:
      - { name: production, cap: 50, scopes: [models:read, chat.completions:write] }
      - name: old
    budgets:
      - name: monthly
        amount: 100
        selector: { tokens: [production] }
    allowances:
      - { reference: plan, amount: 10 }
    grants:
      - { reference: invoice-1, amount: 5, expires_at: 2099-01-31T18:00:00Z }
---
organizations:
  - external_id: customer-8
    name: Beta
    status: paused
    pauses_allowances: true
`;

describe.each(["sqlite", ...(hasPostgres ? ["postgres"] : [])])("on %s", (kind) => {
  let place: string[];
  let database: TestDatabase | undefined;
  const outcome = async (...words: string[]) => {
    const { code, stdout } = await run(...words, ...place, "--json");
    return { code, ...JSON.parse(stdout) };
  };
  const apply = (file: string, ...words: string[]) => outcome("apply", "-f", file, ...words);

  beforeAll(async () => {
    database = kind === "postgres" ? await createTestDatabase() : undefined;
    place = await placeOf(`on-${kind}`, database === undefined ? "" : `database: ${database.url}\n`);
  });
  afterAll(() => database?.drop());

  test("a file is applied once: its plan, the secrets of its tokens, and nothing to do afterwards", async () => {
    const file = write(`${kind}.yaml`, DECLARED);
    const plan = await run("apply", "-f", file, "--dry-run", ...place);
    expect(plan.code).toBe(2);
    expect(plan.stdout.split("\n")).toEqual(
      expect.arrayContaining([
        '+ "Acme" customer-7',
        '  models: ["a","b"]',
        '  + token "production"',
        "    cap: 50",
        '  + budget "monthly"',
        '  + grant "invoice-1"',
        '+ "Beta" customer-8',
        "Organizations to create: 2, to change: 0, unchanged: 0.",
      ]),
    );
    expect(await line(1, "apply", "-f", file, "--yes", ...place)).toContain("New tokens: 2. Add --secrets FILE");
    expect(await json("org", "list", ...place)).toHaveLength(2);

    const secrets = join(directory, `${kind}-secrets.csv`);
    const words = ["--yes", "--secrets", secrets];
    expect(await apply(file, ...words)).toMatchObject({ code: 0, applied: true, created: 2, changed: 0, unchanged: 0 });
    expect(statSync(secrets).mode & 0o777).toBe(0o600);
    const [header, ...rows] = readFileSync(secrets, "utf8").trim().split("\r\n");
    expect(header).toBe("organization_id,external_id,token_id,name,secret");
    expect(rows.map((row) => row.split(",").slice(1))).toEqual([
      ["customer-7", expect.stringMatching(/^tok_/), "production", expect.stringMatching(/^sk-tg-/)],
      ["customer-7", expect.stringMatching(/^tok_/), "old", expect.stringMatching(/^sk-tg-/)],
    ]);
    expect(await apply(file, "--dry-run")).toEqual({
      ...{ code: 0, applied: false, created: 0, changed: 0, unchanged: 2, organizations: [] },
    });
    // No file is overwritten, and none is needed where no token is new.
    expect(
      await line(1, "apply", "-f", write("more.yaml", DECLARED.replace("name: old", "name: new")), ...words, ...place),
    ).toContain("-secrets.csv cannot be created: the file exists already");
    const organizations: { id: string; externalId: string }[] = await json("org", "list", ...place);
    const [acme, beta] = ["customer-7", "customer-8"].map((id) => organizations.find((one) => one.externalId === id));
    expect(acme).toMatchObject({ name: "Acme", models: ["a", "b"], creditsTotal: 15, status: "active" });
    expect(beta).toMatchObject({ name: "Beta", status: "paused", pausesAllowances: true });
    const [token] = await json("token", "list", "--org", acme?.id ?? "", ...place);
    expect(token).toMatchObject({ name: "production", cap: 50, scopes: ["chat.completions:write", "models:read"] });
    const budgets = await json("budget", "list", "--org", acme?.id ?? "", ...place);
    expect(budgets.find(({ name }: { name: string }) => name === "monthly").selector.tokens).toEqual([token.id]);
    expect(await json("ledger", "verify", ...place)).toMatchObject({ ok: true });
  });

  test("a changed file changes what differs, field by field, and removes only what it names", async () => {
    const changed = DECLARED.replace("cap: 50", "cap: 60, models: [a]")
      .replace("[a, b]", "null")
      .replace("amount: 100", "amount: 120")
      .replace("- name: old", "- { name: old, removed: true }")
      .replace("{ reference: plan, amount: 10 }", "{ reference: plan, amount: 10, removed: true }")
      .replace("pauses_allowances: true", "note: Pays late");
    const file = write(`${kind}-changed.yaml`, changed);
    const { code, organizations } = await apply(file, "--dry-run");
    expect(code).toBe(2);
    const change = (field: string, from: unknown, to: unknown) => ({ field, from, to });
    expect(organizations.map(({ steps }: { steps: object[] }) => steps)).toEqual([
      [
        { kind: "organization", name: "Acme", action: "change", changes: [change("models", ["a", "b"], null)] },
        {
          ...{ kind: "token", name: "production", action: "change" },
          changes: [change("cap", 50, 60), change("models", null, ["a"])],
        },
        { kind: "token", name: "old", action: "remove", changes: [] },
        { kind: "budget", name: "monthly", action: "change", changes: [change("amount", 100, 120)] },
        { kind: "allowance", name: "plan", action: "remove", changes: [] },
      ],
      [{ kind: "organization", name: "Beta", action: "change", changes: [change("note", null, "Pays late")] }],
    ]);
    expect((await run("apply", "-f", file, "--dry-run", ...place)).stdout).toContain("    cap: 50 → 60\n");
    expect(await apply(file, "--yes")).toMatchObject({ code: 0, applied: true, created: 0, changed: 2 });
    expect(await apply(file, "--yes")).toMatchObject({ code: 0, applied: false, unchanged: 2 });
    // The older file does not create again what has ended.
    const { organizations: others } = await apply(join(directory, `${kind}.yaml`), "--dry-run");
    const kinds = others[0].steps.map(({ kind, name }: { kind: string; name: string }) => `${kind} ${name}`);
    expect(kinds).toEqual(["organization Acme", "token production", "budget monthly"]);
    // A budget goes on to name a token that has ended.
    const acme = (await json("org", "list", ...place)).find(({ name }: { name: string }) => name === "Acme");
    const [production] = await json("token", "list", "--org", acme.id, ...place);
    await json("token", "revoke", production.id, ...place);
    expect(await apply(file, "--yes")).toMatchObject({ code: 0, applied: false, unchanged: 2 });
    expect(await json("ledger", "verify", ...place)).toMatchObject({ ok: true });
  });

  test("lines of a CSV file are imported one by one, and a repetition changes nothing", async () => {
    const rows = [
      "\uFEFFexternal_id,name,contacts,models,note,grant,reference",
      'csv-1,"One, Inc",ada@example.com;bob@example.com,a b,"says ""hi""",10,inv-1',
      "csv-2,Two",
      'csv-3,"Thr"ee,,,,,',
      "csv-4,Four,nobody,,,,",
      "csv-1,One,,,,,",
      ",Nameless,,,,,",
      ",Nameless,,,,,",
      "csv-5,Five,,,,5,",
      "",
      "csv-6,Six,,,,5,inv-6",
    ];
    const file = write(`${kind}.csv`, rows.join("\r\n"));
    const refusals = [
      { line: 3, organization: null, reason: "it has 2 fields, but must have 7" },
      { line: 4, organization: null, reason: expect.stringContaining("quotes do not match") },
      { line: 5, organization: "csv-4", reason: expect.stringContaining('contacts[0] is "nobody"') },
      { line: 6, organization: "csv-1", reason: "line 2 has the same organization" },
      { line: 7, organization: null, reason: expect.stringContaining("'external_id'") },
      { line: 8, organization: null, reason: expect.stringContaining("'external_id'") },
      { line: 9, organization: "csv-5", reason: "column 7, reference: Missing required parameter: 'reference'." },
    ].map((refusal) => ({ ...refusal, result: "refused" }));
    const imported = (result: string) => [
      { line: 2, organization: "csv-1", result, reason: null },
      ...refusals,
      { line: 11, organization: "csv-6", result, reason: null },
    ];
    const counts = { created: 2, changed: 0, unchanged: 0, refused: 7 };
    const words = ["org", "import", file];
    expect(await outcome(...words, "--dry-run")).toEqual({
      code: 1,
      dryRun: true,
      ...counts,
      lines: imported("created"),
    });
    expect(await outcome(...words)).toEqual({ code: 1, dryRun: false, ...counts, lines: imported("created") });
    expect(await outcome(...words)).toMatchObject({ code: 1, ...counts, created: 0, unchanged: 2 });
    const organizations = await json("org", "list", ...place);
    expect(organizations.find(({ externalId }: { externalId: string }) => externalId === "csv-1")).toMatchObject({
      ...{ name: "One, Inc", contacts: ["ada@example.com", "bob@example.com"], models: ["a", "b"] },
      ...{ note: 'says "hi"', creditsTotal: 10 },
    });
    const strict = await run(...words, "--strict", ...place);
    expect({ code: strict.code, last: strict.stdout.trim().split("\n").at(-1) }).toEqual({
      code: 1,
      last: "Lines created: 0, changed: 0, unchanged: 1, refused: 1",
    });
    expect(strict.stdout).toContain("3  refused  -  it has 2 fields, but must have 7\n");
  });

  test("grants of a CSV file are made once for each reference", async () => {
    const rows = ["external_id,amount,reference", "csv-1,10,inv-1", "csv-1,5,inv-2", "csv-1,11,inv-1", "csv-9,1,inv-1"];
    const file = write(`${kind}-grants.csv`, [...rows, "csv-1,1,", "csv-1,-1,inv-3", "csv-1,2,"].join("\n"));
    const words = ["credits", "import", file];
    const { lines } = await outcome(...words, "--dry-run");
    expect(lines).toMatchObject([
      { line: 2, result: "unchanged" },
      { line: 3, result: "changed" },
      { line: 4, result: "refused", reason: "line 2 has the same reference" },
      { line: 5, result: "refused", reason: expect.stringContaining('no organization with the external id "csv-9"') },
      { line: 6, result: "refused", reason: "column 3, reference: Missing required parameter: 'reference'." },
      {
        line: 7,
        result: "refused",
        reason: 'column 2, amount: "-1" is not a number above 0 with at most 12 digits and 6 decimals, such as 12.5',
      },
      { line: 8, result: "refused", reason: "column 3, reference: Missing required parameter: 'reference'." },
    ]);
    expect(await outcome(...words)).toMatchObject({ code: 1, changed: 1, unchanged: 1, refused: 5 });
    expect(await outcome(...words)).toMatchObject({ code: 1, changed: 0, unchanged: 2, refused: 5 });
    const named = write(`${kind}-named.csv`, `external_id,name\ncsv 1,One`);
    const rule = "Expected: 1 to 200 ASCII characters without spaces, unique here: its id in another system";
    expect((await outcome("org", "import", named)).lines).toMatchObject([
      {
        line: 2,
        result: "refused",
        reason: expect.stringContaining(`column 1, external_id: Invalid 'external_id'. ${rule}`),
      },
    ]);
    const typos = ["csv-1,,much,inv-8,", "csv-1,,0,inv-8,", "csv-1,,1,inv-8,sleeping"].join("\n");
    const typo = write(`${kind}-typo.csv`, `external_id,name,grant,reference,status\n${typos}`);
    const number = "is not a number above 0 with at most 12 digits and 6 decimals, such as 12.5";
    expect((await outcome("org", "import", typo)).lines).toMatchObject([
      { line: 2, result: "refused", reason: `column 3, grant: "much" ${number}` },
      { line: 3, result: "refused", reason: `column 3, grant: "0" ${number}` },
      { line: 4, result: "refused", reason: expect.stringMatching(/^column 5, status: Invalid value: 'sleeping'/) },
    ]);
    const high = write(`${kind}-priority.csv`, "external_id,amount,reference,priority\ncsv-1,1,inv-9,high");
    expect((await outcome("credits", "import", high)).lines).toMatchObject([
      { line: 2, result: "refused", reason: 'column 4, priority: "high" is not an integer from 0 to 1000' },
    ]);
    const other = write(`${kind}-other.csv`, `${rows[0]}\ncsv-1,11,inv-1`);
    const reason = "column 2, amount: The amount of the grant is 10 and cannot change. Use another reference.";
    expect((await outcome("credits", "import", other)).lines).toMatchObject([{ line: 2, result: "refused", reason }]);
    const twice = write(`${kind}-twice.csv`, [rows[0], "csv-1,7,inv-7", "csv-1,7,inv-7"].join("\n"));
    expect((await outcome("credits", "import", twice, "--dry-run")).lines).toMatchObject([
      { result: "changed" },
      { result: "refused", reason: "line 2 has the same reference" },
    ]);
    const late = "1,inv-8,2020-01-01T00:00:00Z";
    const again = ["csv-1", "csv-9", "csv-1", "csv-1", "csv-1"].map((id, index) => {
      return `${id},${index < 2 ? late : index === 4 ? "1,inv-8," : "2,inv-8,2099-01-01"}`;
    });
    const retried = write(`${kind}-retried.csv`, [`${rows[0]},expires_at`, ...again].join("\n"));
    for (const words of [["--dry-run"], []]) {
      expect((await outcome("credits", "import", retried, ...words)).lines).toMatchObject([
        { line: 2, result: "refused", reason: expect.stringContaining("expires_at") },
        { line: 3, result: "refused", reason: expect.stringContaining("csv-9") },
        { line: 4, result: "changed" },
        { line: 5, result: "refused", reason: "line 4 has the same reference" },
        { line: 6, result: "refused", reason: "line 4 has the same reference" },
      ]);
    }
    const good = write(`${kind}-good.csv`, [...rows.slice(0, 3), "csv-1,5,inv-4"].join("\n"));
    expect(await outcome("credits", "import", good, "--dry-run")).toMatchObject({ code: 2, changed: 1 });
    expect(await json("ledger", "verify", ...place)).toMatchObject({ ok: true });
  });
});

test("the plan is applied only if a person agrees, or with --yes", async () => {
  const place = await placeOf("asked");
  const file = write("asked.yaml", "organizations: [{ external_id: asked, name: Asked }]");
  const words = ["apply", "-f", file, ...place];
  expect(await line(1, ...words)).toContain("There is no terminal to ask for confirmation. Add --yes");
  expect(await line(1, ...words, "--json")).toContain("--json cannot ask");
  const host = await loadHost();
  const answer = async (agrees: boolean) => {
    const printed: string[] = [];
    const print = (text: string) => printed.push(text);
    const confirm = async (question: string) => {
      print(question);
      return agrees;
    };
    const terminal = { out: print, error: print, isInteractive: true, confirm };
    const { code } = await host.runCommand(words, { cwd: directory, env: {} }, terminal);
    return { code, printed: printed.slice(1) };
  };
  const plan = '+ "Asked" asked\n  external_id: "asked"\n  name: "Asked"\n';
  const asked = [`${plan}Organizations to create: 1, to change: 0, unchanged: 0.`, "Apply these changes? [y/N] "];
  expect(await answer(false)).toEqual({ code: 1, printed: [...asked, "tollgate: Nothing was changed."] });
  expect(await answer(true)).toEqual({
    ...{ code: 0, printed: [...asked, "Organizations created: 1, changed: 0, unchanged: 0."] },
  });
  expect(await answer(true)).toEqual({ code: 0, printed: ["Nothing to do. Organizations unchanged: 1."] });
});

test("the examples of the documentation can be applied", async () => {
  const place = await placeOf("documented", "priceLists: { partners: { factor: 0.9 } }\n");
  const blocks = blocksOf(
    readDocuments().find(({ path }) => path === "docs/organizations-as-code.md") ?? { path: "", text: "" },
  );
  const texts = (language: string) => blocks.filter((block) => block.language === language).map(({ text }) => text);
  const [yaml = "", ...others] = texts("yaml");
  expect(others).toEqual([]);
  const words = ["--yes", "--secrets", join(directory, "documented.csv"), ...place];
  expect(await json("apply", "-f", write("documented.yaml", yaml), ...words)).toMatchObject({ created: 1 });
  for (const csv of texts("csv")) expect((await run("org", "import", write("shown.csv", csv), ...place)).code).toBe(0);
});

test("secrets that a full disk does not take are named, every one", async ({ skip }) => {
  const place = await placeOf("full");
  const mounted = join(directory, "disk");
  mkdirSync(mounted);
  const disk = await mountSmallDisk(mounted, 1).catch((error: unknown) => {
    if (error instanceof NoSmallDiskError) return undefined;
    throw error;
  });
  if (disk === undefined) return skip("this machine mounts no file system of its own");
  try {
    await disk.fill();
    const name = "n".repeat(100);
    const tokens = `[{ name: ${name}1 }, { name: ${name}2 }, { name: ${name}3 }]`;
    const entries = Array.from({ length: 16 }, (_, n) => `  - { external_id: e${n}, name: E, tokens: ${tokens} }\n`);
    const secrets = join(disk.outside, "secrets.csv");
    const words = ["apply", "-f", write("full.yaml", `organizations:\n${entries.join("")}`), "--yes", ...place];
    expect(await line(1, ...words, "--secrets", secrets)).toContain("cannot be created: the disk is full");
    expect(readdirSync(disk.outside)).toEqual(["filler"]);
    expect(await json("token", "list", ...place)).toEqual([]);

    // One page is left: the header and some of the secrets.
    truncateSync(join(disk.outside, "filler"), statSync(join(disk.outside, "filler")).size - 4_096);
    const { code, stderr } = await run(...words, "--secrets", secrets);
    expect(code).toBe(1);
    const named =
      stderr.match(/(?<=^tollgate: The secret of the token )tok_\S+(?=.*: the disk is full\. Rotate)/gm) ?? [];
    expect(named.length).toBeGreaterThan(1);
    const rows = readFileSync(secrets, "utf8").split("\r\n").slice(1, -1);
    const written = rows.map((row) => row.split(",")[2]);
    const created: string[] = (await json("token", "list", ...place)).map(({ id }: { id: string }) => id);
    expect([...written, ...named].sort()).toEqual(created.sort());
  } finally {
    await disk.remove();
  }
});

test("an apply that fails half-way is completed by the next one", async () => {
  const place = await placeOf("half");
  const entry = (name: string) =>
    `  - { external_id: ${name}, name: ${name}, grants: [{ reference: one, amount: 1 }, { reference: ${name}, amount: 2 }] }\n`;
  const file = write("half.yaml", `organizations:\n${["x", "boom", "y"].map(entry).join("")}`);
  const database = new DatabaseSync(join(directory, "half", "tollgate.db"));
  database.exec(
    "create trigger broken before insert on credit_grant when new.reference = 'boom' begin select raise(abort, 'broken'); end",
  );
  const { code, stdout } = await run("apply", "-f", file, "--yes", ...place);
  expect({ code, stdout }).toEqual({ code: 1, stdout: "" });
  database.exec("drop trigger broken");
  const { organizations } = JSON.parse((await run("apply", "-f", file, "--dry-run", "--json", ...place)).stdout);
  expect(organizations).toMatchObject([{ externalId: "boom", steps: [{ kind: "grant", name: "boom" }] }]);
  await json("apply", "-f", file, "--yes", ...place);
  const totals = (await json("org", "list", ...place)).map(
    ({ creditsTotal }: { creditsTotal: number }) => creditsTotal,
  );
  expect(totals).toEqual([0, 0, 3, 3, 3]);
  expect(await json("ledger", "verify", ...place)).toMatchObject({ ok: true });
  database.close();
});

test("the log of SQLite is copied while a long command runs", async () => {
  const dataDir = join(directory, "long");
  const clock = Date.now;
  await using store = await openStore({ database: null, dataDir, role: "command", creates: true, clock });
  const core = {
    accounts: store.accounts,
    clock,
    random: randomBytes,
    newId: () => crypto.randomUUID(),
    actor: COMMAND_ACTOR,
  };
  const size = () => statSync(join(dataDir, "tollgate.db")).size;
  const before = size();
  for (let count = 0; count < 200; count += 1) await addOrganization(core, `Customer ${count}`);
  await expect.poll(size, { timeout: 60_000 }).toBeGreaterThan(before);
});
