import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, expect, test } from "vitest";
import { NO_TOKENS } from "../src/credits/price.ts";
import { toPlain } from "../src/ledger/spool-file.ts";
import { runCommand } from "./support/command-line.ts";
import { factsOf } from "./support/open-ledger.ts";

const directory = mkdtempSync(join(tmpdir(), "tollgate-dead-letters-"));
afterAll(() => rmSync(directory, { recursive: true }));

const run = (...words: string[]) => runCommand(words, directory);

async function json(...words: string[]) {
  const { code, stdout, stderr } = await run(...words, "--json");
  expect({ code, stderr }).toEqual({ code: 0, stderr: "" });
  return JSON.parse(stdout);
}

/** Runs a command that fails; returns its line on standard error. */
async function line(...words: string[]): Promise<string> {
  const { code, stdout, stderr } = await run(...words);
  expect({ code, stdout }).toEqual({ code: 1, stdout: "" });
  return stderr.trim();
}

test("commands list dead letters and book them again", async () => {
  const dataDir = join(directory, "dead-letters");
  const place = ["--data-dir", dataDir];
  expect(await json("org", "create", "Charged", "--credits", "5", ...place)).toBeDefined();
  expect(await json("ledger", "dead-letters", "list", ...place)).toEqual([]);
  const [, { id: organizationId }] = await json("org", "list", ...place);
  const entry = (holdId: string, owner: string) => {
    const facts = { ...factsOf(holdId), organizationId: owner };
    const tokens = { ...NO_TOKENS, input: 2_000_000 };
    const transition = toPlain({ kind: "settle", facts, tokens, basis: "reported", end: "complete" });
    return JSON.stringify({ at: "2026-11-23T00:00:00.000Z", reason: "no reason", transition });
  };
  mkdirSync(join(dataDir, "dead-letters"));
  const lines = [entry("one", organizationId), entry("two", "org_none"), "{}"];
  writeFileSync(join(dataDir, "dead-letters", "transitions.jsonl"), `${lines.join("\n")}\n`);
  const listed = await json("ledger", "dead-letters", "list", ...place);
  const [first, second, third] = listed;
  const settle = { at: "2026-11-23T00:00:00.000Z", kind: "settle", credits: 2, reason: "no reason" };
  expect(first).toEqual({ id: expect.stringMatching(/^[0-9a-f]{12}$/), organizationId, holdId: "one", ...settle });
  const unreadable = { kind: null, organizationId: null, holdId: null, credits: null };
  expect(third).toEqual({ id: third.id, at: null, ...unreadable, reason: "the entry cannot be read" });
  expect((await run("ledger", "dead-letters", "list", ...place)).stdout).toContain(`${second.id}  2026-11-23T`);

  const retry = (...words: string[]) => run("ledger", "dead-letters", "retry", ...words, ...place, "--json");
  const retried = await retry(first.id);
  const booked = { id: first.id, outcome: "booked", charged: 2, shortfall: 0, reason: null };
  expect([retried.code, JSON.parse(retried.stdout)]).toEqual([0, [booked]]);
  const rest = await retry("--all");
  const nothing = { outcome: "refused", charged: null, shortfall: null };
  expect([rest.code, JSON.parse(rest.stdout)]).toEqual([
    1,
    [
      { id: second.id, ...nothing, reason: "the store answered unknown_organization" },
      { id: third.id, ...nothing, reason: "the entry cannot be read" },
    ],
  ]);
  expect(await json("org", "show", organizationId, ...place)).toMatchObject({ creditsAvailable: 3 });
  expect(await line("ledger", "dead-letters", "retry", first.id, ...place)).toMatch(
    /There is no dead letter with the id "[0-9a-f]{12}"\. To list the ids: .* ledger dead-letters list --data-dir /,
  );
  for (const words of [[], [first.id, "--all"]]) {
    expect(await line("ledger", "dead-letters", "retry", ...words, ...place)).toBe(
      "tollgate: State the ids of dead letters, or --all.",
    );
  }
});
