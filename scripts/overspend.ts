/**
 * `npm run overspend -- --target URL [options]` measures a running gateway: overspend/README.md. Without `--target` it starts
 * this checkout's service in a temporary directory and measures it, with kills; `--store postgres` starts a PostgreSQL for it, and
 * `--nodes 2` another node beside the one that is killed.
 */
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { BenchmarkError } from "../overspend/gateway.ts";
import { runOverspend } from "../overspend/main.ts";
import { GatewayProcess } from "../overspend/process.ts";
import { makePostgresServer } from "../test/support/postgres-server.ts";
import { freePort } from "../test/support/service.ts";

const MAIN = fileURLToPath(new URL("../src/main.ts", import.meta.url));
const MODEL = "overspend";

/** Configuration of a service whose model leads to the benchmark's upstream: 1 credit per million tokens in, 1,000 out. */
function configurationFor(upstream: string): object {
  return {
    providers: [{ id: MODEL, kind: "openai-compatible", baseUrl: `http://${upstream}/v1` }],
    models: [
      {
        ...{ id: MODEL, routes: [{ provider: MODEL, model: MODEL }], price: { input: 1, output: 1000 } },
        ...{ contextWindow: 131_072, cutoffDate: "2026-01-01" },
      },
    ],
  };
}

/** A service that can be started: its address, its data directory, and the command. */
interface OwnNode {
  url: string;
  data: string;
  command: string;
}

async function makeNode(
  directory: string,
  name: string,
  config: string,
  databaseUrl: string | undefined,
): Promise<OwnNode> {
  const port = await freePort();
  const data = join(directory, name);
  const serve = [process.execPath, MAIN, "serve", "--port", String(port), "--config", config, "--data-dir", data];
  const environment = databaseUrl === undefined ? "" : `DATABASE_URL=${quote(databaseUrl)} `;
  return { url: `http://127.0.0.1:${port}`, data, command: `${environment}exec ${serve.map(quote).join(" ")}` };
}

const quote = (word: string) => `'${word.replaceAll("'", "'\\''")}'`;

/** Starts the service of this checkout and measures it; resolves with the exit code. */
async function measureOwnService({ store, nodes, words }: OwnOrder): Promise<number> {
  const directory = await mkdtemp(join(tmpdir(), "tollgate-overspend-"));
  const database = store === "postgres" ? await makePostgresServer({ fsync: "on" }) : undefined;
  const others: GatewayProcess[] = [];
  try {
    const upstream = `127.0.0.1:${await freePort()}`;
    const config = join(directory, "tollgate.yaml");
    await writeFile(config, JSON.stringify(configurationFor(upstream)));
    const made: OwnNode[] = [];
    for (let index = 0; index < nodes; index += 1) {
      made.push(await makeNode(directory, `data-${index}`, config, database?.url));
    }
    const [killed, ...kept] = made;
    if (killed === undefined) throw new Error("There is no node");
    for (const { command, url } of kept) {
      const other = new GatewayProcess({ command }, new URL("/readyz", url));
      others.push(other);
      await other.start();
    }
    // The node that starts first on the database writes the token.
    const { data } = kept[0] ?? killed;
    return await runOverspend([
      ...["--target", killed.url, "--admin-token-file", join(data, "admin-token"), "--command", killed.command],
      ...["--model", MODEL, "--upstream", upstream, ...kept.flatMap(({ url }) => ["--node", url]), ...words],
    ]);
  } finally {
    for (const other of others) await other.end();
    await database?.remove();
    await rm(directory, { recursive: true, force: true });
  }
}

interface OwnOrder {
  store: string;
  nodes: number;
  /** Options that the benchmark itself takes. */
  words: string[];
}

/** Takes the options of this script off the words of the command line. Throws an error that says what is allowed. */
function readOwnOrder(words: string[]): OwnOrder {
  const rest = [...words];
  const take = (option: string, fallback: string, allowed: string[]) => {
    const place = rest.indexOf(option);
    const found = place === -1 ? fallback : (rest.splice(place, 2)[1] ?? "nothing");
    if (!allowed.includes(found))
      throw new BenchmarkError(`${option}: found ${found}; allowed: ${allowed.join(", ")}.`);
    return found;
  };
  const store = take("--store", "sqlite", ["sqlite", "postgres"]);
  // Only processes on PostgreSQL share their books.
  const nodes = Number(take("--nodes", "1", store === "postgres" ? ["1", "2", "3"] : ["1"]));
  return { store, nodes, words: rest };
}

async function run(words: string[]): Promise<number> {
  if (words.some((word) => word === "--help" || word.startsWith("--target"))) return runOverspend(words);
  try {
    return await measureOwnService(readOwnOrder(words));
  } catch (error) {
    if (!(error instanceof BenchmarkError)) throw error;
    console.error(error.message);
    return 2;
  }
}

process.exitCode = await run(process.argv.slice(2));
