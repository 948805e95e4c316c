import { type ChildProcess, spawn } from "node:child_process";
import { readFileSync } from "node:fs";
import { appendFile, mkdir, mkdtemp, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { ROOT } from "../support/documents.ts";
import { nginxConfiguration, nginxSite } from "../support/nginx.ts";
import { RedisServer } from "../support/redis-server.ts";
import { freePort, type ServiceProcess } from "../support/service.ts";
import type { Site } from "./site.ts";

const START_ATTEMPTS = 400;
const START_INTERVAL_MS = 50;
const EXAMPLE = join(ROOT, "docs", "examples", "nginx-nodes.conf");

/** A line of nginx's log: a request, the nodes that it was sent to, and the status that its client got. */
export interface ProxiedRequest {
  path: string;
  nodes: string[];
  status: number;
  /** Milliseconds since 1970. */
  beganAt: number;
  endedAt: number;
}

/** The line of nginx's error log for an answer that a node did not complete. */
const CUT = /prematurely closed connection while reading upstream,.* upstream: "http:\/\/([^/]+)/;
/** An nginx that notices the end of a node a moment later reads a reset. */
const RESET = /reset by peer\) while reading upstream,.* upstream: "http:\/\/([^/]+)/;

/** Three nodes on the database of a site, with a Redis, behind nginx as the guide sets it up. */
export class Cluster {
  readonly nodes: ServiceProcess[] = [];
  readonly #site: Site;
  readonly #directory: string;
  readonly #redis: RedisServer;
  #nginx: ChildProcess | undefined;
  /** The address that clients use. */
  readonly baseUrl: string;

  private constructor(site: Site, directory: string, redis: RedisServer, port: number) {
    this.#site = site;
    this.#directory = directory;
    this.#redis = redis;
    this.baseUrl = `http://127.0.0.1:${port}/v1`;
  }

  /** Starts everything. */
  static async start(site: Site, size: number): Promise<Cluster> {
    const directory = await mkdtemp(join(site.directory, "cluster-"));
    const cluster = new Cluster(site, directory, await RedisServer.open(), await freePort());
    try {
      for (let index = 0; index < size; index += 1) await cluster.startNode(index);
      await cluster.#startNginx();
      return cluster;
    } catch (error) {
      await cluster.end();
      throw error;
    }
  }

  /** Starts a node on its directory, on the port that it had. `isUpgraded`: as this version. */
  async startNode(index: number, { isUpgraded = false } = {}): Promise<void> {
    const dataDir = join(this.#directory, `node-${index}`);
    await mkdir(dataDir, { recursive: true });
    const port = this.nodes[index] === undefined ? undefined : Number(new URL(this.nodes[index].url).port);
    const config = { redis: this.#redis.url };
    this.nodes[index] = await this.#site.startNode({ dataDir, port, config, isUpgraded });
  }

  /** Ends a node by a signal, and keeps what it printed. Returns its exit code. */
  async endNode(index: number, signal: NodeJS.Signals): Promise<number | null> {
    const node = this.nodes[index];
    if (node === undefined) return null;
    const exitCode = await node.end(signal);
    await appendFile(join(this.#directory, `node-${index}.log`), node.output());
    return exitCode;
  }

  /** Address of a node as nginx logs it. */
  hostOf(index: number): string {
    return new URL(this.nodes[index]?.url ?? "").host;
  }

  /** Requests that went through nginx and have ended. */
  proxied(): ProxiedRequest[] {
    const lines = readFileSync(join(this.#directory, "access.log"), "utf8").trim().split("\n");
    return lines.map((line) => {
      const { path, nodes, status, endedAt, took } = JSON.parse(line);
      const endedAtMs = Number(endedAt) * 1_000;
      return {
        path,
        status,
        nodes: nodes.split(/, | : /),
        beganAt: endedAtMs - Number(took) * 1_000,
        endedAt: endedAtMs,
      };
    });
  }

  /** The nodes whose answers ended before they were complete, one for each such answer. */
  cut(): string[] {
    const lines = readFileSync(join(this.#directory, "error.log"), "utf8").split("\n");
    return lines.flatMap((line) => (CUT.exec(line) ?? RESET.exec(line))?.[1] ?? []);
  }

  async end(): Promise<void> {
    await Promise.all(this.nodes.map((_, index) => this.endNode(index, "SIGTERM")));
    await this.#redis.close();
    const nginx = this.#nginx;
    if (nginx === undefined || nginx.exitCode !== null) return;
    const ended = new Promise((resolve) => nginx.once("exit", resolve));
    nginx.kill("SIGTERM");
    await ended;
  }

  async #startNginx(): Promise<void> {
    const listens = new URL(this.baseUrl).host;
    const hosts = this.nodes.map(({ url }) => new URL(url).host);
    await writeFile(join(this.#directory, "site.conf"), nginxSite(readFileSync(EXAMPLE, "utf8"), listens, hosts));
    const format = `'{"path":"$uri","nodes":"$upstream_addr","status":$status,"endedAt":"$msec","took":"$request_time"}'`;
    const log = `log_format trial escape=json ${format}; access_log ${join(this.#directory, "access.log")} trial;`;
    await writeFile(join(this.#directory, "nginx.conf"), nginxConfiguration(this.#directory, { log }));
    const words = ["-p", this.#directory, "-c", join(this.#directory, "nginx.conf")];
    this.#nginx = spawn("nginx", [...words, "-e", join(this.#directory, "error.log")], { stdio: "ignore" });
    for (let attempts = 0; ; attempts += 1) {
      const answer = await fetch(`${this.baseUrl}/models`).catch(() => undefined);
      if (answer?.status === 401) return;
      if (attempts === START_ATTEMPTS) throw new Error("nginx did not start");
      await sleep(START_INTERVAL_MS);
    }
  }
}
