import type { Server as HttpServer } from "node:http";
import { setTimeout as sleep } from "node:timers/promises";
import type { FastifyInstance, FastifyReply } from "fastify";
import { StoppedError } from "../errors.ts";
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
    const ended = this.#allEnded();
    if (!(await isWithin(ended, drainMs))) {
      this.#running.cut();
      if (!(await isWithin(ended, ERROR_READ_MS))) server.closeAllConnections();
    }
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

/** Resolves to true when an event happens within a time, and to false when the time is over. */
async function isWithin(event: Promise<void>, ms: number): Promise<boolean> {
  const timer = new AbortController();
  const late = sleep(ms, false, { signal: timer.signal }).catch(() => false);
  const isInTime = await Promise.race([event.then(() => true), late]);
  timer.abort();
  return isInTime;
}

type Cut = (reason: StoppedError) => void;

/** Counts the completions that are not settled, also those whose clients have disconnected, and ends them at a shutdown. */
export class RunningCompletions {
  #count = 0;
  /** Completions that began since the last call of `currentEnded`. */
  #current = new Generation();
  #earlierEnded: Promise<void> = Promise.resolve();
  #isCut = false;
  /**
   * Ends each running completion; undefined in free places. A set would grow new tables, and its discarded ones would keep
   * finished requests in memory until the next major collection.
   */
  readonly #cuts: (Cut | undefined)[] = [];
  readonly #freePlaces: number[] = [];
  readonly #waiting: (() => void)[] = [];

  /** True once the shutdown ends requests: clients that disconnect then did not do so by themselves. */
  get isCut(): boolean {
    return this.#isCut;
  }

  /** Ends the running completions with an error, and those that begin later. */
  cut(): void {
    this.#isCut = true;
    for (const cut of this.#cuts) cut?.(new StoppedError());
  }

  /** Counts a completion until its promise settles. Returns the promise. */
  follow<T>(completion: Promise<T>, cut: Cut): Promise<T> {
    this.#count += 1;
    const generation = this.#current;
    generation.count += 1;
    const place = this.#freePlaces.pop() ?? this.#cuts.length;
    this.#cuts[place] = cut;
    if (this.#isCut) cut(new StoppedError());
    const end = () => {
      this.#cuts[place] = undefined;
      this.#freePlaces.push(place);
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
