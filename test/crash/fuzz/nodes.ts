import { mkdir, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { type ServiceProcess, startProcess } from "../../support/service.ts";
import type { StoreKind } from "../place.ts";
import { listedPrice, modelsAt, VARIANT_COUNT } from "./prices.ts";
import type { FuzzUpstream } from "./upstream.ts";

const UNLIMITED = { requestsPerMinute: 1_000_000, tokensPerMinute: 1_000_000_000, concurrentRequests: 10_000 };
/** Holds live long enough that none expires on a busy machine, and short enough that a killed service's end soon. */
const LEDGER = { holdSeconds: 24, renewSeconds: 2, sweepSeconds: 2, recoverySeconds: 60 };
const LOOK_EVERY_MS = 20;

/** A time for which a request may be admitted at some prices. */
interface Period {
  variant: number;
  fromMs: number;
  toMs: number;
}

/** One or two services on the same store, which are killed, started and reloaded. */
export class Nodes {
  /** Directory of each node. */
  readonly #directories: string[] = [];
  readonly #services: (ServiceProcess | undefined)[] = [];
  readonly #upstream: FuzzUpstream;
  readonly #database: string | undefined;
  #variant = 0;
  #printed = "";
  readonly periods: Period[] = [{ variant: 0, fromMs: 0, toMs: Number.POSITIVE_INFINITY }];
  /** Times at which each node was killed. */
  readonly kills: { node: number; at: number }[] = [];
  reloads = 0;
  #token = "";
  #isStopped = false;

  private constructor(upstream: FuzzUpstream, database: string | undefined) {
    this.#upstream = upstream;
    this.#database = database;
  }

  /** Starts the services in folders of a directory. */
  static async start(directory: string, upstream: FuzzUpstream, database: string | undefined): Promise<Nodes> {
    const nodes = new Nodes(upstream, database);
    const count = database === undefined ? 1 : 2;
    for (let node = 0; node < count; node += 1) {
      const dataDir = join(directory, `node-${node}`);
      await mkdir(dataDir, { recursive: true });
      nodes.#directories.push(dataDir);
      await nodes.#start(node);
    }
    return nodes;
  }

  get count(): number {
    return this.#directories.length;
  }

  get store(): StoreKind {
    return this.#database === undefined ? "sqlite" : "postgres";
  }

  /** The first service, for commands and the admin API. */
  get first(): ServiceProcess {
    const [service] = this.#services;
    if (service === undefined) throw new Error("no service runs");
    return service;
  }

  /** The path of the SQLite file, or the address of the database. */
  get place(): string {
    return this.#database ?? join(this.#directories[0] ?? "", "tollgate.db");
  }

  /** Sets the token with which the list of models is read. */
  readModelsWith(token: string): void {
    this.#token = token;
  }

  /** Resolves with a running service: this node or, if that is down, the next one. Rejects once all are stopped. */
  async running(node: number): Promise<{ node: number; baseUrl: string }> {
    while (!this.#isStopped) {
      for (const index of [node, (node + 1) % this.count]) {
        const service = this.#services[index];
        if (service !== undefined) return { node: index, baseUrl: service.baseUrl };
      }
      await sleep(LOOK_EVERY_MS);
    }
    throw new Error("the services are stopped");
  }

  /** Kills a node and starts it again on its directory. */
  async restart(node: number): Promise<void> {
    const service = this.#services[node];
    if (service === undefined) return;
    this.#services[node] = undefined;
    this.kills.push({ node, at: Date.now() });
    await service.end("SIGKILL");
    this.#printed += service.output();
    await this.#start(node);
  }

  /** Replaces the prices of all nodes, in their order. A request is admitted at the old or the new ones meanwhile. */
  async reload(): Promise<void> {
    this.reloads += 1;
    this.#variant = (this.#variant + 1) % VARIANT_COUNT;
    const last = this.periods.at(-1);
    this.periods.push({ variant: this.#variant, fromMs: Date.now(), toMs: Number.POSITIVE_INFINITY });
    for (const node of this.#directories.keys()) {
      await this.#write(node);
      this.#services[node]?.child.kill("SIGHUP");
    }
    for (const node of this.#directories.keys()) await this.#untilReloaded(node);
    if (last !== undefined) last.toMs = Date.now();
  }

  /** Stops all services. Returns everything that they printed. */
  async stop(signal: NodeJS.Signals): Promise<string> {
    this.#isStopped = true;
    for (const service of this.#services) {
      await service?.end(signal);
      this.#printed += service?.output() ?? "";
    }
    this.#services.fill(undefined);
    return this.#printed;
  }

  async #start(node: number): Promise<void> {
    const dataDir = this.#directories[node] ?? "";
    this.#services[node] = await startProcess({ dataDir, config: this.#config(), awaits: "/readyz" });
  }

  /** Resolves when a node lists the new prices, or is down: it starts with them. */
  async #untilReloaded(node: number): Promise<void> {
    for (;;) {
      const service = this.#services[node];
      if (service === undefined) return;
      const listed = await listedBy(service, this.#token).catch(() => undefined);
      if (listed === Number(listedPrice(this.#variant))) return;
      await sleep(LOOK_EVERY_MS);
    }
  }

  async #write(node: number): Promise<void> {
    const config: { server?: object } = this.#config();
    const server = { overload: { eventLoopDelayMs: 0 }, ...config.server };
    await writeFile(join(this.#directories[node] ?? "", "tollgate.yaml"), JSON.stringify({ ...config, server }));
  }

  #config(): object {
    const kinds = {
      chat: "openai-compatible",
      messages: "anthropic",
      responses: "xai",
      embeddings: "openai-compatible",
    };
    return {
      server: { drainSeconds: 60 },
      ...(this.#database !== undefined && { database: this.#database }),
      log: { level: "warn" },
      limits: UNLIMITED,
      ledger: LEDGER,
      retention: { requestMonths: 1 },
      providers: Object.entries(kinds).map(([id, kind]) => {
        return { id, kind, baseUrl: this.#upstream.baseUrl(id as "chat"), apiKey: "k" };
      }),
      models: modelsAt(this.#variant),
    };
  }
}

/** Reads the price of an embedding from the list of models. */
async function listedBy({ baseUrl }: ServiceProcess, token: string): Promise<number> {
  const answer = await fetch(`${baseUrl}/models/embeddings`, { headers: { authorization: `Bearer ${token}` } });
  const { pricing_details } = (await answer.json()) as { pricing_details: { input: number | string } };
  return Number(pricing_details.input);
}
