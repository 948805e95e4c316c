import type { Server as HttpServer } from "node:http";
import { Server as NetServer } from "node:net";
import { setTimeout as sleep } from "node:timers/promises";
import type { FastifyInstance, FastifyReply } from "fastify";
import { StoppedError } from "../errors.ts";
import { HEADERS_TIMEOUT_MS } from "./connection.ts";

export interface ShutdownOptions {
  /** Time in which new connections are still accepted, so that a load balancer sees `draining` first. */
  delayMs: number;
  /** Time for running requests to finish, from the end of the delay on. */
  drainMs: number;
  /** Ends the delay early. */
  skipDelay?: AbortSignal;
}

const LOOK_EVERY_MS = 20;
const CLOSE_IDLE_EVERY_MS = 50;
/** Time for the clients of completions that the shutdown has ended to receive their error. */
const ERROR_READ_MS = 3_000;

/**
 * Shuts the HTTP server down in steps: `/readyz` reports `draining` while the listener still accepts connections; then
 * the listener closes and running requests finish; then those that still run end with an error, and all connections are
 * closed.
 */
export class Shutdown {
  readonly #server: FastifyInstance;
  readonly #running: RunningCompletions;
  /** Number of requests without a complete response. */
  #open = 0;
  #isListenerClosed = false;

  constructor(parts: { server: FastifyInstance; running: RunningCompletions }) {
    this.#server = parts.server;
    this.#running = parts.running;
  }

  get runningRequests(): number {
    return this.#open + this.#running.count;
  }

  /** Counts a request as running until `end`. After the listener has closed, it is the last of its connection. */
  begin(reply: FastifyReply): void {
    if (this.#isListenerClosed) reply.header("connection", "close");
    this.#open += 1;
  }

  /** Call it once, when the response is closed. */
  end(): void {
    this.#open -= 1;
  }

  /** Shuts down. Resolves when the server is closed and every completion is settled. */
  async run(health: { drain(): void }, { delayMs, drainMs, skipDelay }: ShutdownOptions): Promise<void> {
    health.drain();
    if (delayMs > 0) await sleep(delayMs, undefined, { signal: skipDelay }).catch(() => undefined);
    const { server } = this.#server;
    this.#isListenerClosed = true;
    // http.Server.close would also close idle connections, which health checks still use.
    NetServer.prototype.close.call(server);
    if (!(await this.#endsWithin(drainMs))) {
      this.#running.cut();
      // Their answer comes after their settlement, however long that takes: none of them is reset.
      await this.#running.ended();
      if (!(await this.#endsWithin(ERROR_READ_MS))) server.closeAllConnections();
    }
    await this.#closeConnections(server);
    await this.#running.ended();
  }

  /** Resolves to true when no request is running, and to false when the time is over. */
  async #endsWithin(ms: number): Promise<boolean> {
    const timeout = AbortSignal.timeout(ms);
    while (this.runningRequests > 0 && !timeout.aborted) await sleep(LOOK_EVERY_MS);
    return this.runningRequests === 0;
  }

  /** Closes idle connections now, and the others after the time limit for request headers. */
  async #closeConnections(server: HttpServer): Promise<void> {
    const closingIdle = setInterval(() => server.closeIdleConnections(), CLOSE_IDLE_EVERY_MS);
    const cut = setTimeout(() => server.closeAllConnections(), HEADERS_TIMEOUT_MS);
    try {
      await this.#server.close();
    } finally {
      clearInterval(closingIdle);
      clearTimeout(cut);
    }
  }
}

type Cut = (reason: StoppedError) => void;

/**
 * A completion that is not settled. `cut` ends it, and is forgotten at its end: V8 keeps what a set that changes often has
 * contained until its next full collection, and `cut` would keep everything that the request has read.
 */
interface RunningCompletion {
  ended: Promise<void>;
  cut: Cut | undefined;
}

/** The completions that are not settled, also those whose clients have disconnected. A shutdown ends them. */
export class RunningCompletions {
  readonly #running = new Set<RunningCompletion>();
  #isCut = false;

  /** True once the shutdown ends requests: clients that disconnect then did not do so by themselves. */
  get isCut(): boolean {
    return this.#isCut;
  }

  get count(): number {
    return this.#running.size;
  }

  /** Ends the running completions with an error, and those that begin later. */
  cut(): void {
    this.#isCut = true;
    for (const { cut } of this.#running) cut?.(new StoppedError());
  }

  /** Counts a completion until its promise settles. Returns the promise. */
  follow<T>(completion: Promise<T>, cut: Cut): Promise<T> {
    const end = () => {
      this.#running.delete(entry);
      entry.cut = undefined;
    };
    const entry: RunningCompletion = { ended: completion.then(end, end), cut };
    this.#running.add(entry);
    if (this.#isCut) cut(new StoppedError());
    return completion;
  }

  /** Resolves when every completion that is running now has ended. */
  async currentEnded(): Promise<void> {
    await Promise.all(Array.from(this.#running, ({ ended }) => ended));
  }

  /** Resolves when no completion is running; others may begin afterwards. */
  async ended(): Promise<void> {
    while (this.#running.size > 0) await this.currentEnded();
  }
}
