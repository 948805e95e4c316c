import { type ChildProcess, spawn } from "node:child_process";
import { readFileSync } from "node:fs";
import { setTimeout as sleep } from "node:timers/promises";
import { BenchmarkError } from "./gateway.ts";

const READY_LIMIT_MS = 120_000;
const READY_INTERVAL_MS = 50;
const END_LIMIT_MS = 15_000;

/** The way to the gateway's process: a command that starts it, or a file with the id of a process that others start again. */
export type ProcessChoice = { command: string } | { pidFile: string };

/** The gateway's process, which can be killed. */
export class GatewayProcess {
  /** Number of kills so far. */
  kills = 0;
  readonly #choice: ProcessChoice;
  readonly #readyUrl: URL;
  #child: ChildProcess | undefined;
  #printed = "";

  constructor(choice: ProcessChoice, readyUrl: URL) {
    this.#choice = choice;
    this.#readyUrl = readyUrl;
  }

  /** Starts the gateway if the benchmark has its command, and waits until it takes requests. */
  async start(): Promise<void> {
    if ("command" in this.#choice) {
      if (await this.#isReady())
        throw new BenchmarkError(`Something answers at ${this.#readyUrl} before --command starts it.`);
      this.#spawn(this.#choice.command);
    }
    await this.#untilReady();
  }

  /** Kills the gateway with SIGKILL, with all processes that its command started. */
  async kill(): Promise<void> {
    this.kills += 1;
    if ("pidFile" in this.#choice) {
      process.kill(readPid(this.#choice.pidFile), "SIGKILL");
      return;
    }
    await this.#signal("SIGKILL");
  }

  /** Starts the gateway again after a kill, or waits until its supervisor has. */
  async restart(): Promise<void> {
    if ("command" in this.#choice) this.#spawn(this.#choice.command);
    await this.#untilReady();
  }

  /** Ends what the benchmark started. */
  async end(): Promise<void> {
    const child = this.#child;
    if (child === undefined) return;
    const killed = setTimeout(() => void this.#signal("SIGKILL"), END_LIMIT_MS);
    await this.#signal("SIGTERM");
    clearTimeout(killed);
  }

  #spawn(command: string): void {
    this.#printed = "";
    // A group of its own, so that a signal reaches the shell and all that it started.
    const child = spawn(command, { shell: true, detached: true, stdio: ["ignore", "pipe", "pipe"] });
    for (const stream of [child.stdout, child.stderr]) {
      stream?.on("data", (data) => {
        this.#printed = (this.#printed + data).slice(-2_000);
      });
    }
    this.#child = child;
  }

  async #signal(signal: NodeJS.Signals): Promise<void> {
    const child = this.#child;
    if (child?.pid === undefined || child.exitCode !== null || child.signalCode !== null) return;
    const exited = new Promise((resolve) => child.once("close", resolve));
    process.kill(-child.pid, signal);
    await exited;
  }

  async #untilReady(): Promise<void> {
    const untilMs = Date.now() + READY_LIMIT_MS;
    while (Date.now() < untilMs) {
      if (await this.#isReady()) return;
      if (this.#child !== undefined && this.#child.exitCode !== null) break;
      await sleep(READY_INTERVAL_MS);
    }
    throw new BenchmarkError(`The gateway does not answer at ${this.#readyUrl}. It printed:\n${this.#printed}`);
  }

  async #isReady(): Promise<boolean> {
    try {
      const answer = await fetch(this.#readyUrl, { redirect: "manual", signal: AbortSignal.timeout(2_000) });
      await answer.arrayBuffer();
      return answer.status < 500;
    } catch {
      return false;
    }
  }
}

function readPid(file: string): number {
  const pid = Number(readFileSync(file, "utf8").trim());
  if (!Number.isSafeInteger(pid) || pid <= 1) throw new BenchmarkError(`${file} contains no process id.`);
  return pid;
}
