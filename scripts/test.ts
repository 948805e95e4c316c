/**
 * `npm test`: types, lint and format, dead code, then every test. All run even if one fails, vitest last, so that its
 * summary ends the output. Arguments go to vitest, except `--summary FILE`: a file that gets one line,
 * `N passed, N failed`, made from the real counts.
 */
import { spawn } from "node:child_process";
import { existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { delimiter, dirname, join } from "node:path";
import { fileURLToPath } from "node:url";

interface Report {
  numPassedTests: number;
  numFailedTests: number;
  testResults: { status: string; assertionResults: unknown[] }[];
}

interface Ended {
  code: number;
  output: string;
}

const root = dirname(dirname(fileURLToPath(import.meta.url)));
const binaries = join(root, "node_modules", ".bin");

/** Runs a program of node_modules/.bin in the project's folder. Resolves with its exit code and, if it is piped, its output. */
function run(program: string, programArguments: string[], stdio: "inherit" | "pipe"): Promise<Ended> {
  const environment = { ...process.env, PATH: `${binaries}${delimiter}${process.env.PATH ?? ""}` };
  const child = spawn(join(binaries, program), programArguments, { cwd: root, stdio, env: environment });
  let output = "";
  for (const stream of [child.stdout, child.stderr]) stream?.on("data", (data) => (output += data));
  return new Promise((resolve) => {
    child.on("error", (error) => resolve({ code: 1, output: `${output}${error}\n` }));
    child.on("close", (code) => resolve({ code: code ?? 1, output }));
  });
}

/** Tests that passed and failed; a file that could not be loaded and a failed check count as one failure each. */
function summarize(reportPath: string, failedChecks: number, testsFailed: boolean): string {
  let passed = 0;
  let failed = 0;
  if (existsSync(reportPath)) {
    const report: Report = JSON.parse(readFileSync(reportPath, "utf8"));
    passed = report.numPassedTests;
    failed = report.numFailedTests;
    failed += report.testResults.filter(
      (file) => file.status === "failed" && file.assertionResults.length === 0,
    ).length;
  }
  // An error outside of any test fails the run without failing a test.
  const failures = testsFailed ? Math.max(1, failed) : failed;
  return `${passed} passed, ${failures + failedChecks} failed`;
}

const checks: [name: string, program: string, programArguments: string[]][] = [
  ["types", "tsc", ["--noEmit"]],
  ["types of the console", "tsc", ["--noEmit", "--project", "console"]],
  ["lint and format", "biome", ["ci", "."]],
  ["dead code", "knip", ["--no-progress"]],
];

const options = process.argv.slice(2);
const summaryAt = options.indexOf("--summary");
const summaryPath = summaryAt === -1 ? undefined : options.splice(summaryAt, 2)[1];

const failed: string[] = [];
// All run at the same time, because each uses one core only.
const ended = checks.map(([, program, programArguments]) => run(program, programArguments, "pipe"));
for (const [index, [name, program, programArguments]] of checks.entries()) {
  console.log(`\n${name}: ${program} ${programArguments.join(" ")}`);
  const check = await ended[index];
  process.stdout.write(check?.output ?? "");
  if (check?.code !== 0) failed.push(name);
}

console.log("\ntests: vitest run");
const folder = mkdtempSync(join(tmpdir(), "tollgate-report-"));
const reportPath = join(folder, "report.json");
const reporters = summaryPath === undefined ? [] : ["--reporter=json", `--outputFile.json=${reportPath}`];
const vitest = await run("vitest", ["run", "--reporter=default", ...reporters, ...options], "inherit");
process.stderr.write(vitest.output);
const testsFailed = vitest.code !== 0;
if (summaryPath !== undefined) writeFileSync(summaryPath, `${summarize(reportPath, failed.length, testsFailed)}\n`);
rmSync(folder, { recursive: true, force: true });
if (failed.length > 0) console.error(`Failed before the tests: ${failed.join("; ")}. See above.`);
process.exit(failed.length > 0 || testsFailed ? 1 : 0);
