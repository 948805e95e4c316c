import { readdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { describe, expect, test } from "vitest";
import { commandsDirectory } from "./support/commands.ts";

const { directory, json, line, run } = commandsDirectory();

function write(name: string, text: string): string {
  const path = join(directory, name);
  writeFileSync(path, text);
  return path;
}

const FIXTURES = fileURLToPath(new URL("./import/", import.meta.url));
const filesOf = (gateway: string) =>
  readdirSync(FIXTURES)
    .filter((name) => name.startsWith(gateway))
    .map((name) => join(FIXTURES, name));

describe("the organizations, keys, balances and prices of another gateway become a file for apply:", () => {
  const limits = { requests_per_minute: 60 };
  const cases: [gateway: string, organizations: object[], prices: object, notes: RegExp[]][] = [
    [
      "litellm",
      [
        {
          ...{ external_id: "litellm:t-1", name: "Research", models: ["gpt-5-mini"], limits },
          tokens: [
            { name: "production", cap: 15 },
            { name: "sk-...9def", limits: { tokens_per_minute: 5000 }, expires_at: "2099-01-31T18:00:00.123Z" },
          ],
          budgets: [{ name: "sk-...9def", window: "week", amount: 10, selector: { tokens: ["sk-...9def"] } }],
          grants: [{ reference: "imported from litellm:t-1", amount: 59.5 }],
        },
        {
          ...{ external_id: "litellm:t-2", name: "Support", status: "paused", limits: {}, tokens: [], budgets: [] },
          allowances: [{ reference: "imported from litellm:t-2", amount: 50 }],
        },
        { external_id: "litellm:bob%20b%C3%B6ll", name: "litellm:bob böll", tokens: [], budgets: [] },
      ],
      { "gpt-5-mini": { input: 0.25, output: 2, cachedInput: 0.025 } },
      [
        /^litellm:t-2 gets no token "old": it has expired$/,
        /^litellm:bob%20b%C3%B6ll gets no token "spent": its budget is 5/,
      ],
    ],
    [
      "new-api",
      [
        {
          ...{ external_id: "new-api:7", name: "Ada", contacts: ["ada@example.com"], budgets: [] },
          tokens: [
            { name: "laptop", models: ["gpt-5-mini", "claude-haiku-4-5"], cap: 2 },
            { name: "laptop 2", expires_at: "2099-01-01T00:00:00.000Z" },
          ],
          grants: [{ reference: "imported from new-api:7", amount: 12.5 }],
        },
        {
          ...{ external_id: "new-api:8", name: "bob", status: "paused", budgets: [] },
          tokens: [{ name: "from a table", models: ["gpt-5-mini"] }],
        },
      ],
      { "gpt-5-mini": { input: 0.25, output: 2, cachedInput: 0.025 } },
      [
        /^new-api:8 gets no token "off": it is disabled$/,
        /^"deleted" is left out: it was deleted$/,
        /^new-api:8 gets no credits/,
        /^"gone" is left out: it was deleted$/,
      ],
    ],
    [
      "openrouter",
      [
        {
          ...{ external_id: "openrouter", name: "OpenRouter" },
          tokens: [{ name: "Website" }, { name: "Scripts", cap: 2.25 }],
          budgets: [{ name: "Website", window: "month", amount: 100, selector: { tokens: ["Website"] } }],
          grants: [{ reference: "imported from openrouter", amount: 124.75 }],
        },
      ],
      { "openai/gpt-5-mini": { input: 0.25, output: 2, cachedInput: 0.025 } },
      [/^openrouter gets no token "Old": it is disabled$/],
    ],
  ];
  test.each(cases)("%s", async (gateway, organizations, prices, notes) => {
    const words = ["import", gateway, ...filesOf(gateway)];
    const found = JSON.parse((await run(...words, "--json")).stdout);
    expect(found.organizations).toEqual(organizations);
    expect(found.priceLists).toEqual({ [gateway]: { prices } });
    expect(found.notes).toEqual(notes.map((note) => expect.stringMatching(note)));

    const { stdout, stderr } = await run(...words);
    expect(stderr.trim().split("\n")).toHaveLength(notes.length);
    const config = write(`${gateway}.config.yaml`, (await run(...words, "--prices")).stdout);
    const place = ["--data-dir", join(directory, gateway), "--config", config];
    await json("org", "create", "First", ...place);
    const mapping = join(directory, `${gateway}-mapping.csv`);
    const apply = ["apply", "-f", write(`${gateway}.imported.yaml`, stdout), "--yes", ...place];
    expect(await json(...apply, "--secrets", mapping)).toMatchObject({ created: organizations.length });
    expect(await json(...apply)).toMatchObject({ applied: false, unchanged: organizations.length });
    const tokens = (organizations as { tokens: unknown[] }[]).flatMap((organization) => organization.tokens);
    expect(readFileSync(mapping, "utf8").trim().split("\r\n")).toHaveLength(1 + tokens.length);
    await json("org", "create", "Priced", "--price-list", gateway, ...place);
    expect(await json("ledger", "verify", ...place)).toMatchObject({ ok: true });
  });

  test("a renewed key above the maximum of budgets gets no token, and is named", async () => {
    const keys = Array.from({ length: 102 }, (_, n) => ({
      hash: `h${n}`,
      name: `key ${n}`,
      limit: 5,
      limit_reset: "daily",
    }));
    const file = write(
      "many.json",
      JSON.stringify({ data: [...keys, { hash: "h", name: "capped", limit: 5, limit_remaining: 2 }] }),
    );
    const { stdout, stderr } = await run("import", "openrouter", file);
    const reason = "its organization has 100 budgets, the maximum";
    expect(stderr.trim().split("\n")).toEqual([
      `tollgate: openrouter gets no token "key 100": ${reason}.`,
      `tollgate: openrouter gets no token "key 101": ${reason}.`,
    ]);
    const place = ["--data-dir", join(directory, "many")];
    await json("org", "create", "First", ...place);
    const apply = [
      "apply",
      "-f",
      write("many.yaml", stdout),
      "--yes",
      "--secrets",
      join(directory, "many.csv"),
      ...place,
    ];
    expect(await json(...apply)).toMatchObject({ created: 1 });
    expect(readFileSync(join(directory, "many.csv"), "utf8").trim().split("\r\n")).toHaveLength(1 + 101);
  });

  test("ids, times and amounts that no file for apply can have are replaced", async () => {
    const team = '[{"team_id":"\\ud800","max_budget":1e309,"budget_duration":"\\u001b[2J"}]';
    const teams = await run("import", "litellm", write("teams.json", team));
    expect(teams.stdout).toContain("external_id: litellm:%EF%BF%BD\n");
    expect(teams.stderr).toContain("its budget is none, renewed: \uFFFD[2J.");
    const key = { id: 1, user_id: 2, name: "key", status: 1, remain_quota: 500_000, expired_time: 1e300 };
    const keys = await run("import", "new-api", write("keys.json", JSON.stringify([key])));
    expect(keys.stdout).toContain("expires_at: 9999-12-31T00:00:00.000Z\n");
  });

  test("files of another gateway are refused", async () => {
    const [keys = ""] = filesOf("openrouter-keys");
    expect(await line(1, "import", "litellm", keys)).toContain("The files contain no organizations of litellm.");
    expect(await line(1, "import", "portkey", keys)).toContain('GATEWAY is "portkey", but must be one of: litellm');
    expect(await line(1, "import", "litellm", write("broken.json", "{"))).toContain("is not JSON.");
    expect(await line(1, "import", "litellm", keys, "--credits-per-dollar", "0")).toContain("--credits-per-dollar is ");
  });
});
