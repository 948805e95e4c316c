/**
 * `npm run agents -- [NAME …]`: installs coding agents and client libraries from npm at exact versions, runs each through a
 * Tollgate service against a scripted upstream, and prints a table of what works. Ends with 1 when something does not.
 * `npm run agents -- --write` also writes the table into `docs/clients/README.md`.
 */
import { readFileSync, writeFileSync } from "node:fs";
import { parseArgs } from "node:util";
import { AGENTS, type Agent } from "./agents/agents.ts";
import { CLIENTS, type Client } from "./agents/clients.ts";
import type { Program } from "./agents/run.ts";
import { TROUBLES, tryScenarios } from "./agents/scenarios.ts";

const PAGE = new URL("../docs/clients/README.md", import.meta.url);
const COLUMNS = [
  ...["client", "package", "endpoint", "task", "list of models", "image"],
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

function writeTable(rows: readonly string[]): void {
  const text = readFileSync(PAGE, "utf8");
  const start = text.indexOf("| client | package | endpoint | task |");
  if (start < 0) throw new Error("docs/clients/README.md has no table of what was tried");
  const table = [HEADING, `|${"---|".repeat(COLUMNS.length)}`, ...rows].join("\n");
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
