/**
 * `npm run agents -- [NAME …]`: installs coding agents and client libraries from npm at exact versions, runs each through a
 * Tollgate service against a scripted upstream, and prints a table of what works. Ends with 1 when something does not.
 * `npm run agents -- --write [NAME …]` also writes their rows into the table of `docs/clients/README.md`.
 */
import { readFileSync, writeFileSync } from "node:fs";
import { parseArgs } from "node:util";
import { AGENTS, type Agent } from "./agents/agents.ts";
import { CLIENTS, type Client, OFFERS } from "./agents/clients.ts";
import type { Program } from "./agents/run.ts";
import { TROUBLES, tryScenarios } from "./agents/scenarios.ts";

const PAGE = new URL("../docs/clients/README.md", import.meta.url);
const COLUMNS = [
  ...["client", "package", "endpoint", "task", ...OFFERS],
  ...Object.keys(TROUBLES),
  ...["requests", "micro-credits"],
];
const HEADING = `| ${COLUMNS.join(" | ")} |`;
/** Programs that run at the same time: most of their time they wait for a failure to pass. */
const LANES = 2;

async function tryAll(programs: readonly (Agent | Client)[]): Promise<{ rows: string[]; isFine: boolean }> {
  const rows: string[] = [];
  let isFine = true;
  const waiting = [...programs.entries()];
  const lane = async () => {
    for (let next = waiting.shift(); next !== undefined; next = waiting.shift()) {
      const [place, program] = next;
      const { cells, problems } = await tryScenarios(program);
      if (problems.length > 0) isFine = false;
      for (const problem of problems) console.error(`${program.name}: ${problem}`);
      const [name, version] = Object.entries(program.packages)[0] ?? [];
      rows[place] = `| ${[program.name, `\`${name}\` ${version}`, program.wire, ...cells].join(" | ")} |`;
      console.log(rows[place]);
    }
  };
  await Promise.all(Array.from({ length: LANES }, lane));
  return { rows, isFine };
}

/** Writes rows into the table, which keeps those of other programs. */
function writeTable(rows: readonly string[]): void {
  const text = readFileSync(PAGE, "utf8");
  const start = text.indexOf(HEADING);
  if (start < 0) throw new Error("docs/clients/README.md has no table of what was tried with these columns");
  const end = text.indexOf("\n\n", start);
  const nameOf = (row: string) => row.slice(0, row.indexOf(" | ", 2));
  const found = [...text.slice(start, end).split("\n").slice(2), ...rows];
  const byName = new Map(found.map((row) => [nameOf(row), row]));
  const kept = ALL.map(({ name }) => byName.get(`| ${name}`)).filter((row) => row !== undefined);
  const table = [HEADING, `|${"---|".repeat(COLUMNS.length)}`, ...kept].join("\n");
  writeFileSync(PAGE, text.slice(0, start) + table + text.slice(end));
}

const ALL = [...AGENTS, ...CLIENTS];
const USAGE = `Usage: npm run agents -- [--write] [NAME …]
Names: ${ALL.map(({ name }) => JSON.stringify(name)).join(", ")}`;

/** Reads the names of the programs to try, and whether the table is written. */
function readArguments(): { programs: readonly (Agent | Client)[]; isWritten: boolean } {
  const { values, positionals } = parseArgs({ allowPositionals: true, options: { write: { type: "boolean" } } });
  const isWritten = values.write === true;
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
