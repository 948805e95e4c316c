import type { Server as HttpServer } from "node:http";
import { setTimeout as sleep } from "node:timers/promises";
import type { FastifyInstance, FastifyReply } from "fastify";
import { HEADERS_TIMEOUT_MS } from "./connection.ts";
import type { Listeners } from "./listeners.ts";

export interface ShutdownOptions {
  /** Time in which new connections are still accepted, so that a load balancer sees `draining` first. */
  delayMs: number;
  /** Time for running requests to finish, from the end of the delay on. */
  drainMs: number;
  /** Ends the delay early. */
  skipDelay?: AbortSignal;
}

/** Request counts without health checks. */
export interface RequestCounts {
  /** Requests without a complete response, and completions that are not settled. */
  running: number;
  /** Requests since the start of the process. */
  begun: number;
}

const CLOSE_IDLE_EVERY_MS = 50;

/**
 * Shuts the HTTP server down in steps: `/readyz` reports `draining` while the listener still accepts connections; then
 * the listener closes and running requests finish; then all connections are closed.
 */
export class Shutdown {
  readonly #server: FastifyInstance;
  readonly #running: RunningCompletions;
  readonly #listeners: Listeners;
  /**
   * Number of requests without a complete response. It is not a set: discarded tables of a set would keep finished
   * requests in memory until the next major collection.
   */
  #open = 0;
  #begun = 0;
  #isListenerClosed = false;
  #noneOpen: (() => void) | undefined;

  constructor(parts: { server: FastifyInstance; running: RunningCompletions; listeners: Listeners }) {
    this.#server = parts.server;
    this.#running = parts.running;
    this.#listeners = parts.listeners;
  }

  get requests(): RequestCounts {
    return { running: this.#open + this.#running.count, begun: this.#begun };
  }

  /** Counts a request as running until `end`. After the listener has closed, it is the last of its connection. */
  begin(reply: FastifyReply): void {
    if (this.#isListenerClosed) reply.header("connection", "close");
    this.#begun += 1;
    this.#open += 1;
  }

  /** Call it once, when the response is closed. */
  end(): void {
    this.#open -= 1;
    if (this.#open === 0) this.#noneOpen?.();
  }

  /** Shuts down. Resolves when the server is closed and every completion is settled. */
  async run(health: { drain(): void }, { delayMs, drainMs, skipDelay }: ShutdownOptions): Promise<void> {
    health.drain();
    if (delayMs > 0) await sleep(delayMs, undefined, { signal: skipDelay }).catch(() => undefined);
    const { server } = this.#server;
    this.#isListenerClosed = true;
    this.#listeners.close();
    let cut: NodeJS.Timeout | undefined;
    const cutting = new Promise<void>((resolve) => {
      cut = setTimeout(() => {
        this.#running.cut();
        server.closeAllConnections();
        resolve();
      }, drainMs);
    });
    await Promise.race([this.#allEnded(), cutting]);
    clearTimeout(cut);
    await this.#closeConnections(server);
    await this.#running.ended();
  }

  async #allEnded(): Promise<void> {
    while (this.#open > 0 || this.#running.count > 0) {
      if (this.#open > 0) {
        await new Promise<void>((resolve) => {
          this.#noneOpen = resolve;
        });
      }
      await this.#running.ended();
    }
  }

  /** Closes idle connections now, and the others after the time limit for request headers. */
  async #closeConnections(server: HttpServer): Promise<void> {
    const closingIdle = setInterval(() => server.closeIdleConnections(), CLOSE_IDLE_EVERY_MS);
    const cut = setTimeout(() => server.closeAllConnections(), HEADERS_TIMEOUT_MS);
    try {
      await Promise.all([this.#server.close(), this.#listeners.furtherClosed()]);
    } finally {
      clearInterval(closingIdle);
      clearTimeout(cut);
    }
  }
}

/** Counts the completions that are not settled, also those whose clients have disconnected. */
export class RunningCompletions {
  #count = 0;
  /** Completions that began since the last call of `currentEnded`. */
  #current = new Generation();
  #earlierEnded: Promise<void> = Promise.resolve();
  #isCut = false;
  readonly #waiting: (() => void)[] = [];

  /** True when the shutdown closes connections: the clients have not disconnected then. */
  get isCut(): boolean {
    return this.#isCut;
  }

  /** Call it before the connections of running completions are closed. */
  cut(): void {
    this.#isCut = true;
  }

  /** Counts a completion until its promise settles. Returns the promise. */
  follow<T>(completion: Promise<T>): Promise<T> {
    this.#count += 1;
    const generation = this.#current;
    generation.count += 1;
    const end = () => {
      generation.end();
      this.#end();
    };
    completion.then(end, end);
    return completion;
  }

  get count(): number {
    return this.#count;
  }

  /** Resolves when every completion that is running now has ended. */
  currentEnded(): Promise<void> {
    const earlier = this.#earlierEnded;
    const current = this.#current;
    this.#current = new Generation();
    current.close();
    this.#earlierEnded = Promise.all([earlier, current.ended.promise]).then(() => undefined);
    return this.#earlierEnded;
  }

  /** Resolves when no completion is running; others may begin afterwards. */
  ended(): Promise<void> {
    if (this.#count === 0) return Promise.resolve();
    return new Promise((resolve) => this.#waiting.push(resolve));
  }

  #end(): void {
    this.#count -= 1;
    if (this.#count > 0) return;
    for (const resolve of this.#waiting.splice(0)) resolve();
  }
}

/** Counts the completions that began between two reloads. */
class Generation {
  readonly ended = Promise.withResolvers<void>();
  count = 0;
  #isClosed = false;

  /** Called when no further completion can begin in it. */
  close(): void {
    this.#isClosed = true;
    if (this.count === 0) this.ended.resolve();
  }

  end(): void {
    this.count -= 1;
    if (this.#isClosed && this.count === 0) this.ended.resolve();
  }
}
