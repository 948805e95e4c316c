import { randomBytes } from "node:crypto";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, expect, vi } from "vitest";
import { runCommandLine } from "../../src/cli/program.ts";
import { splitStore } from "./command-line.ts";

const KEPT = new Set(["PATH", "HOME", "TMPDIR"]);

/** Lets the commands of a test file run in a new directory, which it returns. The file needs a process of its own. */
export function commandsDirectory(): string {
  const directory = mkdtempSync(join(tmpdir(), "tollgate-commands-"));
  beforeAll(() => {
    process.chdir(directory);
    withoutEnvironment();
  });
  afterAll(() => rmSync(directory, { recursive: true }));
  return directory;
}

/** Keeps the environment of this process from configuring the commands, until `vi.unstubAllEnvs()`. */
export function withoutEnvironment(): void {
  for (const name of Object.keys(process.env)) if (!KEPT.has(name)) vi.stubEnv(name, undefined);
}

/** Runs a command in this process, which is faster than one of its own: those are tested in start.test.ts. */
export async function run(...words: string[]) {
  let [stdout, stderr] = ["", ""];
  const terminal = {
    out: (text: string) => (stdout += `${text}\n`),
    error: (text: string) => (stderr += `${text}\n`),
    drained: () => Promise.resolve(),
    clock: Date.now,
    random: randomBytes,
    isInteractive: false,
  };
  const code = await runCommandLine(words, terminal, "0.0.0");
  return { code, stdout, ...splitStore(stderr) };
}

/** Runs a command with --json; it must print one document and nothing else. */
export async function json(...words: string[]) {
  const { code, stdout, stderr } = await run(...words, "--json");
  expect({ code, stderr }).toEqual({ code: 0, stderr: "" });
  return JSON.parse(stdout);
}

/** Runs a command that fails; gives its one line on standard error. */
export async function line(expectedCode: number, ...words: string[]): Promise<string> {
  const { code, stdout, stderr } = await run(...words);
  expect({ code, stdout }).toEqual({ code: expectedCode, stdout: "" });
  expect(stderr).toMatch(/^tollgate: [^\n]+\n$/);
  return stderr.trim();
}
