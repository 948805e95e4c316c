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
  skipDelay?: AbortSignal;
}

const LOOK_EVERY_MS = 20;
const CLOSE_IDLE_EVERY_MS = 50;
/** Time for the clients of completions that the shutdown has ended to receive their error. */
const ERROR_READ_MS = 3_000;

type Cut = (reason: StoppedError) => void;

/** A completion that is not settled. `cut` ends it, and is forgotten then, because V8 keeps for long what a set has contained. */
interface RunningCompletion {
  ended: Promise<void>;
  cut: Cut | undefined;
}

/** Follows the requests of a server, and shuts it down. */
export class RunningRequests {
  readonly #server: FastifyInstance;
  /** Those that are not settled, also of clients that have disconnected. */
  readonly #completions = new Set<RunningCompletion>();
  #open = 0;
  #isListenerClosed = false;
  isDraining = false;
  /** True once the shutdown ends requests: clients that disconnect then did not do so by themselves. */
  isCut = false;

  constructor(server: FastifyInstance) {
    this.#server = server;
  }

  get count(): number {
    return this.#open + this.#completions.size;
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

  /** Counts a completion until its promise settles. Returns the promise. The shutdown calls `cut`. */
  follow<T>(completion: Promise<T>, cut: Cut): Promise<T> {
    const end = () => {
      this.#completions.delete(entry);
      entry.cut = undefined;
    };
    const entry: RunningCompletion = { ended: completion.then(end, end), cut };
    this.#completions.add(entry);
    if (this.isCut) cut(new StoppedError());
    return completion;
  }

  async currentEnded(): Promise<void> {
    await Promise.all(Array.from(this.#completions, ({ ended }) => ended));
  }

  /**
   * Shuts down in steps: `/readyz` says `draining`; the listener closes and running requests finish; the others end with an error,
   * and all connections are closed. Resolves when every completion is settled.
   */
  async shutDown({ delayMs, drainMs, skipDelay }: ShutdownOptions): Promise<void> {
    this.isDraining = true;
    if (delayMs > 0) await sleep(delayMs, undefined, { signal: skipDelay }).catch(() => undefined);
    const { server } = this.#server;
    this.#isListenerClosed = true;
    // http.Server.close would also close idle connections, which health checks still use.
    NetServer.prototype.close.call(server);
    if (!(await this.#endWithin(drainMs))) {
      this.isCut = true;
      for (const { cut } of this.#completions) cut?.(new StoppedError());
      // Their answer comes after their settlement, however long that takes: none of them is reset.
      await this.#completionsEnded();
      if (!(await this.#endWithin(ERROR_READ_MS))) server.closeAllConnections();
    }
    // Idle connections are closed now, and the others after the time limit for request headers.
    const closingIdle = setInterval(() => server.closeIdleConnections(), CLOSE_IDLE_EVERY_MS);
    const closingAll = setTimeout(() => server.closeAllConnections(), HEADERS_TIMEOUT_MS);
    await this.#server.close().finally(() => {
      clearInterval(closingIdle);
      clearTimeout(closingAll);
    });
    await this.#completionsEnded();
  }

  /** Resolves to true when no request is running, and to false when the time is over. */
  async #endWithin(ms: number): Promise<boolean> {
    const timeout = AbortSignal.timeout(ms);
    while (this.count > 0 && !timeout.aborted) await sleep(LOOK_EVERY_MS);
    return this.count === 0;
  }

  /** Resolves when no completion is running; others may begin afterwards. */
  async #completionsEnded(): Promise<void> {
    while (this.#completions.size > 0) await this.currentEnded();
  }
}
