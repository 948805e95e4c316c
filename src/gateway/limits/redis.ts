import { createHash } from "node:crypto";
import { add } from "./local.ts";
import { decode, encode, type Message, type Reply, type Return, SCRIPT, type Step } from "./script.ts";

/** The parts of a client of `@redis/client` that are used. */
export interface RedisConnection {
  on(event: "error", listener: (error: Error) => void): unknown;
  connect(): Promise<unknown>;
  sendCommand(words: string[]): Promise<unknown>;
  /** Rejects all commands. Throws if the connection is already closed. */
  destroy(): void;
}

export interface RedisNodeOptions {
  /** Creates a connection that queues nothing while it is closed, and does not reconnect. */
  createConnection(): RedisConnection;
  /** A name that no other process has. */
  node: string;
  /** Time after which the connection counts as failed if a message is not answered. */
  answerTimeoutMs: number;
  /** Returns this process's concurrent requests of each key. */
  running(): ReadonlyMap<string, number>;
  /** Called for each failure, also of an attempt to reconnect. */
  onFailure(reason: Error): void;
  onJoined(): void;
}

/** Time after which the concurrent requests of a process that has died are free. */
const LEASE_MS = 60_000;
const BEAT_MS = 5_000;
const CONNECT_TIMEOUT_MS = 1_000;
/** Pause between two attempts to reconnect. The first attempt follows at once. */
const RECONNECT_PAUSE_MS = 1_000;

const SCRIPT_SHA1 = createHash("sha1").update(SCRIPT).digest("hex");
const NOTHING_RUNNING: ReadonlyMap<string, number> = new Map();

/**
 * A node among those that count in one Redis. After the first failure, also of a single command, nothing is sent on this
 * connection again: a new one registers the node with all its concurrent requests, because the outcome of the commands
 * before it is unknown.
 */
export class RedisNode {
  readonly #options: RedisNodeOptions;
  #connection: RedisConnection | undefined;
  #connections = 0;
  #isJoined = false;
  #isStopped = false;
  #nodes: number | undefined;
  #returns: Return[] = [];
  /** Changes of concurrent requests that Redis does not know yet. */
  #running = new Map<string, number>();
  #reconnect: NodeJS.Timeout | undefined;
  #isFlushing = false;
  #beat: NodeJS.Timeout | undefined;

  constructor(options: RedisNodeOptions) {
    this.#options = options;
  }

  get isJoined(): boolean {
    return this.#isJoined;
  }

  /** The number of nodes at the last answer of Redis; undefined before the first one. */
  get nodes(): number | undefined {
    return this.#nodes;
  }

  /** Connects. Resolves after the first attempt, also if it fails; further attempts follow in the background. */
  async start(): Promise<void> {
    this.#beat = setInterval(() => this.#isJoined && void this.#exchange("beat", []), BEAT_MS).unref();
    await this.#connect();
  }

  /** Removes the node, which ends its concurrent requests. */
  async stop(): Promise<void> {
    this.#isStopped = true;
    for (const timer of [this.#beat, this.#reconnect]) clearTimeout(timer);
    if (this.#isJoined) await this.#exchange("leave", []);
    this.#isJoined = false;
    this.#close();
  }

  /** Sends steps in one round trip. Resolves with undefined if Redis does not answer in time. */
  async count(steps: readonly Step[]): Promise<Reply | undefined> {
    return this.#isJoined ? this.#exchange("count", steps) : undefined;
  }

  /** Changes the concurrent requests of keys. Nothing waits for it. */
  changeRunning(keys: readonly { key: string }[], change: 1 | -1): void {
    for (const { key } of keys) add(this.#running, key, change);
    this.#flush();
  }

  /** Returns amounts to their windows. Nothing waits for it. */
  giveBack(returns: readonly Return[]): void {
    if (!this.#isJoined) return;
    this.#returns.push(...returns);
    this.#flush();
  }

  /** Sends what requests have returned: all of this moment in one message, or with one that is sent now anyway. */
  #flush(): void {
    if (!this.#isJoined || this.#isFlushing) return;
    this.#isFlushing = true;
    queueMicrotask(() => {
      this.#isFlushing = false;
      if (this.#isJoined && (this.#running.size > 0 || this.#returns.length > 0)) void this.#exchange("count", []);
    });
  }

  async #connect(): Promise<void> {
    const connection = this.#options.createConnection();
    this.#connection = connection;
    connection.on("error", (error) => this.#fail(connection, error));
    const timeout = setTimeout(
      () => this.#fail(connection, new Error(`no connection within ${CONNECT_TIMEOUT_MS} ms`)),
      CONNECT_TIMEOUT_MS,
    );
    try {
      await connection.connect();
      if (this.#connection === connection) await this.#exchange("join", []);
    } catch (error) {
      this.#fail(connection, error as Error);
    } finally {
      clearTimeout(timeout);
    }
  }

  /** Sends a message with everything that waits for one. Resolves with undefined if the connection fails first. */
  async #exchange(purpose: Message["purpose"], steps: readonly Step[]): Promise<Reply | undefined> {
    const connection = this.#connection;
    if (connection === undefined) return undefined;
    const { answerTimeoutMs } = this.#options;
    let hasEnded = false;
    const failIfLate = () => {
      if (!hasEnded) this.#fail(connection, new Error(`no answer within ${answerTimeoutMs} ms`));
    };
    // An answer that arrived while this process was busy is read before the check.
    const timeout = setTimeout(() => setImmediate(failIfLate), answerTimeoutMs).unref();
    try {
      const reply = decode(await connection.sendCommand(this.#wordsOf(purpose, steps)), steps);
      if (this.#connection !== connection) return undefined;
      if (reply === undefined) throw new Error("Redis has lost the registration");
      this.#nodes = Math.max(1, reply.nodes);
      if (purpose === "join") {
        this.#isJoined = true;
        this.#options.onJoined();
        this.#flush();
      }
      return reply;
    } catch (error) {
      this.#fail(connection, error as Error);
      return undefined;
    } finally {
      hasEnded = true;
      clearTimeout(timeout);
    }
  }

  #wordsOf(purpose: Message["purpose"], steps: readonly Step[]): string[] {
    const { node, running } = this.#options;
    const isJoin = purpose === "join";
    if (isJoin) this.#connections += 1;
    const changes = isJoin ? running() : purpose === "leave" ? NOTHING_RUNNING : this.#running;
    const kept = purpose === "beat" ? running().keys() : [];
    const sender = { node, connection: this.#connections, leaseMs: LEASE_MS };
    const words = encode({ ...sender, purpose, steps, returns: this.#returns, running: changes, kept });
    this.#returns = [];
    this.#running.clear();
    return isJoin ? ["EVAL", SCRIPT, ...words] : ["EVALSHA", SCRIPT_SHA1, ...words];
  }

  #fail(connection: RedisConnection, reason: Error): void {
    if (this.#connection !== connection) return;
    const pauseMs = this.#isJoined ? 0 : RECONNECT_PAUSE_MS;
    this.#isJoined = false;
    this.#returns = [];
    this.#close();
    if (this.#isStopped) return;
    this.#options.onFailure(reason);
    this.#reconnect = setTimeout(() => void this.#connect(), pauseMs).unref();
  }

  #close(): void {
    const connection = this.#connection;
    this.#connection = undefined;
    try {
      connection?.destroy();
    } catch {
      // It was closed already.
    }
  }
}
