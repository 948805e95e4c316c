/**
 * `npm run agents -- [NAME …]`: installs coding agents and client libraries from npm at exact versions, runs each through a
 * Tollgate service against a scripted upstream, and prints a table of what works. Ends with 1 when something does not.
 * `npm run agents -- --write` also writes the table into `docs/clients/README.md`.
 */
import { readFileSync, writeFileSync } from "node:fs";
import { readFile } from "node:fs/promises";
import { join } from "node:path";
import { parseArgs } from "node:util";
import { AGENTS, type Agent } from "./agents/agents.ts";
import { CLIENT_CALLS, CLIENTS, type Client } from "./agents/clients.ts";
import { type Outcome, type Program, type Trial, tryProgram } from "./agents/run.ts";

const PAGE = new URL("../docs/clients/README.md", import.meta.url);
const HEADING = "| client | package | endpoint | result | requests | micro-credits |";
const PROMPT =
  "Read notes.txt, replace red with green in it, copy it to copy.txt with a shell command, and then say that you are done.";
const BEFORE = "The colour of the door is red.\n";
const AFTER = "The colour of the door is green.\n";

/** Checks that the agent edited the file, and afterwards ran the command. */
function agentTrial({ calls, needsMaxTokens }: Agent): Trial {
  return {
    prompt: PROMPT,
    calls,
    files: { "notes.txt": BEFORE },
    settings: needsMaxTokens ? { completions: { maxTokens: "clamp" } } : {},
    check: async ({ work }) => {
      const [notes, copy] = await Promise.all(
        ["notes.txt", "copy.txt"].map((name) => readFile(join(work, name), "utf8").catch(() => undefined)),
      );
      return [
        ...(notes === AFTER ? [] : ["the file was not edited"]),
        ...(copy === AFTER ? [] : ["the command did not run"]),
      ];
    },
  };
}

/** The scripts of the clients check the answers themselves. */
const CLIENT_TRIAL: Trial = {
  prompt: PROMPT,
  calls: () => CLIENT_CALLS,
  files: {},
  settings: {},
  check: async () => [],
};

async function attempt(program: Program, trial: Trial): Promise<Outcome> {
  try {
    return await tryProgram(program, trial);
  } catch (error) {
    const problem = error instanceof Error ? error.message : String(error);
    return { problems: [problem], requests: 0, microCredits: 0, output: "" };
  }
}

async function tryAll(programs: readonly (Agent | Client)[]): Promise<{ rows: string[]; isFine: boolean }> {
  const rows: string[] = [];
  let isFine = true;
  for (const program of programs) {
    const outcome = await attempt(program, "calls" in program ? agentTrial(program) : CLIENT_TRIAL);
    const { problems, requests, microCredits, output } = outcome;
    if (problems.length > 0) {
      isFine = false;
      console.error(`${program.name}: ${problems.join("; ")}\n${output.slice(-4000)}`);
    }
    const [name, version] = Object.entries(program.packages)[0] ?? [];
    const works = "needsMaxTokens" in program ? "works with one setting" : "works";
    const result = problems.length === 0 ? works : "fails";
    rows.push(
      `| ${[program.name, `\`${name}\` ${version}`, program.wire, result, requests, microCredits].join(" | ")} |`,
    );
    console.log(rows.at(-1));
  }
  return { rows, isFine };
}

function writeTable(rows: readonly string[]): void {
  const text = readFileSync(PAGE, "utf8");
  const start = text.indexOf(HEADING);
  if (start < 0) throw new Error(`docs/clients/README.md has no table with the heading ${HEADING}`);
  const table = [HEADING, "|---|---|---|---|---|---|", ...rows].join("\n");
  writeFileSync(PAGE, text.slice(0, start) + table + text.slice(text.indexOf("\n\n", start)));
}

const ALL = [...AGENTS, ...CLIENTS];
const USAGE = `Usage: npm run agents -- [NAME …], or npm run agents -- --write.
Names: ${ALL.map(({ name }) => JSON.stringify(name)).join(", ")}`;

/** Reads the names of the programs to try, and whether the table is written. */
function readArguments(): { programs: readonly (Agent | Client)[]; isWritten: boolean } {
  const { values, positionals } = parseArgs({ allowPositionals: true, options: { write: { type: "boolean" } } });
  const isWritten = values.write === true;
  if (isWritten && positionals.length > 0) throw new Error(USAGE);
  if (positionals.some((name) => !ALL.some((program) => program.name === name))) throw new Error(USAGE);
  const isChosen = ({ name }: Program) => positionals.length === 0 || positionals.includes(name);
  return { programs: ALL.filter(isChosen), isWritten };
}

try {
  const { programs, isWritten } = readArguments();
  console.log(HEADING);
  const { rows, isFine } = await tryAll(programs);
  if (isWritten) writeTable(rows);
  process.exitCode = isFine ? 0 : 1;
} catch (error) {
  console.error(error instanceof Error ? error.message : String(error));
  process.exitCode = 1;
}
