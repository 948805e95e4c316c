import { getCompileCacheDir } from "node:module";
import { dirname } from "node:path";
import { Worker } from "node:worker_threads";
import { StoreUnavailableError } from "../../errors.ts";
import {
  fromWorkerError,
  type RequestKind,
  type RequestOf,
  type ResultOf,
  type WorkerOptions,
  type WorkerReply,
  type WorkerRequest,
} from "./messages.ts";

const WORKER = new URL(import.meta.url.endsWith(".ts") ? "./worker.ts" : "./worker.js", import.meta.url);

/**
 * Returns the environment of a thread: only the process's compile cache, which threads do not inherit. Without it each
 * thread would strip the types of its sources again and keep the 20 to 50 MiB that the stripper uses.
 */
function environmentOfWorker(): NodeJS.ProcessEnv {
  const directory = getCompileCacheDir();
  return directory === undefined ? {} : { NODE_COMPILE_CACHE: dirname(directory) };
}

interface Waiting {
  resolve: (result: never) => void;
  reject: (error: unknown) => void;
}

/** The main thread's side of a worker, which the first request starts, also after it died. */
export class WorkerLink {
  readonly #options: WorkerOptions;
  readonly #name: string;
  readonly #waiting = new Map<number, Waiting>();
  #worker: Worker | undefined;
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
      this.#waiting.set(id, { resolve, reject });
      try {
        worker.postMessage({ id, request } as unknown as WorkerRequest);
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
    const options = { name: this.#name, workerData: this.#options, execArgv: [], env: environmentOfWorker() };
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
    if (this.#worker !== worker) return;
    this.#worker = undefined;
    for (const { reject } of this.#waiting.values()) {
      const error = new StoreUnavailableError("The thread that works on the database died.", { cause });
      error.mayBeBooked = true;
      reject(error);
    }
    this.#waiting.clear();
  }
}
