import { setTimeout as sleep } from "node:timers/promises";
import { makeOrganization, makeToken } from "../../support/service.ts";
import type { Call } from "../client.ts";
import { Cluster } from "../cluster.ts";
import { keepCalling } from "../load.ts";
import type { Random } from "../random.ts";
import type { Site } from "../site.ts";

const NODES = 3;
const [KILLED, FROZEN, UPGRADED] = [0, 1, 2] as const;
const RUNNING = 12;
const RUNNING_ELSEWHERE = 2;
/** Requests per minute of the token whose limit all nodes share, and by how much it may be exceeded. */
const LIMIT = 30;
const EXCESS = 0.01;
const MINUTE_MS = 60_000;

/**
 * Runs three nodes behind nginx under mixed load. One is frozen and goes on, one is killed and started again, one is
 * stopped and replaced, as by an upgrade. Nothing but the requests of the killed node may fail.
 */
export async function loseNodes(site: Site, random: Random, trial: string): Promise<void> {
  const cluster = await Cluster.start(site, NODES);
  try {
    const { organizations, options, clients } = site;
    const pauseMs = 4_000 * options.streamShare;
    // Its requests go to models of the sandbox, whose prices the checker does not know.
    const other = await makeOrganization(site.service, "100");
    const limits = { requests_per_minute: LIMIT };
    const { token: limited } = await makeToken(site.service, other.id, { limits });
    const send = (calls: Call[]) => calls.map((call) => clients.send(cluster.baseUrl, call));
    const stopCalling = keepCalling({ organizations, options, send }, random, trial, RUNNING);
    const elsewhere = new Elsewhere(cluster.baseUrl, other.token, limited);
    await sleep(pauseMs);
    const frozen = cluster.nodes[FROZEN];
    frozen?.child.kill("SIGSTOP");
    await sleep(Math.min(pauseMs, site.limits.holdLifeMs / 3));
    frozen?.child.kill("SIGCONT");
    await sleep(pauseMs);
    const killedAt = Date.now();
    const killed = new URL(cluster.nodes[KILLED]?.url ?? "").host;
    await cluster.nodes[KILLED]?.end("SIGKILL");
    await sleep(pauseMs);
    await cluster.startNode(KILLED);
    await sleep(pauseMs);
    const exitCode = await cluster.nodes[UPGRADED]?.end("SIGTERM");
    if (exitCode !== 0) throw new Error(`the node that was stopped exited with ${exitCode}`);
    await sleep(pauseMs);
    await cluster.startNode(UPGRADED);
    await sleep(pauseMs);
    await stopCalling();
    await elsewhere.stop();
    const failed = cluster.proxied().filter(({ status, nodes }) => status >= 500 && !nodes.includes(killed));
    if (failed.length > 0)
      throw new Error(`failed on other nodes than the killed one: ${JSON.stringify(failed.slice(0, 5))}`);
    elsewhere.check();
    // Rejects where the books of any organization do not balance.
    await cluster.nodes[UPGRADED]?.tollgate("ledger", "verify");
    site.addTrial(trial, { killedAt, wasSuspended: true });
    await site.judge({ all: true });
  } finally {
    cluster.nodes[FROZEN]?.child.kill("SIGCONT");
    await cluster.end();
  }
}

/** Requests to the other endpoints, and of a token with a limit, one after the other. */
class Elsewhere {
  readonly #baseUrl: string;
  readonly #calls: Promise<void>[];
  readonly #passed: { sentAt: number; endedAt: number }[] = [];
  #isOver = false;

  constructor(baseUrl: string, token: string, limited: string) {
    this.#baseUrl = baseUrl;
    this.#calls = Array.from({ length: RUNNING_ELSEWHERE }, () => this.#callAll(token));
    this.#calls.push(this.#callLimited(limited));
  }

  async stop(): Promise<void> {
    this.#isOver = true;
    await Promise.all(this.#calls);
  }

  /** Throws where more requests of the limited token passed than its limit lets pass in the windows of that time. */
  check(): void {
    const [first] = this.#passed;
    const windows = Math.floor(((this.#passed.at(-1)?.endedAt ?? 0) - (first?.sentAt ?? 0)) / MINUTE_MS) + 1;
    const passed = this.#passed.length;
    if (passed < LIMIT) throw new Error(`only ${passed} requests of the limited token passed`);
    if (passed > LIMIT * windows * (1 + EXCESS)) throw new Error(`${passed} requests passed in ${windows} minutes`);
  }

  async #callAll(token: string): Promise<void> {
    const input = "word ".repeat(20);
    const messages = [{ role: "user", content: input }];
    const paths: [string, object?][] = [
      ["/models"],
      ["/usage"],
      ["/responses", { model: "sandbox/echo", input }],
      ["/messages", { model: "sandbox/echo", messages, max_tokens: 100 }],
      ["/embeddings", { model: "sandbox/embed", input }],
    ];
    for (let index = 0; !this.#isOver; index += 1) {
      const [path, body] = paths[index % paths.length] as [string, object?];
      await this.#call(path, token, body);
      await sleep(20);
    }
  }

  async #callLimited(token: string): Promise<void> {
    while (!this.#isOver) {
      const sentAt = Date.now();
      if ((await this.#call("/models", token)) === 200) this.#passed.push({ sentAt, endedAt: Date.now() });
      await sleep(50);
    }
  }

  async #call(path: string, token: string, body?: object): Promise<number | undefined> {
    const answer = await fetch(`${this.#baseUrl}${path}`, {
      method: body === undefined ? "GET" : "POST",
      headers: { authorization: `Bearer ${token}`, "content-type": "application/json" },
      ...(body !== undefined && { body: JSON.stringify(body) }),
    }).catch(() => undefined);
    await answer?.arrayBuffer().catch(() => undefined);
    return answer?.status;
  }
}
