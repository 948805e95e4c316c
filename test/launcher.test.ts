import { execFile } from "node:child_process";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { expect, test } from "vitest";
import { programVersion } from "../src/version.ts";

const execute = promisify(execFile);
const LAUNCHER = fileURLToPath(new URL("../bin/tollgate.js", import.meta.url));

/** Runs the launcher, on a Node that says it is of another version where one is given. */
async function launch(words: string[], nodeVersion?: string) {
  const pretend = `Object.defineProperty(process, "versions", { value: { ...process.versions, node: "${nodeVersion}" } })`;
  const flags = nodeVersion === undefined ? [] : ["--import", `data:text/javascript,${encodeURIComponent(pretend)}`];
  return execute(process.execPath, [...flags, LAUNCHER, ...words]).then(
    ({ stdout, stderr }) => ({ code: 0, stdout, stderr }),
    ({ code, stdout, stderr }) => ({ code, stdout, stderr }),
  );
}

test("the launcher runs the command line", async () => {
  const version = `${programVersion().name}\n`;
  expect(await launch(["--version"])).toEqual({ code: 0, stdout: version, stderr: "" });
});

test.each(["18.20.8", "20.19.0", "23.11.1"])(
  "on Node %s the launcher names the required version in one line",
  async (version) => {
    expect(await launch(["serve"], version)).toEqual({
      code: 1,
      stdout: "",
      stderr: `tollgate: this is Node ${version}; Tollgate needs Node 24 or later: https://nodejs.org/\n`,
    });
  },
);
