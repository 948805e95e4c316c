import type { Server as HttpServer } from "node:http";
import { Server as NetServer } from "node:net";
import { setTimeout as sleep } from "node:timers/promises";
import type { FastifyInstance, FastifyReply } from "fastify";
import { HEADERS_TIMEOUT_MS } from "./connection.ts";
import type { RunningCompletions } from "./running-completions.ts";

export interface ShutdownOptions {
  /** How long new connections are still accepted, so that a balancer sees `draining` before they are refused. */
  delayMs: number;
  /** How long running answers may finish, counted from the end of the delay. */
  drainMs: number;
  /** Ends the delay early. */
  skipDelay?: AbortSignal;
}

/** Counts of requests, without those for the health of the process. */
export interface RequestCounts {
  /** Requests that are being answered, and completions that are being settled. */
  running: number;
  /** Requests that have begun since the start. */
  begun: number;
}

const CLOSE_IDLE_EVERY_MS = 50;

/**
 * Shuts the HTTP server down in steps: `/readyz` answers `draining` while the listener still accepts connections; then
 * the listener closes, and requests on open connections are answered until the last one has ended; then every
 * connection is closed.
 */
export class Shutdown {
  readonly #server: FastifyInstance;
  readonly #running: RunningCompletions;
  /**
   * Number of requests that have not been answered to the end, without those for the health of the process. Not a set of
   * them: its discarded tables would keep answered requests alive until the next major collection.
   */
  #open = 0;
  #begun = 0;
  #isListenerClosed = false;
  #noneOpen: (() => void) | undefined;

  constructor(server: FastifyInstance, running: RunningCompletions) {
    this.#server = server;
    this.#running = running;
  }

  get requests(): RequestCounts {
    return { running: this.#open + this.#running.count, begun: this.#begun };
  }

  /** Counts a request as running until `end`. Once the listener is closed its connection takes no further one. */
  begin(reply: FastifyReply): void {
    if (this.#isListenerClosed) reply.header("connection", "close");
    this.#begun += 1;
    this.#open += 1;
  }

  /** Called once when the response is closed. */
  end(): void {
    this.#open -= 1;
    if (this.#open === 0) this.#noneOpen?.();
  }

  /** Resolves when the server is closed and every completion has settled. */
  async run(health: { drain(): void }, { delayMs, drainMs, skipDelay }: ShutdownOptions): Promise<void> {
    health.drain();
    if (delayMs > 0) await sleep(delayMs, undefined, { signal: skipDelay }).catch(() => undefined);
    const { server } = this.#server;
    this.#closeListener(server);
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

  /** Closes the listener alone: http.Server.close would also close idle connections, where health is still asked for. */
  #closeListener(server: HttpServer): void {
    this.#isListenerClosed = true;
    NetServer.prototype.close.call(server);
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

  /** Connections without a request end now; one whose request is still arriving after a while is cut. */
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
