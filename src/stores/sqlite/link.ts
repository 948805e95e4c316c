import { getCompileCacheDir } from "node:module";
import { dirname } from "node:path";
import { Worker } from "node:worker_threads";
import { OperatorError, StoreUnavailableError } from "../../errors.ts";
import type { PoolUse } from "../driver.ts";
import type { ConnectionOptions } from "./connection.ts";
import type { Calls, ThreadFunction, WorkerCall, WorkerError, WorkerReply } from "./worker.ts";

/** Nothing of a batch outlives it, so a small young generation costs no time; by default it may grow to 64 MiB. */
const YOUNG_GENERATION_MIB_MAX = 6;

function fromWorkerError({ name, message, ...rest }: WorkerError): Error {
  const ErrorClass = [OperatorError, StoreUnavailableError].find((known) => known.name === name) ?? Error;
  return Object.assign(new ErrorClass(message), rest);
}

const WORKER = new URL(import.meta.url.endsWith(".ts") ? "./worker.ts" : "./worker.js", import.meta.url);

interface Waiting {
  resolve: (result: never) => void;
  reject: (error: unknown) => void;
}

/** The main thread's side of a worker, which the first call starts, also after it died. */
export class WorkerLink {
  readonly #options: ConnectionOptions;
  readonly #name: string;
  #worker: Worker | undefined;
  /** The calls of the worker, which it answers in their order. */
  #waiting: Waiting[] = [];
  #ended = false;

  constructor(name: string, options: ConnectionOptions) {
    this.#name = name;
    this.#options = options;
  }

  /** Calls a function of the thread. Rejects with its error, or with StoreUnavailableError if the thread dies. */
  call<Name extends ThreadFunction>(
    name: Name,
    ...parameters: Parameters<Calls[Name]>
  ): Promise<ReturnType<Calls[Name]>> {
    if (this.#ended) return Promise.reject(new StoreUnavailableError("The store is closed."));
    return new Promise((resolve, reject) => {
      this.#start().postMessage({ name, parameters } satisfies WorkerCall);
      this.#waiting.push({ resolve, reject });
    });
  }

  get running(): boolean {
    return this.#worker !== undefined;
  }

  /** The use of the thread, which works on one call at a time. */
  get use(): PoolUse {
    const used = Math.min(this.#waiting.length, 1);
    return { name: this.#name, max: 1, used, idle: 1 - used, waiting: this.#waiting.length - used };
  }

  /** Terminates the thread; a later call starts another. */
  async kill(): Promise<void> {
    await this.#worker?.terminate();
  }

  /** Lets the thread finish its calls, closes its connection, and refuses later calls. */
  async close(): Promise<void> {
    if (this.#ended) return;
    const closed = this.running ? this.call("close") : undefined;
    this.#ended = true;
    try {
      await closed;
    } finally {
      await this.kill();
    }
  }

  #start(): Worker {
    if (this.#worker !== undefined) return this.#worker;
    // The worker inherits no loader or flag of the process, but its compile cache: otherwise each thread would strip the types
    // of its sources again and keep the 20 to 50 MiB that the stripper uses.
    const cache = getCompileCacheDir();
    const options = {
      name: this.#name,
      workerData: this.#options,
      execArgv: [],
      env: cache === undefined ? {} : { NODE_COMPILE_CACHE: dirname(cache) },
      resourceLimits: { maxYoungGenerationSizeMb: YOUNG_GENERATION_MIB_MAX },
    };
    const worker = new Worker(WORKER, options);
    const waiting: Waiting[] = [];
    let failure: unknown;
    worker.on("message", (reply: WorkerReply) => settle(waiting.shift(), reply));
    worker.on("error", (error) => {
      failure = error;
    });
    worker.on("exit", (code) => this.#lose(worker, waiting, failure ?? new Error(`the worker ended with ${code}`)));
    this.#worker = worker;
    this.#waiting = waiting;
    return worker;
  }

  #lose(worker: Worker, waiting: Waiting[], cause: unknown): void {
    if (this.#worker === worker) this.#worker = undefined;
    for (const { reject } of waiting.splice(0)) {
      const error = new StoreUnavailableError("The thread that works on the database died.", { cause });
      error.mayBeBooked = true;
      reject(error);
    }
  }
}

function settle(waiting: Waiting | undefined, reply: WorkerReply): void {
  if ("error" in reply) waiting?.reject(fromWorkerError(reply.error));
  else waiting?.resolve(reply.result as never);
}
