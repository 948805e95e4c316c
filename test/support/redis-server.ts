import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { rm } from "node:fs/promises";
import { createClient } from "@redis/client";
import { freePort, makeDirectory } from "./service.ts";

const START_TRIES_MAX = 400;
const TRY_EVERY_MS = 25;

/** A Redis server of the test's own, which stores nothing on disk. */
export class RedisServer {
  readonly url: string;
  readonly #port: number;
  readonly #directory: string;
  readonly #words: string[];
  #child: ChildProcess | undefined;
  #client: ReturnType<typeof clientOf> | undefined;

  private constructor(port: number, directory: string, password: string | undefined) {
    this.#port = port;
    this.#directory = directory;
    this.#words = password === undefined ? [] : ["--requirepass", password];
    this.url = `redis://${password === undefined ? "" : `:${password}@`}127.0.0.1:${port}`;
  }

  static async open({ password }: { password?: string } = {}): Promise<RedisServer> {
    const server = new RedisServer(await freePort(), await makeDirectory(), password);
    await server.start();
    return server;
  }

  /** Starts the server, empty, on the same port as before. */
  async start(): Promise<void> {
    const place = ["--port", String(this.#port), "--bind", "127.0.0.1", "--dir", this.#directory];
    const words = [...place, "--save", "", "--appendonly", "no", ...this.#words];
    this.#child = spawn("redis-server", words, { stdio: "ignore" });
    for (let tries = 0; tries < START_TRIES_MAX; tries += 1) {
      const client = clientOf(this.url);
      try {
        await client.connect();
        this.#client = client;
        return;
      } catch {
        await new Promise((resolve) => setTimeout(resolve, TRY_EVERY_MS));
      }
    }
    throw new Error("redis-server did not start");
  }

  send(...words: string[]): Promise<unknown> {
    if (this.#client === undefined) throw new Error("redis-server is not running");
    return this.#client.sendCommand(words);
  }

  /** Returns the names of the keys that match a pattern, after the prefix of all of them. */
  async keys(pattern: string): Promise<string[]> {
    return (await this.send("KEYS", `{tollgate}:${pattern}`)) as string[];
  }

  async hash(key: string): Promise<Record<string, string>> {
    return { ...(await this.#client?.hGetAll(key)) };
  }

  /** Returns how many scripts were run. */
  async scripts(): Promise<number> {
    const text = String(await this.send("INFO", "commandstats"));
    const calls = [...text.matchAll(/cmdstat_eval(?:sha)?:calls=(\d+)/g)].map(([, count]) => Number(count));
    return calls.reduce((a, b) => a + b, 0);
  }

  /** Moves the ends of all windows, as if this time had passed. */
  async elapse(ms: number): Promise<void> {
    for (const kind of ["requests", "tokens", "tokensOfDay"]) {
      for (const key of await this.keys(`${kind}:*`)) await this.send("HINCRBY", key, "ends", String(-ms));
    }
  }

  signal(signal: NodeJS.Signals): void {
    this.#child?.kill(signal);
  }

  /** Kills the server. */
  async kill(): Promise<void> {
    this.#client?.destroy();
    this.#client = undefined;
    const child = this.#child;
    this.#child = undefined;
    if (child === undefined || child.exitCode !== null || child.signalCode !== null) return;
    const exited = once(child, "exit");
    child.kill("SIGKILL");
    await exited;
  }

  async close(): Promise<void> {
    await this.kill();
    await rm(this.#directory, { recursive: true, force: true });
  }
}

/** Creates a client that does not reconnect. */
export function clientOf(url: string) {
  const client = createClient({ url, socket: { reconnectStrategy: false }, disableOfflineQueue: true });
  // The server is killed by tests.
  client.on("error", () => undefined);
  return client;
}
