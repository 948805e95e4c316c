import { getCompileCacheDir } from "node:module";
import { dirname } from "node:path";
import { Worker } from "node:worker_threads";
import type { Transition } from "../../credits/books.ts";
import type { Outcome } from "../../credits/outcomes.ts";
import { OperatorError, StoreUnavailableError } from "../../errors.ts";
import type { PoolUse } from "../driver.ts";
import type { SchemaVersions } from "../migrations.ts";

/** One SQL statement. Requests to a worker are one message each, answered in order. */
export interface Statement {
  sql: string;
  parameters: readonly unknown[];
}

export interface StatementResult {
  rows: Record<string, unknown>[];
  changed: number;
}

/** Result of `PRAGMA wal_checkpoint`: the pages in the log, and how many of them are already in the database. */
export interface CheckpointResult {
  logPages: number;
  checkpointedPages: number;
}

export interface SentBatch {
  isDurable: boolean;
  transitions: Transition[];
}

interface Requests {
  /** Opens the database, and migrates its schema if `creates`; otherwise refuses one that is not current. */
  open: { request: { creates: boolean }; result: SchemaVersions };
  /** Applies batches one after the other in one transaction, durable if one of them is. Returns the outcomes of each. */
  apply: { request: { nowMs: number; batches: SentBatch[] }; result: Outcome[][] };
  run: { request: { statement: Statement }; result: StatementResult };
  write: { request: { required: Statement[]; rest: Statement[]; isDurable: boolean }; result: number[] | undefined };
  snapshot: { request: { statements: Statement[] }; result: Record<string, unknown>[][] };
  checkpoint: { request: { mode: "PASSIVE" | "TRUNCATE" }; result: CheckpointResult };
  /** Extends the log to its size under load. */
  lengthen: { request: object; result: null };
  close: { request: object; result: null };
}

export type RequestKind = keyof Requests;
export type RequestOf<Kind extends RequestKind> = { kind: Kind } & Requests[Kind]["request"];
export type Request = { [Kind in RequestKind]: RequestOf<Kind> }[RequestKind];
export type ResultOf<Kind extends RequestKind> = Requests[Kind]["result"];

export interface WorkerOptions {
  databasePath: string;
  busyTimeoutMs: number;
}

export interface WorkerData extends WorkerOptions {
  /** Number of requests that were sent to the thread, which waits for it to change. */
  sentCount: Int32Array<SharedArrayBuffer>;
}

/** Nothing of a batch outlives it, so a small young generation costs no time; by default it may grow to 64 MiB. */
const YOUNG_GENERATION_MIB_MAX = 6;

export interface WorkerRequest {
  id: number;
  request: Request;
}

export type WorkerReply = { id: number; result: ResultOf<RequestKind> } | { id: number; error: WorkerError };

/** An error as it is sent between threads, which lose its class. */
export interface WorkerError {
  kind: "unavailable" | "operator" | "defect";
  message: string;
  stack: string | undefined;
}

/** Converts an error for its way to another thread. */
export function toWorkerError(error: unknown): WorkerError {
  if (!(error instanceof Error)) return { kind: "defect", message: String(error), stack: undefined };
  const { message, stack } = error;
  if (error instanceof StoreUnavailableError) return { kind: "unavailable", message, stack };
  if (error instanceof OperatorError) return { kind: "operator", message, stack };
  return { kind: "defect", message, stack };
}

/** Restores the class of an error from another thread. */
export function fromWorkerError({ kind, message, stack }: WorkerError): Error {
  if (kind === "operator") return new OperatorError(message);
  const error = kind === "unavailable" ? new StoreUnavailableError(message) : new Error(message);
  if (stack !== undefined) error.stack = stack;
  return error;
}

const WORKER = new URL(import.meta.url.endsWith(".ts") ? "./worker.ts" : "./worker.js", import.meta.url);

/**
 * Returns the environment of a thread: only the process's compile cache, which threads do not inherit. Without it each
 * thread would strip the types of its sources again and keep the 20 to 50 MiB that the stripper uses.
 */
function environmentOfWorker(): NodeJS.ProcessEnv {
  const directory = getCompileCacheDir();
  return directory === undefined ? {} : { NODE_COMPILE_CACHE: dirname(directory) };
}

function makeCount(): Int32Array<SharedArrayBuffer> {
  return new Int32Array(new SharedArrayBuffer(Int32Array.BYTES_PER_ELEMENT));
}

interface Waiting {
  /** The thread that answers it. */
  worker: Worker;
  resolve: (result: never) => void;
  reject: (error: unknown) => void;
}

/** The main thread's side of a worker, which the first request starts, also after it died. */
export class WorkerLink {
  readonly #options: WorkerOptions;
  readonly #name: string;
  readonly #waiting = new Map<number, Waiting>();
  #worker: Worker | undefined;
  #sentCount = makeCount();
  #lastId = 0;
  #ended = false;

  constructor(name: string, options: WorkerOptions) {
    this.#name = name;
    this.#options = options;
  }

  request<Kind extends RequestKind>(request: RequestOf<Kind>): Promise<ResultOf<Kind>> {
    if (this.#ended) return Promise.reject(new StoreUnavailableError("The store is closed."));
    return new Promise((resolve, reject) => {
      const id = ++this.#lastId;
      const worker = this.#start();
      this.#waiting.set(id, { worker, resolve, reject });
      try {
        worker.postMessage({ id, request } as unknown as WorkerRequest);
        Atomics.add(this.#sentCount, 0, 1);
        Atomics.notify(this.#sentCount, 0);
      } catch (error) {
        this.#waiting.delete(id);
        reject(error);
      }
    });
  }

  /** True if the worker runs. */
  get running(): boolean {
    return this.#worker !== undefined;
  }

  /** The use of the thread, which works on one request at a time. */
  get use(): PoolUse {
    const used = Math.min(this.#waiting.size, 1);
    return { name: this.#name, max: 1, used, idle: 1 - used, waiting: this.#waiting.size - used };
  }

  /** Terminates the thread; a later request starts another. */
  async kill(): Promise<void> {
    await this.#worker?.terminate();
  }

  /** Lets the thread finish its requests, closes its connection, and refuses later requests. */
  async close(): Promise<void> {
    if (this.#ended) return;
    const closed = this.running ? this.request({ kind: "close" }) : undefined;
    this.#ended = true;
    try {
      await closed;
    } finally {
      await this.kill();
    }
  }

  #start(): Worker {
    if (this.#worker !== undefined) return this.#worker;
    // The worker inherits no loader or flag of the process.
    this.#sentCount = makeCount();
    const options = {
      name: this.#name,
      workerData: { ...this.#options, sentCount: this.#sentCount } satisfies WorkerData,
      execArgv: [],
      env: environmentOfWorker(),
      resourceLimits: { maxYoungGenerationSizeMb: YOUNG_GENERATION_MIB_MAX },
    };
    const worker = new Worker(WORKER, options);
    let failure: unknown;
    worker.on("message", (reply: WorkerReply) => this.#receive(reply));
    worker.on("error", (error) => {
      failure = error;
    });
    worker.on("exit", (code) => this.#lose(worker, failure ?? new Error(`the worker ended with ${code}`)));
    this.#worker = worker;
    return worker;
  }

  #receive(reply: WorkerReply): void {
    const waiting = this.#waiting.get(reply.id);
    if (waiting === undefined) return;
    this.#waiting.delete(reply.id);
    if ("error" in reply) waiting.reject(fromWorkerError(reply.error));
    else waiting.resolve(reply.result as never);
  }

  #lose(worker: Worker, cause: unknown): void {
    if (this.#worker === worker) this.#worker = undefined;
    for (const [id, waiting] of this.#waiting) {
      if (waiting.worker !== worker) continue;
      this.#waiting.delete(id);
      const error = new StoreUnavailableError("The thread that works on the database died.", { cause });
      error.mayBeBooked = true;
      waiting.reject(error);
    }
  }
}
