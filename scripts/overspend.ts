/**
 * `npm run overspend -- --target URL [options]` measures a running gateway: overspend/README.md. Without `--target` it starts
 * this checkout's service in a temporary directory and measures it, with kills; `--store postgres` starts a PostgreSQL for it.
 */
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { runOverspend } from "../overspend/main.ts";
import { makePostgresServer } from "../test/support/postgres-server.ts";
import { freePort } from "../test/support/service.ts";

const MAIN = fileURLToPath(new URL("../src/main.ts", import.meta.url));
const MODEL = "overspend";
const STORES = ["sqlite", "postgres"];

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

/** Starts the service of this checkout and measures it; resolves with the exit code. */
async function measureOwnService(store: string, words: string[]): Promise<number> {
  const directory = await mkdtemp(join(tmpdir(), "tollgate-overspend-"));
  const database = store === "postgres" ? await makePostgresServer({ fsync: "on" }) : undefined;
  try {
    const [port, upstreamPort] = [await freePort(), await freePort()];
    const upstream = `127.0.0.1:${upstreamPort}`;
    const config = join(directory, "tollgate.yaml");
    await writeFile(config, JSON.stringify(configurationFor(upstream)));
    const data = join(directory, "data");
    const serve = [process.execPath, MAIN, "serve", "--port", String(port), "--config", config, "--data-dir", data];
    const command = `${database === undefined ? "" : `DATABASE_URL='${database.url}' `}exec ${serve.map(quote).join(" ")}`;
    return await runOverspend([
      ...["--target", `http://127.0.0.1:${port}`, "--admin-token-file", join(data, "admin-token")],
      ...["--model", MODEL, "--upstream", upstream, "--command", command, ...words],
    ]);
  } finally {
    await database?.remove();
    await rm(directory, { recursive: true, force: true });
  }
}

const quote = (word: string) => `'${word.replaceAll("'", "'\\''")}'`;

async function run(words: string[]): Promise<number> {
  if (words.some((word) => word === "--help" || word.startsWith("--target"))) return runOverspend(words);
  const place = words.indexOf("--store");
  if (place === -1) return measureOwnService("sqlite", words);
  const store = words[place + 1] ?? "nothing";
  if (STORES.includes(store)) return measureOwnService(store, words.toSpliced(place, 2));
  console.error(`--store: found ${store}; allowed: ${STORES.join(", ")}.`);
  return 2;
}

process.exitCode = await run(process.argv.slice(2));
