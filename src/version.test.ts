import { execFileSync } from "node:child_process";
import { mkdirSync, mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { pathToFileURL } from "node:url";
import { expect, test } from "vitest";
import { cloneCommit, parseCommit, programVersion } from "./version.ts";

const root = new URL("../", import.meta.url);
const git = (words: string[], cwd: string | URL = root) => execFileSync("git", words, { cwd, encoding: "utf8" }).trim();

test("the version of a clone has the hash and the time of its commit", () => {
  const { name, committedAtMs } = programVersion();
  expect(name).toMatch(new RegExp(`^\\d+\\.\\d+\\.\\d+\\+${git(["rev-parse", "HEAD"]).slice(0, 7)}$`));
  expect(committedAtMs).toBe(Date.parse(git(["log", "-1", "--format=%cI"])));
});

test("a folder inside a clone has no commit of its own", () => {
  const folder = mkdtempSync(join(tmpdir(), "tollgate-version-"));
  try {
    git(["init", "--quiet"], folder);
    const author = ["-c", "user.name=Test", "-c", "user.email=test@example.com"];
    git([...author, "commit", "--quiet", "--allow-empty", "--message", "First"], folder);
    mkdirSync(join(folder, "inside"));
    const hash = git(["rev-parse", "HEAD"], folder).slice(0, 7);
    expect(cloneCommit(pathToFileURL(`${folder}/`))).toMatchObject({ hash });
    expect(cloneCommit(pathToFileURL(`${folder}/inside/`))).toBeUndefined();
  } finally {
    rmSync(folder, { recursive: true });
  }
});

test.each([
  ["a870786 1795500000\n", { hash: "a870786", committedAtMs: 1_795_500_000_000 }],
  ["a870786ffff 1795500000", { hash: "a870786", committedAtMs: 1_795_500_000_000 }],
  ["", undefined],
  ["main", undefined],
])("a commit is read from %j", (text, expected) => {
  expect(parseCommit(text)).toEqual(expected);
});
