import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, expect } from "vitest";
import { runCommand } from "./command-line.ts";

/** Makes a directory for the commands of a test file. Returns it, and functions that run a command in it. */
export function commandsDirectory() {
  const directory = mkdtempSync(join(tmpdir(), "tollgate-commands-"));
  afterAll(() => rmSync(directory, { recursive: true }));
  const run = (...words: string[]) => runCommand(words, directory);
  return {
    directory,
    run,
    /** Runs a command with --json, which must print one document and nothing else. Returns the document. */
    json: async (...words: string[]) => {
      const { code, stdout, stderr } = await run(...words, "--json");
      expect({ code, stderr }).toEqual({ code: 0, stderr: "" });
      return JSON.parse(stdout);
    },
    /** Runs a command that fails. Returns its one line on standard error. */
    line: async (expectedCode: number, ...words: string[]): Promise<string> => {
      const { code, stdout, stderr } = await run(...words);
      expect({ code, stdout }).toEqual({ code: expectedCode, stdout: "" });
      expect(stderr).toMatch(/^tollgate: [^\n]+\n$/);
      return stderr.trim();
    },
  };
}
