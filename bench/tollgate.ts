import { mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import pg from "pg";
import { makePostgresServer, type PostgresServer } from "../test/support/postgres-server.ts";
import type { Audit, Contender } from "./contenders.ts";
import { endpointOf } from "./endpoints.ts";
import {
  EMBEDDING_PRICE,
  MODEL_EMBEDDING,
  MODEL_EMBEDDING_BASE64,
  MODEL_STREAMED,
  MODEL_UNSTREAMED,
  PRICE,
} from "./payload.ts";
import { freePort, type Processes, run } from "./processes.ts";

export const CHECKOUT = dirname(dirname(fileURLToPath(import.meta.url)));
const CREDITS = 10_000_000;
/** The options of Node, and the environment, with which `npm start`, the image and the systemd unit start the service. */
export const NODE_FLAGS = ["--max-semi-space-size=16"];
export const MEMORY_SETTINGS = { MALLOC_ARENA_MAX: "2" };

/** Tollgate as it is run for a benchmark. */
export interface Variant {
  name: string;
  /** Folder of this checkout, of another one, or of an installed package. */
  checkout: string;
  workers: number;
  /** Without one its store is SQLite. */
  database?: Database;
  /** Organizations, with a token each. */
  organizations: number;
  /** Budgets that cover each request of the first organization. */
  budgets: number;
}

/** A database on a server of the run. */
export interface Database {
  url: string;
  /** The server's first process. */
  pid: number;
}

/** A PostgreSQL that the run starts when a store asks for it. It writes to its disk as a real one does. */
export class Databases {
  #server: Promise<PostgresServer> | undefined;
  #made = 0;

  async make(): Promise<Database> {
    this.#server ??= makePostgresServer({ fsync: "on" });
    const { url, data } = await this.#server;
    this.#made += 1;
    const name = `bench_${this.#made}`;
    const client = new pg.Client(url);
    await client.connect();
    await client.query(`CREATE DATABASE ${name}`);
    await client.end();
    const [pid] = readFileSync(join(data, "postmaster.pid"), "utf8").split("\n");
    return { url: url.replace(/\/\w+$/, `/${name}`), pid: Number(pid) };
  }

  async remove(): Promise<void> {
    await (await this.#server)?.remove();
  }
}

/** Starts Tollgate as it is run: durable commits, logging as by default, limits out of reach. */
export async function startTollgate(
  processes: Processes,
  upstream: string,
  folder: string,
  { name, checkout, workers, database, organizations, budgets }: Variant,
): Promise<Contender> {
  const url = `http://127.0.0.1:${await freePort()}`;
  mkdirSync(folder, { recursive: true });
  const file = join(folder, "tollgate.yaml");
  writeFileSync(file, JSON.stringify(configurationOf(upstream), undefined, 2));
  const main = join(checkout, "bin", "tollgate.js");
  const common = ["--config", file, "--data-dir", join(folder, "data")];
  const serve = ["serve", "--port", new URL(url).port, ...(workers === 1 ? [] : ["--workers", String(workers)])];
  const environment = database === undefined ? {} : { DATABASE_URL: database.url };
  const words = [process.execPath, ...NODE_FLAGS, main, ...serve, ...common];
  const settings = { ...environment, ...MEMORY_SETTINGS };
  const program = await processes.start(name.replaceAll(/\W+/g, "-"), words, `${url}/readyz`, settings);
  const command = async <T>(...words: string[]): Promise<T> => {
    const env = { ...process.env, ...environment };
    return JSON.parse(await run(process.execPath, [main, ...words, ...common, "--json"], { env })) as T;
  };
  // By commands, so that a service that has only started has answered no request.
  const { id } = await command<{ id: string }>("org", "create", "Bench", "--credits", String(CREDITS));
  const headers = [headersOf((await command<{ token: string }>("token", "create", "--org", id)).token)];
  for (let number = 1; number <= budgets; number += 1) {
    const terms = ["--name", `Bench ${number}`, "--window", "day", "--amount", String(CREDITS)];
    await command("budget", "create", "--org", id, ...terms);
  }
  if (organizations > 1) {
    const { token } = await command<{ token: string }>("admin", "token");
    headers.push(...(await makeTokens(url, token, organizations - 1)));
  }
  return {
    name,
    program,
    pids: [program.pid, ...(database === undefined ? [] : [database.pid])],
    address: (endpoint) => ({ url: `${url}/v1/${endpointOf(endpoint).path}`, headers }),
    audit: async () => {
      const { ok, events: charges } = await command<{ ok: boolean; events: number }>("ledger", "verify");
      return { ok, charges, ...(await creditsOf(url, headers)) };
    },
  };
}

type Headers = Record<string, string>;

const headersOf = (token: string): Headers => ({
  "content-type": "application/json",
  authorization: `Bearer ${token}`,
});

/** Creates organizations with credits, and a token of each, with the admin API. Resolves with the headers of each token. */
async function makeTokens(url: string, adminToken: string, count: number): Promise<Headers[]> {
  const create = async (path: string, body: object) => {
    const request = { method: "POST", headers: headersOf(adminToken), body: JSON.stringify(body) };
    const answer = await fetch(`${url}/admin/v1${path}`, request);
    if (answer.status !== 201) throw new Error(`${path} was answered ${answer.status}: ${await answer.text()}`);
    return (await answer.json()) as { id: string; secret: string };
  };
  const tokens: Headers[] = [];
  for (let number = 1; number <= count; number += 1) {
    const { id } = await create("/organizations", { name: `Bench ${number}` });
    await create(`/organizations/${id}/grants`, { amount: CREDITS });
    const { secret } = await create("/tokens", { organization_id: id, name: "bench" });
    tokens.push(headersOf(secret));
  }
  return tokens;
}

/** Returns the sums of the charges and holds of all organizations. */
async function creditsOf(url: string, tokens: readonly Headers[]): Promise<Omit<Audit, "ok" | "charges">> {
  const sum = { chargedMicroCredits: 0, heldMicroCredits: 0 };
  const micro = (credits: number | undefined) => Math.round((credits ?? Number.NaN) * 1e6);
  for (const headers of tokens) {
    const usage = (await (await fetch(`${url}/v1/usage`, { headers })).json()) as Record<string, number>;
    sum.chargedMicroCredits += micro(usage.creditsUsed);
    sum.heldMicroCredits += micro(usage.creditsHeld);
  }
  return sum;
}

function configurationOf(upstream: string): object {
  const provider = (id: string, baseUrl: string) => ({ id, kind: "openai-compatible", baseUrl, apiKey: "bench" });
  const model = (id: string, from: string) => ({
    id,
    routes: [{ provider: from, model: "upstream-model" }],
    price: PRICE,
    contextWindow: 128_000,
    cutoffDate: "2026-01-01",
  });
  const embedding = (id: string, from: string) => ({
    id,
    category: "embedding",
    routes: [{ provider: from, model: "upstream-model" }],
    // Older checkouts demand a price of the output.
    price: { ...EMBEDDING_PRICE, output: "0" },
    contextWindow: 8_192,
  });
  const most = 1_000_000_000;
  return {
    limits: { requestsPerMinute: most, tokensPerMinute: most, concurrentRequests: 10_000 },
    providers: [
      provider("unstreamed", `${upstream}/v1`),
      provider("streamed", `${upstream}/streamed/v1`),
      provider("base64", `${upstream}/base64/v1`),
    ],
    models: [
      model(MODEL_UNSTREAMED, "unstreamed"),
      model(MODEL_STREAMED, "streamed"),
      embedding(MODEL_EMBEDDING, "unstreamed"),
      embedding(MODEL_EMBEDDING_BASE64, "base64"),
    ],
  };
}
