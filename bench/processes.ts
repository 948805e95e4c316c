import { type ChildProcess, spawn } from "node:child_process";
import { closeSync, existsSync, openSync, readFileSync } from "node:fs";
import { createServer } from "node:net";
import { join } from "node:path";

const START_TIMEOUT_MS = 30_000;
const END_TIMEOUT_MS = 15_000;
/** USER_HZ is 100 on every architecture that Node runs on. */
const MILLISECONDS_PER_TICK = 10;

/** The processes of one run, each with a log of its own, ended one by one when the run ends. */
export class Processes {
  readonly #folder: string;
  readonly #children: { name: string; child: ChildProcess; log: string }[] = [];

  constructor(folder: string) {
    this.#folder = folder;
  }

  /** Starts a program and waits until the address answers with any status but 503. */
  async start(
    name: string,
    command: string,
    words: string[],
    readyUrl: string,
    options: { environment?: NodeJS.ProcessEnv } = {},
  ): Promise<void> {
    const log = join(this.#folder, `${name}.log`);
    const output = openSync(log, "a");
    const env = { ...process.env, ...options.environment };
    const child = spawn(command, words, { cwd: this.#folder, stdio: ["ignore", output, output], env });
    closeSync(output);
    this.#children.push({ name, child, log });
    let failed: Error | undefined;
    child.once("error", (error) => {
      failed = error;
    });
    const deadline = Date.now() + START_TIMEOUT_MS;
    while (Date.now() < deadline && child.exitCode === null && failed === undefined) {
      const answer = await fetch(readyUrl).catch(() => undefined);
      await answer?.arrayBuffer();
      if (answer !== undefined && answer.status !== 503) return;
      await pause(50);
    }
    throw new Error(`${name} did not start${failed ? `: ${failed.message}` : ""}\n${readFileSync(log, "utf8")}`);
  }

  /**
   * Returns the processor time that a program has used so far, user and system, all its threads and children that it
   * waited for, in milliseconds; undefined where the system has no /proc (proc(5), stat).
   */
  processorMs(name: string): number | undefined {
    const pid = this.#children.find((one) => one.name === name)?.child.pid;
    const file = `/proc/${pid}/stat`;
    if (pid === undefined || !existsSync(file)) return undefined;
    // The second field is the command's name in brackets, which may contain blanks.
    const fields = readFileSync(file, "utf8").split(") ").at(-1)?.split(" ") ?? [];
    const ticks = fields.slice(11, 15).reduce((sum, field) => sum + Number(field), 0);
    return ticks * MILLISECONDS_PER_TICK;
  }

  /** Returns the resident memory of a program in MiB (proc(5), status). */
  residentMiB(name: string): number {
    const pid = this.#children.find((one) => one.name === name)?.child.pid;
    const [, kibibytes] = /^VmRSS:[ \t]+(\d+)/m.exec(readFileSync(`/proc/${pid}/status`, "utf8")) ?? [];
    return Number(kibibytes) / 1024;
  }

  /** Throws if one of them has ended by itself. */
  assertRunning(): void {
    for (const { name, child, log } of this.#children) {
      if (child.exitCode === null && child.signalCode === null) continue;
      throw new Error(`${name} ended during the run\n${readFileSync(log, "utf8").slice(-4000)}`);
    }
  }

  async endAll(): Promise<void> {
    for (const { child } of this.#children.toReversed()) {
      if (child.pid === undefined || child.exitCode !== null || child.signalCode !== null) continue;
      const ended = new Promise((resolve) => child.once("exit", resolve));
      child.kill("SIGTERM");
      const timer = setTimeout(() => child.kill("SIGKILL"), END_TIMEOUT_MS);
      await ended;
      clearTimeout(timer);
    }
  }
}

/** Runs a program to its end. Resolves with its standard output; rejects with all of its output if it fails. */
export function run(command: string, words: string[], options: { cwd?: string } = {}): Promise<string> {
  const child = spawn(command, words, { ...options, stdio: ["ignore", "pipe", "pipe"] });
  let printed = "";
  let said = "";
  child.stdout.on("data", (chunk) => {
    printed += chunk;
  });
  child.stderr.on("data", (chunk) => {
    said += chunk;
  });
  return new Promise((resolve, reject) => {
    child.once("error", reject);
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
