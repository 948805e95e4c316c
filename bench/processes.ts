import { type ChildProcess, spawn } from "node:child_process";
import { closeSync, existsSync, openSync, readdirSync, readFileSync } from "node:fs";
import { createServer } from "node:net";
import { join } from "node:path";

const START_TIMEOUT_MS = 30_000;
const END_TIMEOUT_MS = 15_000;
const ALLOCATIONS_TIMEOUT_MS = 10_000;
/** USER_HZ is 100 on every architecture that Node runs on. */
const MILLISECONDS_PER_TICK = 10;

/** Code that a process of Node runs first: it prints the bytes that its main thread has allocated when it gets SIGUSR2. */
const PRINT_ALLOCATIONS = `
import { getHeapStatistics } from "node:v8";
import { isMainThread } from "node:worker_threads";
const print = () => process.stderr.write("ALLOCATED " + getHeapStatistics().total_allocated_bytes + "\\n");
if (isMainThread) process.on("SIGUSR2", print);`;

/** Environment of a process of Node whose allocations are read. */
export const PRINTS_ALLOCATIONS = {
  NODE_OPTIONS: `--import "data:text/javascript,${encodeURIComponent(PRINT_ALLOCATIONS)}"`,
};

/** Returns the bytes that processes have printed after SIGUSR2, one number each. */
export function allocationsIn(output: string): number[] {
  return [...output.matchAll(/^ALLOCATED (\d+)\n/gm)].map(([, bytes]) => Number(bytes));
}

/** A program that the run has started, with the processes that it has started itself. */
export class Program {
  readonly name: string;
  readonly child: ChildProcess;
  readonly log: string;
  readonly #isNode: boolean;

  constructor(name: string, child: ChildProcess, { log, isNode }: { log: string; isNode: boolean }) {
    this.name = name;
    this.child = child;
    this.log = log;
    this.#isNode = isNode;
  }

  get pid(): number {
    return this.child.pid ?? 0;
  }

  /** Returns the resident memory in MiB (proc(5), status); undefined where the system has no /proc. */
  residentMiB(): number | undefined {
    if (!existsSync("/proc/self/status")) return undefined;
    const kibibytes = treeOf(this.pid).map((pid) => /^VmRSS:[ \t]+(\d+)/m.exec(readProcess(pid, "status"))?.[1] ?? 0);
    return kibibytes.reduce<number>((sum, one) => sum + Number(one) / 1_024, 0);
  }

  /** Resolves with the bytes that the main threads have allocated so far; undefined if it does not run on Node. */
  async allocatedBytes(): Promise<number | undefined> {
    if (!this.#isNode || !existsSync("/proc/self/status")) return undefined;
    const before = readFileSync(this.log).length;
    const pids = treeOf(this.pid);
    for (const pid of pids) process.kill(pid, "SIGUSR2");
    const deadline = Date.now() + ALLOCATIONS_TIMEOUT_MS;
    while (Date.now() < deadline) {
      const allocations = allocationsIn(readFileSync(this.log).subarray(before).toString());
      if (allocations.length >= pids.length) return allocations.reduce((sum, bytes) => sum + bytes, 0);
      await pause(5);
    }
    throw new Error(`${this.name} did not print its allocations`);
  }
}

/**
 * Returns the processor time that processes have used so far, user and system, with all their threads and the processes
 * below them, in milliseconds; undefined where the system has no /proc (proc(5), stat).
 */
export function processorMs(pids: readonly number[]): number | undefined {
  if (!existsSync("/proc/self/stat")) return undefined;
  // The second field is the command's name in brackets, which may contain blanks. Fields 14 to 17 are the times of the
  // process and of the children that have ended.
  const ticks = pids.flatMap(treeOf).flatMap((pid) => {
    const fields = readProcess(pid, "stat").split(") ").at(-1)?.split(" ") ?? [];
    return fields.slice(11, 15).map(Number);
  });
  return ticks.reduce((sum, one) => sum + one, 0) * MILLISECONDS_PER_TICK;
}

/** Returns a process and all that it has started. */
function treeOf(pid: number): number[] {
  const folder = `/proc/${pid}/task`;
  const threads = existsSync(folder) ? readdirSync(folder) : [];
  const children = threads.flatMap((thread) => readProcess(pid, `task/${thread}/children`).split(" "));
  return [pid, ...children.filter((one) => one !== "").flatMap((child) => treeOf(Number(child)))];
}

/** Returns the text of a file below /proc/PID; empty when the process or the thread has ended. */
function readProcess(pid: number, file: string): string {
  try {
    return readFileSync(`/proc/${pid}/${file}`, "utf8");
  } catch {
    return "";
  }
}

/** The programs of one run, each with a log of its own, ended one by one when the run ends. */
export class Processes {
  readonly folder: string;
  readonly #programs: Program[] = [];

  constructor(folder: string) {
    this.folder = folder;
  }

  /** Starts a program and waits until the address answers with any status but 503. */
  async start(
    name: string,
    [command = "", ...words]: string[],
    readyUrl: string,
    environment: NodeJS.ProcessEnv = {},
  ): Promise<Program> {
    const log = join(this.folder, `${name}.log`);
    const output = openSync(log, "a");
    const isNode = command === process.execPath;
    const env = { ...process.env, ...(isNode ? PRINTS_ALLOCATIONS : {}), ...environment };
    const child = spawn(command, words, { cwd: this.folder, stdio: ["ignore", output, output], env });
    closeSync(output);
    const program = new Program(name, child, { log, isNode });
    this.#programs.push(program);
    let failed: Error | undefined;
    child.once("error", (error) => {
      failed = error;
    });
    const deadline = Date.now() + START_TIMEOUT_MS;
    while (Date.now() < deadline && child.exitCode === null && failed === undefined) {
      const answer = await fetch(readyUrl).catch(() => undefined);
      await answer?.arrayBuffer();
      if (answer !== undefined && answer.status !== 503) return program;
      await pause(50);
    }
    throw new Error(`${name} did not start${failed ? `: ${failed.message}` : ""}\n${readFileSync(log, "utf8")}`);
  }

  /** Throws if one of them has ended by itself. */
  assertRunning(): void {
    for (const { name, child, log } of this.#programs) {
      if (child.exitCode === null && child.signalCode === null) continue;
      throw new Error(`${name} ended during the run\n${readFileSync(log, "utf8").slice(-4000)}`);
    }
  }

  async endAll(): Promise<void> {
    for (const { child } of this.#programs.toReversed()) {
      if (child.pid === undefined || child.exitCode !== null || child.signalCode !== null) continue;
      const ended = new Promise((resolve) => child.once("exit", resolve));
      child.kill("SIGTERM");
      const timer = setTimeout(() => child.kill("SIGKILL"), END_TIMEOUT_MS);
      await ended;
      clearTimeout(timer);
    }
  }
}

interface RunOptions {
  cwd?: string;
  env?: NodeJS.ProcessEnv;
  /** Its standard input. */
  input?: string;
}

/** Runs a program to its end. Resolves with its standard output; rejects with all of its output if it fails. */
export function run(command: string, words: string[], { input = "", ...options }: RunOptions = {}): Promise<string> {
  const child = spawn(command, words, { ...options, stdio: ["pipe", "pipe", "pipe"] });
  let printed = "";
  let said = "";
  child.stdout.on("data", (chunk) => {
    printed += chunk;
  });
  child.stderr.on("data", (chunk) => {
    said += chunk;
  });
  child.stdin.end(input);
  return new Promise((resolve, reject) => {
    child.once("error", reject);
    // A program that ends without reading its input; its exit code says whether it failed.
    child.stdin.once("error", () => undefined);
    child.once("close", (code) => {
      if (code === 0) resolve(printed);
      else reject(new Error(`${command} ${words.slice(0, 3).join(" ")} ended with ${code}: ${said}${printed}`));
    });
  });
}

export async function freePort(): Promise<number> {
  const server = createServer();
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const address = server.address();
  await new Promise((resolve) => server.close(resolve));
  if (address === null || typeof address === "string") throw new Error("No free port");
  return address.port;
}

export function pause(milliseconds: number): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, milliseconds));
}
