/** The trials of each program: its task, and what a client meets when something goes wrong. */
import { readFile } from "node:fs/promises";
import { join } from "node:path";
import type { Agent } from "./agents.ts";
import { CLIENT_CALLS, type Client, OFFERS } from "./clients.ts";
import { type Outcome, type Trial, tryProgram } from "./run.ts";
import { LAST_TEXT } from "./upstream.ts";

const TASK =
  "Read notes.txt, replace red with green in it, copy it to copy.txt with a shell command, and then say that you are done.";
const QUESTION = "Is all of it done?";
const BEFORE = "The colour of the door is red.\n";
const AFTER = "The colour of the door is green.\n";

/** Cells of one program in the table of clients. */
export interface Row {
  cells: string[];
  problems: string[];
}

/** A failure that every client meets: what it may do about it. */
interface Trouble extends Partial<Trial> {
  /** Text that a client which gives up has to show. */
  reports?: RegExp;
}

/** Columns of the table that every program has, in addition to its task. */
export const TROUBLES: Readonly<Record<string, Trouble>> = {
  "402": { credits: "0", reports: /\b402\b|credits?\b|quota|billing/i },
  "429": { requestsPerMinute: 6, reports: /\b429\b|rate.?limit|too many requests/i },
  "503 for 30 s": { fault: "down", reports: /\b50[0-9]\b|overload|unavailable|server.?error/i },
  "cut stream": { fault: "cut", reports: /error|fail|terminated|closed|broke|cut|interrupted|retry/i },
  departure: { fault: "held", leaves: true },
};

/** Runs a program in all scenarios: first its task, then the troubles at the same time. */
export async function tryScenarios(program: Agent | Client): Promise<Row> {
  const task = "calls" in program ? agentTrial(program) : clientTrial(program);
  const done = await attempt(program, task);
  const works = "needsMaxTokens" in program ? "works with one setting" : "works";
  const problems = done.problems.map((problem) => `${problem}\n${done.output.slice(-4000)}`);
  // The scripted upstream of the rows "passed on" speaks a wire on which it has no unstreamed answers.
  const troubles = program.upstream === undefined ? Object.entries(TROUBLES) : [];
  const others = await Promise.all(
    troubles.map(async ([name, trouble]) => ({ name, ...(await meet(program, task, name, trouble)) })),
  );
  for (const { name, failures } of others) problems.push(...failures.map((one) => `${name}: ${one}`));
  const offers = new Set<string>("offers" in program ? program.offers : []);
  const also = OFFERS.map((one) => (offers.has(one) && done.problems.length === 0 ? "yes" : "–"));
  const cells = [
    done.problems.length === 0 ? works : "fails",
    ...also,
    ...Object.keys(TROUBLES).map((_, index) => others[index]?.cell ?? "–"),
  ];
  return { cells: [...cells, String(done.requests), String(done.microCredits)], problems };
}

/** Checks that the agent edited the file, and afterwards ran the command. */
function agentTrial({ calls, needsMaxTokens }: Agent): Trial {
  return {
    scenario: "task",
    prompt: TASK,
    calls,
    files: { "notes.txt": BEFORE },
    settings: needsMaxTokens ? { completions: { maxTokens: "clamp" } } : {},
    check: async ({ work }, { code }) => {
      const [notes, copy] = await Promise.all(
        ["notes.txt", "copy.txt"].map((name) => readFile(join(work, name), "utf8").catch(() => undefined)),
      );
      return [
        ...(code === 0 ? [] : [`it exited with ${code}`]),
        ...(notes === AFTER ? [] : ["the file was not edited"]),
        ...(copy === AFTER ? [] : ["the command did not run"]),
      ];
    },
  };
}

/** The scripts of the clients check the answers themselves. */
function clientTrial({ offers = [] }: Client): Trial {
  return {
    scenario: "task",
    prompt: QUESTION,
    calls: () => CLIENT_CALLS,
    files: {},
    settings: {},
    check: async (_, { code, seen }) => [
      ...(code === 0 ? [] : [`it exited with ${code}`]),
      // The service itself lists the models.
      ...offers
        .filter((one) => one !== "list of models" && !seen.has(one))
        .map((one) => `the upstream received nothing of: ${one}`),
    ],
  };
}

/** Runs a program into a trouble. The cell says what the client did; it may recover or report, but not hide the failure. */
async function meet(program: Agent | Client, task: Trial, scenario: string, { reports, ...trouble }: Trouble) {
  let cell = "charged";
  const trial: Trial = {
    ...task,
    ...trouble,
    scenario,
    prompt: QUESTION,
    calls: () => [],
    files: {},
    check: async (_, { code, output }) => {
      if (reports === undefined) return [];
      const hasRecovered = code === 0 && output.replaceAll(/\s+/g, " ").includes(LAST_TEXT);
      const isSilent = trouble.fault === "cut" && "ignoresErrorParts" in program && code === 0;
      cell = hasRecovered ? "tries again" : isSilent ? "shows the part" : "reports";
      if (hasRecovered || isSilent || reports.test(output)) return [];
      return [`it exited with ${code} and shows nothing of it: ${output.slice(-1500)}`];
    },
  };
  const { problems } = await attempt(program, trial);
  return { cell: problems.length === 0 ? cell : "fails", failures: problems };
}

async function attempt(program: Agent | Client, trial: Trial): Promise<Outcome> {
  try {
    return await tryProgram(program, trial);
  } catch (error) {
    const problem = error instanceof Error ? error.message : String(error);
    return { problems: [problem], requests: 0, microCredits: 0, output: "", code: null, seen: new Set() };
  }
}
