import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { beforeAll, describe, expect, test } from "vitest";
import { commandsDirectory } from "./support/commands.ts";

const { directory, json, run } = commandsDirectory();

function write(name: string, text: string): string {
  const path = join(directory, name);
  writeFileSync(path, text);
  return path;
}

describe("a mistake in a file is named with its line and column, and nothing is changed:", () => {
  let place: string[];
  beforeAll(async () => {
    place = ["--data-dir", join(directory, "mistakes")];
    await json("org", "create", "First", ...place);
    const { id } = await json("org", "create", "Closed", "--external-id", "closed", ...place);
    await json("org", "close", id, "--rest", "lapsed", ...place);
    const organization =
      "{ external_id: known, name: Known, budgets: [{ name: b, amount: 5 }], grants: [{ reference: r, amount: 5 }] }";
    await json("apply", "-f", write("known.yaml", `organizations: [${organization}]`), "--yes", ...place);
  });
  const known = (lists: string) => `organizations:\n  - external_id: known\n${lists}`;
  const bomb = [
    "a: &a [x, x, x, x, x, x, x, x, x]",
    ..."bcdef".split("").map((name, index) => `${name}: &${name} [${Array(9).fill(`*${"abcde"[index]}`).join(", ")}]`),
  ];
  const cases: [name: string, text: string, found: string | RegExp][] = [
    ["text that is not YAML", "organizations:\n  - name: [", /:2:\d+: this is not valid YAML/],
    [
      "a key that stands twice",
      "organizations:\n  - name: a\n    name: b",
      "3:5: this is not valid YAML: Map keys must be unique",
    ],
    [
      "a map of another type, whose values would be lost",
      known("    limits: !!omap [requests_per_minute: 3]"),
      "3:13: this is not valid YAML: Unresolved tag: tag:yaml.org,2002:omap",
    ],
    ["aliases that multiply", bomb.join("\n"), "this is not valid YAML: Excessive alias count"],
    [
      "an unknown field",
      known("    colour: red"),
      "3:5: Unknown parameter: 'colour'. Supported parameters are: id, name",
    ],
    [
      "a wrong type",
      known("    tokens:\n      - { name: a }\n      - { name: b, cap: much }"),
      "5:20: Invalid type for 'tokens[1].cap'",
    ],
    [
      "an organization that is declared twice",
      `${known("    name: K")}\n---\n${known("    name: L")}`,
      /:6:5: The organization known is already declared at .*:2:5\./,
    ],
    [
      "an organization that is declared twice in one document",
      "organizations:\n  - external_id: known\n    tokens: [{ name: t }]\n    budgets: [{ name: b, amount: 5 }]\n  - external_id: known\n    name: K",
      /:5:5: The organization known is already declared at .*:2:5\./,
    ],
    [
      "a token that is declared twice",
      known("    tokens: [{ name: a }, { name: a }]"),
      '3:29: name is "a", but must be different from that of tokens[0].',
    ],
    [
      "an organization without a key",
      "organizations:\n  - name: a",
      "2:5: Missing required parameter: 'external_id', or 'id'",
    ],
    [
      "a new organization without a name",
      "organizations:\n  - external_id: new",
      "2:5: Missing required parameter: 'name'",
    ],
    ["an unknown id", "organizations:\n  - id: org_none", "2:5: There is no organization"],
    ["a closed organization", "organizations:\n  - external_id: closed", "2:5: The organization org_"],
    ["a price list that does not exist", known("    price_list: none"), '3:5: price_list is "none"'],
    [
      "other terms of a grant",
      known("    grants: [{ reference: r, amount: 6 }]"),
      "3:30: The amount of the grant is 5 and cannot change.",
    ],
    [
      "another window of a budget",
      known("    budgets:\n      - name: b\n        window: day"),
      '5:9: The window of the budget is "month" and cannot change.',
    ],
    [
      "a budget of a token that nobody has",
      known(
        "    tokens: [{ name: production }]\n    budgets: [{ name: c, amount: 1, selector: { tokens: [production, prodction] } }]",
      ),
      '4:70: selector.tokens[1] is "prodction", but must be the name of a token of the organization.',
    ],
    [
      "a budget that limits nothing",
      known("    tokens: [{ name: production }]\n    budgets: [{ name: c }]"),
      "a budget needs an amount, limits or both.",
    ],
    [
      "more budgets than an organization can have",
      known(
        `    budgets:\n${Array.from({ length: 100 }, (_, n) => `      - { name: more ${n}, amount: 1 }`).join("\n")}`,
      ),
      ":103:9: The organization has 100 budgets, which is the maximum.",
    ],
    [
      "a grant without a reference",
      known("    grants: [{ amount: 6 }]"),
      "3:14: Missing required parameter: 'grants[0].reference'.",
    ],
    [
      "an amount with too many digits",
      known("    grants: [{ reference: s, amount: 0.0000001 }]"),
      "3:30: Invalid 'amount': at most 6 decimals",
    ],
    [
      "a time that is over",
      known("    grants: [{ reference: s, amount: 1, expires_at: 2020-01-01T00:00:00Z }]"),
      "3:41: Invalid 'expires_at': expected a time in the future.",
    ],
    ["allowances that are paused alone", known("    pauses_allowances: true"), "3:5: pauses_allowances is true"],
    [
      "a document that is too large",
      `organizations:\n  - note: ${"x".repeat(4_194_304)}`,
      ":1: a document is larger than 4194304 bytes.",
    ],
    ["something else than organizations", "customers: []", ".yaml:1: Missing required parameter: 'organizations'."],
  ];
  test.each(cases)("%s", async (name, text, found) => {
    const file = write(`${name.replaceAll(" ", "-")}.yaml`, text);
    const { code, stdout, stderr } = await run("apply", "-f", file, "--yes", ...place);
    expect({ code, stdout }).toEqual({ code: 1, stdout: "" });
    expect(stderr.split("\n")[0]).toMatch(found);
  });
  test("many of them", async () => {
    const file = write("many.yaml", `organizations:\n${"  - { name: a }\n".repeat(40)}`);
    const { stderr } = await run("apply", "-f", file, "--yes", ...place);
    expect(stderr.trim().split("\n")).toHaveLength(21);
    expect(stderr).toContain("tollgate: Mistakes in ");
    expect(await json("org", "list", ...place)).toHaveLength(4);
  });
  test("but a budget that is removed makes room for another one", async () => {
    const file = (budgets: string[]) =>
      write("room.yaml", `organizations: [{ external_id: room, name: Room, budgets: [${budgets.join(", ")}] }]`);
    const apply = (...budgets: string[]) => run("apply", "-f", file(budgets), "--yes", ...place);
    const all = Array.from({ length: 100 }, (_, n) => `{ name: b${n}, amount: 1 }`);
    expect((await apply(...all)).code).toBe(0);
    const [removed, added] = ["{ name: b7, removed: true }", "{ name: new, amount: 1 }"];
    expect((await apply(added, removed)).stderr).toContain("The organization has 100 budgets, which is the maximum.");
    expect((await apply(removed, added)).code).toBe(0);
    expect((await apply(removed, "{ name: more, amount: 1 }")).stderr).toContain("has 100 budgets");
  });
});
