import { type ChildProcess, spawn } from "node:child_process";
import { createInterface } from "node:readline";
import { fileURLToPath } from "node:url";

const PEERS = fileURLToPath(new URL("./stream-peers.ts", import.meta.url));

/** A process of a benchmark that answers with lines: an upstream, or a client of `/healthz`. */
export class Peer {
  readonly #child: ChildProcess;
  readonly #lines: AsyncIterator<string>;

  constructor(role: string, argument: string) {
    this.#child = spawn(process.execPath, [PEERS, role, argument], { stdio: ["pipe", "pipe", "inherit"] });
    if (this.#child.stdout === null) throw new Error("A peer has no output");
    this.#lines = createInterface(this.#child.stdout)[Symbol.asyncIterator]();
  }

  async line(): Promise<string> {
    return (await this.#lines.next()).value;
  }

  /** Asks for a line. */
  async ask(): Promise<string> {
    this.#child.stdin?.write("\n");
    return this.line();
  }

  end(): void {
    this.#child.kill();
  }
}

/** Formats a percentile of some times. */
export function percentile(waits: readonly number[], share: number, decimals = 0): string {
  const sorted = waits.toSorted((a, b) => a - b);
  return (sorted[Math.min(sorted.length - 1, Math.floor(sorted.length * share))] ?? Number.NaN).toFixed(decimals);
}
