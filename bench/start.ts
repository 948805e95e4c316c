/**
 * `npm run bench:start`: packs this checkout, installs the package into a scratch folder, and measures its commands, its
 * starts and its resident memory. Arguments: the folders of installed packages or of checkouts to measure in turns
 * instead. Options: --runs of each command and start, --seconds of load on 32 connections, --rest seconds after which the
 * memory of an idle service is read; 0 measures no memory.
 */
import { type ChildProcess, spawn, spawnSync } from "node:child_process";
import { mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join, resolve } from "node:path";
import { fileURLToPath } from "node:url";
import { parseArgs } from "node:util";
import { machineFacts } from "./contenders.ts";
import { requestBody } from "./endpoints.ts";
import { freePort, Processes, pause, run } from "./processes.ts";
import { median } from "./report.ts";
import type { Measured, Round } from "./round.ts";
import { MEMORY_SETTINGS, NODE_FLAGS, startTollgate } from "./tollgate.ts";
import { startUpstream } from "./upstreams.ts";

const here = dirname(fileURLToPath(import.meta.url));
const LOAD = join(here, "load.ts");
const CONNECTIONS = 32;
/** Soon after a start or a load. */
const SOON_SECONDS = 10;
const SAMPLE_EVERY_MS = 200;
const COMMANDS = ["--version", "org list", "token list", "config check", "ledger verify"];

const { values, positionals } = parseArgs({
  allowPositionals: true,
  options: {
    runs: { type: "string", default: "7" },
    seconds: { type: "string", default: "15" },
    rest: { type: "string", default: "130" },
  },
});
const [runs, seconds, rest] = [values.runs, values.seconds, values.rest].map(Number) as [number, number, number];

/** A package or a checkout that is measured: its name in the tables, its folder, and a folder for its data. */
interface Subject {
  name: string;
  folder: string;
  scratch: string;
}

/** Milliseconds until a result, and processor time, user and system, until then. */
interface Timing {
  durationMs: number;
  processorMs: number;
}

/** Packs this checkout and installs the package as a user does, with the packages that it needs. */
function installPackage(folder: string): string {
  const npm = (words: string[], cwd: string) => {
    const { status, stderr } = spawnSync("npm", [...words, "--silent"], { cwd, encoding: "utf8" });
    if (status !== 0) throw new Error(`npm ${words[0]} failed: ${stderr}`);
  };
  npm(["pack", "--pack-destination", folder], dirname(here));
  const tarball = readdirSync(folder).find((name) => name.endsWith(".tgz")) ?? "";
  npm(["install", "--prefix", folder, join(folder, tarball)], folder);
  return join(folder, "node_modules", "tollgate");
}

const programOf = ({ folder }: Subject) => join(folder, "bin", "tollgate.js");
const dataOf = ({ scratch }: Subject) => join(scratch, "data");

/** The service's settings are the defaults, whatever the environment of the benchmark contains. */
function environmentOf({ scratch }: Subject): NodeJS.ProcessEnv {
  return { PATH: process.env.PATH, HOME: scratch, LOG_LEVEL: "error" };
}

function timeCommand(subject: Subject, command: string): Timing {
  const words = [...command.split(" "), ...(command === "--version" ? [] : ["--data-dir", dataOf(subject)])];
  const beforeMs = childrenProcessorMs();
  const startedAtMs = performance.now();
  const options = { cwd: subject.scratch, env: environmentOf(subject), encoding: "utf8" } as const;
  const { status, stderr } = spawnSync(process.execPath, [programOf(subject), ...words], options);
  const durationMs = performance.now() - startedAtMs;
  if (status !== 0) throw new Error(`tollgate ${command}: ${stderr}`);
  return { durationMs, processorMs: childrenProcessorMs() - beforeMs };
}

/** Starts the service until `/readyz` answers 200, and ends it. */
async function timeStart(subject: Subject): Promise<Timing> {
  const port = await freePort();
  const words = [...NODE_FLAGS, programOf(subject), "serve", "--port", String(port), "--data-dir", dataOf(subject)];
  const startedAtMs = performance.now();
  const env = { ...environmentOf(subject), ...MEMORY_SETTINGS };
  const options = { cwd: subject.scratch, env, stdio: "ignore" } as const;
  const child = spawn(process.execPath, words, options);
  while ((await statusOf(`http://127.0.0.1:${port}/readyz`)) !== 200) {
    if (child.exitCode !== null) throw new Error(`${subject.name} did not start`);
    await pause(5);
  }
  const timing = { durationMs: performance.now() - startedAtMs, processorMs: processorMsOf(child) };
  const ended = new Promise((done) => child.once("exit", done));
  child.kill("SIGTERM");
  await ended;
  return timing;
}

const statusOf = (url: string) =>
  fetch(url).then(
    (answer) => answer.status,
    () => 0,
  );

/** Fields of `/proc/PID/stat` after the name of the command (proc(5)), in ticks of 10 ms. */
const ticksOf = (pid: number | "self") =>
  readFileSync(`/proc/${pid}/stat`, "utf8").split(") ").at(-1)?.split(" ") ?? [];
const processorMsOf = ({ pid = 0 }: ChildProcess) => ticksOf(pid).slice(11, 13).reduce(sumOfTicks, 0);
const childrenProcessorMs = () => ticksOf("self").slice(13, 15).reduce(sumOfTicks, 0);

function sumOfTicks(sumMs: number, ticks: string): number {
  return sumMs + Number(ticks) * 10;
}

/** Reads the memory of one service: idle, under load, and after it; in MiB. */
async function measureMemory({ folder, scratch }: Subject): Promise<number[]> {
  const processes = new Processes(scratch);
  try {
    const upstream = await startUpstream(processes, scratch);
    const variant = { name: "Tollgate", checkout: folder, workers: 1, organizations: 1, budgets: 0 };
    const service = await startTollgate(processes, upstream.url, join(scratch, "loaded"), variant);
    const resident = () => service.program.residentMiB() ?? Number.NaN;
    await pause(SOON_SECONDS * 1000);
    const soon = resident();
    await pause((rest - SOON_SECONDS) * 1000);
    const idle = resident();
    let most = 0;
    const sampling = setInterval(() => {
      most = Math.max(most, resident());
    }, SAMPLE_EVERY_MS);
    for (const streamed of [false, true]) {
      const address = service.address("chat", streamed);
      if (address === undefined) throw new Error("Tollgate serves chat completions");
      const target = { ...address, method: "POST" as const, body: requestBody("chat", streamed), leastBytes: 1 };
      const round: Round = { ...target, connections: CONNECTIONS, seconds: seconds / 2 };
      const input = JSON.stringify(round);
      const { failures } = JSON.parse(await run(process.execPath, [LOAD], { input })) as Measured;
      if (failures > 0) throw new Error(`${failures} requests failed`);
    }
    clearInterval(sampling);
    await pause(SOON_SECONDS * 1000);
    const soonAfter = resident();
    await pause((rest - SOON_SECONDS) * 1000);
    return [soon, idle, most, soonAfter, resident()];
  } finally {
    await processes.endAll();
  }
}

function printTable(headings: string[], rows: (string | number)[][]): void {
  const lines = [headings, ["---", ...headings.slice(1).map(() => "--:")], ...rows];
  console.log(`\n${lines.map((cells) => `| ${cells.join(" | ")} |`).join("\n")}`);
}

/** Measures all subjects in turns. The least processor time is printed: other work on the machine only adds to it. */
async function timeInTurns(subjects: Subject[], label: string, time: (subject: Subject) => Promise<Timing> | Timing) {
  const timings = new Map<Subject, Timing[]>(subjects.map((subject) => [subject, []]));
  for (let turn = 0; turn < runs; turn += 1) {
    for (const [subject, list] of timings) list.push(await time(subject));
  }
  return [...timings].map(([{ name }, list]) => {
    const duration = median(list.map(({ durationMs }) => durationMs));
    return [label, name, Math.round(duration), Math.min(...list.map(({ processorMs }) => processorMs))];
  });
}

async function main(scratch: string): Promise<void> {
  const folders = positionals.length > 0 ? positionals.map((one) => resolve(one)) : [installPackage(scratch)];
  const subjects = folders.map((folder, index): Subject => {
    const subject = { name: folder, folder, scratch: join(scratch, `subject-${index}`) };
    mkdirSync(subject.scratch);
    return positionals.length > 0 ? subject : { ...subject, name: "the package" };
  });
  const rows: (string | number)[][] = [];
  for (const subject of subjects) {
    const { durationMs, processorMs } = await timeStart(subject);
    rows.push(["first start", subject.name, Math.round(durationMs), processorMs]);
    // Fills the compile cache of the commands, too.
    for (const command of COMMANDS) timeCommand(subject, command);
  }
  rows.push(...(await timeInTurns(subjects, "start", timeStart)));
  for (const command of COMMANDS)
    rows.push(...(await timeInTurns(subjects, command, (one) => timeCommand(one, command))));
  printTable(["", "of", "median ms", "least processor time, ms"], rows);
  if (rest > 0) {
    const soon = `${SOON_SECONDS} s`;
    const load = `${CONNECTIONS} connections`;
    const headings = ["MiB resident", `idle, ${soon}`, `idle, ${rest} s`, load, `after, ${soon}`, `after, ${rest} s`];
    const measured = await Promise.all(subjects.map(measureMemory));
    printTable(
      headings,
      measured.map((figures, index) => [subjects[index]?.name ?? "", ...figures.map(Math.round)]),
    );
  }
  console.log(`\n${machineFacts()}; ${runs} runs of each command and start`);
}

const scratch = mkdtempSync(join(tmpdir(), "tollgate-start-"));
try {
  await main(scratch);
} finally {
  rmSync(scratch, { recursive: true, force: true });
}
