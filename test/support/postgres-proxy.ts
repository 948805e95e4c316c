import { createServer, connect as dial, type Server, type Socket } from "node:net";
import { setTimeout as sleep } from "node:timers/promises";
import { freePort } from "./service.ts";

/** The end of a simple query of this text on the wire (PostgreSQL's protocol, message `Q`). */
const COMMIT = Buffer.from("COMMIT\0");

/** A proxy between a store and its server, which breaks connections on demand. */
export class PostgresProxy {
  /** The address given, through the proxy. */
  readonly url: string;
  /** Cut the connection of so many COMMITs to come. */
  commitsToCut = 0;
  /**
   * Time at which the server sees a COMMIT that is cut: never, at the moment in which its client goes, or well before. Its answer
   * never comes back.
   */
  cuts: "before" | "during" | "after" = "before";
  /** After a COMMIT that is cut, let the next one pass of a session of the same settings: it may be the same once more. */
  sparesNext = false;
  /** Every answer of the server comes so much later. */
  delayMs = 0;
  /** Passes nothing on any more, and breaks nothing off. */
  isFrozen = false;
  /** The server that new connections go to. */
  target: URL;
  readonly #server: Server;
  readonly #port: number;
  readonly #sockets = new Set<Socket>();
  /** First messages of the sessions whose next COMMIT passes. */
  readonly #spared = new Set<string>();

  private constructor(server: Server, port: number, target: URL) {
    this.#server = server;
    this.#port = port;
    const url = new URL(target);
    url.host = `127.0.0.1:${port}`;
    this.url = url.href;
    this.target = target;
    server.on("connection", (near) => {
      const { port: farPort, hostname } = this.target;
      this.#join(near, dial({ port: Number(farPort), host: hostname, noDelay: true }));
    });
  }

  static async open(url: string): Promise<PostgresProxy> {
    const server = createServer({ noDelay: true });
    // No other process takes this port while the proxy is stopped.
    const port = await freePort();
    await listen(server, port);
    return new PostgresProxy(server, port, new URL(url));
  }

  /** Stops listening and ends all connections. */
  async leave(): Promise<void> {
    const closed = new Promise((resolve) => this.#server.close(resolve));
    for (const socket of this.#sockets) socket.destroy();
    await closed;
  }

  async comeBack(): Promise<void> {
    await listen(this.#server, this.#port);
  }

  async close(): Promise<void> {
    if (this.#server.listening) await this.leave();
  }

  /** In their order, even where the delay changes meanwhile. */
  async #writeLater(near: Socket, data: Buffer, before: Promise<void> | undefined): Promise<void> {
    const dueAt = performance.now() + this.delayMs;
    await before;
    await sleep(Math.max(0, dueAt - performance.now()));
    near.write(data);
  }

  #isToCut(settings: string): boolean {
    if (this.commitsToCut === 0 || this.#spared.delete(settings)) return false;
    this.commitsToCut -= 1;
    if (this.sparesNext) this.#spared.add(settings);
    return true;
  }

  #join(near: Socket, far: Socket): void {
    let answerIsCut = false;
    let late: Promise<void> | undefined;
    let settings: string | undefined;
    for (const [socket, other] of [
      [near, far],
      [far, near],
    ] as const) {
      this.#sockets.add(socket);
      socket.on("error", () => {});
      socket.on("close", () => {
        this.#sockets.delete(socket);
        other.destroy();
      });
    }
    near.on("data", (data: Buffer) => {
      if (this.isFrozen) return;
      // A session begins with them (StartupMessage).
      settings ??= data.toString("latin1");
      if (data.includes(COMMIT) && this.#isToCut(settings)) {
        if (this.cuts === "before") return void near.destroy();
        if (this.cuts === "during") return void far.end(data, () => near.destroy());
        answerIsCut = true;
      }
      far.write(data);
    });
    far.on("data", (data: Buffer) => {
      if (this.isFrozen) return;
      if (answerIsCut) near.destroy();
      else if (this.delayMs === 0 && late === undefined) near.write(data);
      else late = this.#writeLater(near, data, late);
    });
  }
}

function listen(server: Server, port: number): Promise<void> {
  return new Promise((resolve, reject) => {
    server.once("error", reject);
    server.listen(port, "127.0.0.1", () => {
      server.off("error", reject);
      resolve();
    });
  });
}
