import cluster, { type Worker } from "node:cluster";
import { OperatorError } from "../errors.ts";
import type { Log } from "../telemetry/logger.ts";

const WORKERS_MAX = 64;
/** A worker that ends sooner counts as a failed start. */
const QUICK_END_MS = 10_000;
/** Failed starts in a row after which the supervisor gives up. */
const QUICK_ENDS_MAX = 5;
/** Wait before the second start in a row; it doubles with each further one. */
const FIRST_WAIT_MS = 200;
/** Message of a worker that accepts requests. */
const STARTED = "started";
const SIGNALS = ["SIGINT", "SIGTERM"] as const;

/** Parses the number of workers; 1 is a service without a supervisor. Throws OperatorError. */
export function workersFlag(text: string | undefined): number {
  const count = Number(text ?? "1");
  if (Number.isInteger(count) && count >= 1 && count <= WORKERS_MAX) return count;
  throw new OperatorError(`--workers is ${JSON.stringify(text)}, but must be an integer from 1 to ${WORKERS_MAX}.`);
}

/** Throws OperatorError if a configuration cannot be served by several processes. */
export function requireSharedStore({ database }: { database: string | null }): void {
  if (database !== null) return;
  throw new OperatorError(
    "--workers needs PostgreSQL, because only one process at a time can use a SQLite store. Set database or DATABASE_URL.",
  );
}

/** True in a process that a supervisor has started. */
export function isWorker(): boolean {
  return cluster.isWorker;
}

/** True in the process that prints the start report: a service without a supervisor, or the first worker. */
export function isFirst(): boolean {
  return cluster.worker === undefined || cluster.worker.id === 1;
}

/** Tells the supervisor that this worker accepts requests. `stop` is called if the supervisor disappears. */
export function joinSupervisor(stop: () => void): void {
  const { worker } = cluster;
  if (worker === undefined) return;
  // Node would exit at once, and cut the running answers.
  worker.exitedAfterDisconnect = true;
  process.once("disconnect", stop);
  if (worker.isConnected()) worker.send(STARTED);
  else stop();
}

/** Keeps a number of workers running, which run this command line and share its port. */
export class Supervisor {
  readonly #count: number;
  readonly #log: Log;
  readonly #ended = Promise.withResolvers<number>();
  /** Start times of the running workers, on the monotonic clock. */
  readonly #startedAtMs = new Map<Worker, number>();
  /** Workers that accept requests. */
  readonly #serving = new Set<Worker>();
  #isComplete = false;
  #isStopping = false;
  #exitCode = 0;
  #quickEnds = 0;

  constructor(count: number, log: Log) {
    this.#count = count;
    this.#log = log;
  }

  /**
   * Starts the workers, replaces each one that ends, and passes signals on. Resolves with the code to exit with, once a signal
   * has stopped all workers, the first one could not start, or several ended soon after their starts.
   */
  run(): Promise<number> {
    for (const signal of SIGNALS) {
      process.on(signal, () => {
        this.#isStopping = true;
        this.#signalAll(signal);
      });
    }
    // A worker that is still starting reads the new configuration anyway.
    process.on("SIGHUP", () => {
      for (const worker of this.#serving) worker.process.kill("SIGHUP");
    });
    cluster.on("exit", (worker, code: number | null, signal) => this.#onExit(worker, code, signal));
    // The first worker creates the tables and the first organization, and prints the report of the start.
    this.#fork();
    return this.#ended.promise;
  }

  #onStarted(worker: Worker): void {
    this.#log.info({ workerPid: worker.process.pid }, "a worker accepts requests");
    if (this.#isComplete || this.#isStopping) return;
    this.#isComplete = true;
    for (let started = 1; started < this.#count; started += 1) this.#fork();
  }

  #fork(): void {
    const worker = cluster.fork();
    this.#startedAtMs.set(worker, performance.now());
    worker.on("message", (message) => {
      if (message !== STARTED) return;
      this.#serving.add(worker);
      this.#onStarted(worker);
    });
  }

  #signalAll(signal: NodeJS.Signals): void {
    for (const worker of this.#startedAtMs.keys()) worker.process.kill(signal);
    this.#endIfStopped();
  }

  #onExit(worker: Worker, code: number | null, signal: string | null): void {
    const livedMs = performance.now() - (this.#startedAtMs.get(worker) ?? 0);
    this.#startedAtMs.delete(worker);
    this.#serving.delete(worker);
    if (this.#isStopping || !this.#isComplete) {
      this.#isStopping = true;
      // A worker that is still starting does not handle the signals, which is no failure of a stop.
      const isStopped = this.#isComplete && SIGNALS.some((one) => one === signal);
      this.#exitCode = Math.max(this.#exitCode, code ?? (isStopped ? 0 : 1));
      this.#endIfStopped();
      return;
    }
    this.#quickEnds = livedMs < QUICK_END_MS ? this.#quickEnds + 1 : 0;
    const fields = { workerPid: worker.process.pid, code, signal, livedMs: Math.round(livedMs) };
    if (this.#quickEnds >= QUICK_ENDS_MAX) {
      this.#log.error(fields, "workers end soon after their starts: the service stops");
      this.#isStopping = true;
      this.#exitCode = 1;
      this.#signalAll("SIGTERM");
      return;
    }
    this.#log.error(fields, "a worker has ended: another one is started");
    const waitMs = this.#quickEnds <= 1 ? 0 : FIRST_WAIT_MS * 2 ** (this.#quickEnds - 2);
    setTimeout(() => {
      if (!this.#isStopping) this.#fork();
    }, waitMs);
  }

  #endIfStopped(): void {
    if (this.#isStopping && this.#startedAtMs.size === 0) this.#ended.resolve(this.#exitCode);
  }
}
