import { randomBytes } from "node:crypto";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, describe, expect, test } from "vitest";
import { OperatorError, StoreUnavailableError } from "../errors.ts";
import { failureLine, runCommandLine } from "./program.ts";

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
  return { code, out: out.join("\n"), errors };
}

const COMMANDS = [
  "serve",
  "org create",
  "org list",
  "org show",
  "token create",
  "token list",
  "token revoke",
  "token rotate",
  "credits grant",
  "credits balance",
  "credits statement",
  "models list",
  "models check",
  "ledger verify",
  "config check",
];

describe("help", () => {
  test.each(COMMANDS)("tollgate %s --help", async (command) => {
    const { code, out, errors } = await run(...command.split(" "), "--help");
    expect({ code, errors }).toEqual({ code: 0, errors: [] });
    expect(out).toContain(`Usage: tollgate ${command} `);
    for (const flag of ["--config", "--data-dir", "--json", "--help"]) expect(out).toContain(flag);
  });

  test("tollgate --help names every command", async () => {
    const { code, out } = await run("--help");
    expect(code).toBe(0);
    for (const command of COMMANDS) expect(out).toContain(`\n  ${command.split(" ")[0]} `);
  });

  test("tollgate --version", async () => {
    expect(await run("--version")).toEqual({ code: 0, out: "1.2.3", errors: [] });
  });

  test.each(["", "org"])("without a command it goes to standard error: tollgate %s", async (words) => {
    const { code, out, errors } = await run(...words.split(" ").filter(Boolean));
    expect({ code, out }).toEqual({ code: 2, out: "" });
    expect(errors.join("\n")).toContain("Usage: tollgate");
  });
});

describe("wrong usage ends with 2, in one line with a hint", () => {
  const hint = "; add --help to see what is allowed";
  test.each([
    ["nonsense", "tollgate: unknown command 'nonsense'"],
    ["org creat", "tollgate: unknown command 'creat' (Did you mean create?)"],
    ["org create", "tollgate: missing required argument 'name'"],
    ["org list x", "tollgate: too many arguments for 'list'. Expected 0 arguments but got 1: x"],
    ["serve --porr 1", "tollgate: unknown option '--porr' (Did you mean --port?)"],
    ["serve --port", "tollgate: option '--port <number>' argument missing"],
    ["token create", "tollgate: required option '--org <id>' not specified"],
  ])("tollgate %s", async (words, message) => {
    expect(await run(...words.split(" "))).toEqual({ code: 2, out: "", errors: [`${message}${hint}`] });
  });
});

describe("a wrong value ends with 1, in one line", () => {
  const data = ["--data-dir", directory];
  const credits = (flag: string, found: string, least: string) =>
    `tollgate: ${flag}: found "${found}"; allowed: a decimal number of credits, ${least}, with at most 6 decimals`;
  const playground = ["--org", "org_playground"];
  test.each([
    [["serve", "--port", "http"], 'tollgate: --port: found "http"; allowed: an integer from 0 to 65535'],
    [["org", "create", "x", "--credits", "1,5", ...data], credits("--credits", "1,5", "0 or more")],
    [["org", "create", "x", "--credits", "-1", ...data], credits("--credits", "-1", "0 or more")],
    ...["0", "-1", "1e3", "abc", "0.0000001", "9000000001"].map((amount): [string[], string] => [
      ["credits", "grant", amount, ...playground, ...data],
      credits("AMOUNT", amount, "above 0"),
    ]),
    [
      ["credits", "grant", "1", "--org", "o", "--reference", "a\nb", ...data],
      'tollgate: --reference: found "a\\nb"; allowed: 1 to 200 characters on one line',
    ],
    [
      ["credits", "grant", "1", "--org", "o", "--expires", "30d", ...data],
      'tollgate: --expires: found "30d"; allowed: a date as YYYY-MM-DD (from 00:00 UTC on), or a time such as 2030-01-31T18:00:00Z',
    ],
    [
      ["token", "create", ...playground, "--expires", "2020-01-01", ...data],
      'tollgate: --expires: found "2020-01-01"; allowed: a time to come',
    ],
    [
      ["token", "create", ...playground, "--scope", "all", ...data],
      'tollgate: scope: found "all"; allowed: chat.completions:write, models:read, usage:read',
    ],
    [
      ["token", "rotate", "t", "--overlap", "soon", ...data],
      'tollgate: --overlap: found "soon"; allowed: a number with s, m, h, d or w, such as 90m or 30d',
    ],
  ])("%j", async (words, message) => {
    expect(await run(...words)).toEqual({ code: 1, out: "", errors: [message] });
  });
});

test("what fails is told in one line, whatever it is", () => {
  expect(failureLine(new OperatorError("port: taken"))).toBe("tollgate: port: taken");
  expect(failureLine(new StoreUnavailableError("connect\n ECONNREFUSED"))).toBe(
    "tollgate: the store cannot be reached: connect ECONNREFUSED",
  );
  expect(failureLine(new TypeError("x is not a function"))).toBe(
    "tollgate: this should not have happened: x is not a function",
  );
});
