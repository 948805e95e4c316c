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

/**
 * Keeps workers running, which share this command line and its port, and passes signals on to them. Resolves with the exit code
 * once a signal has stopped all of them, the first one could not start, or several ended soon after their starts.
 */
export function supervise(count: number, log: Log): Promise<number> {
  const ended = Promise.withResolvers<number>();
  /** The running workers; true for those that accept requests. */
  const workers = new Map<Worker, boolean>();
  let isComplete = false;
  let isStopping = false;
  let exitCode = 0;
  let quickEnds = 0;
  const endIfStopped = () => {
    if (isStopping && workers.size === 0) ended.resolve(exitCode);
  };
  const stop = (signal: NodeJS.Signals) => {
    isStopping = true;
    for (const worker of workers.keys()) worker.process.kill(signal);
    endIfStopped();
  };
  const onExit = (workerPid: number | undefined, code: number | null, signal: string | null, livedMs: number) => {
    if (isStopping || !isComplete) {
      isStopping = true;
      // A worker that is still starting does not handle the signals, which is no failure of a stop.
      const isStopped = isComplete && SIGNALS.some((one) => one === signal);
      exitCode = Math.max(exitCode, code ?? (isStopped ? 0 : 1));
      return endIfStopped();
    }
    quickEnds = livedMs < QUICK_END_MS ? quickEnds + 1 : 0;
    const fields = { workerPid, code, signal, livedMs: Math.round(livedMs) };
    if (quickEnds >= QUICK_ENDS_MAX) {
      log.error(fields, "workers end soon after their starts: the service stops");
      exitCode = 1;
      return stop("SIGTERM");
    }
    log.error(fields, "a worker has ended: another one is started");
    const waitMs = quickEnds <= 1 ? 0 : FIRST_WAIT_MS * 2 ** (quickEnds - 2);
    setTimeout(() => {
      if (!isStopping) fork();
    }, waitMs);
  };
  const fork = () => {
    const worker = cluster.fork();
    const startedAtMs = performance.now();
    workers.set(worker, false);
    worker.on("message", (message) => {
      if (message !== STARTED || !workers.has(worker)) return;
      workers.set(worker, true);
      log.info({ workerPid: worker.process.pid }, "a worker accepts requests");
      if (isComplete || isStopping) return;
      isComplete = true;
      for (let started = 1; started < count; started += 1) fork();
    });
    worker.on("exit", (code, signal) => {
      workers.delete(worker);
      onExit(worker.process.pid, code, signal, performance.now() - startedAtMs);
    });
  };
  for (const signal of SIGNALS) process.on(signal, () => stop(signal));
  process.on("SIGHUP", () => {
    // A worker that is still starting reads the new configuration anyway.
    for (const [worker, isServing] of workers) if (isServing) worker.process.kill("SIGHUP");
  });
  // The first worker creates the tables and the first organization, and prints the report of the start.
  fork();
  return ended.promise;
}
