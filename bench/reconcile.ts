/**
 * `node bench/reconcile.ts --store sqlite --rows 100000`: how long `tollgate reconcile` takes for so many requests and a
 * provider's CSV file of them, in which 1 % differ in five ways, the memory that it needs, and whether it finds each of
 * them. `--store postgres` makes a PostgreSQL of its own.
 */
import { execFile } from "node:child_process";
import { createWriteStream, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { DatabaseSync } from "node:sqlite";
import { Readable } from "node:stream";
import { pipeline } from "node:stream/promises";
import { parseArgs } from "node:util";
import pg from "pg";
import { openPostgresStore } from "../src/stores/postgres/postgres.ts";
import { openSqliteStore } from "../src/stores/sqlite/sqlite.ts";
import { bulkStatements, pastPartitions } from "../test/support/bulk.ts";
import { makePostgresServer } from "../test/support/postgres-server.ts";
import { BOOKED_COLUMNS, CSV_FLAGS, type Injected, providerCsv } from "../test/support/provider-books.ts";

const { values } = parseArgs({
  options: { store: { type: "string", default: "sqlite" }, rows: { type: "string", default: "100000" } },
});
const count = Number(values.rows);
const stepMs = 5_000;
const fromMs = Date.now() - stepMs * (count + 1_000);
const directory = mkdtempSync(join(tmpdir(), "tollgate-reconcile-"));
const dataDir = join(directory, "data");
const server = values.store === "postgres" ? await makePostgresServer() : undefined;
try {
  const store = server
    ? await openPostgresStore({ url: server.url, role: "service" })
    : await openSqliteStore({ dataDir, role: "service" });
  const organizationId = "org_bench";
  await store.accounts.insertOrganization({ id: organizationId, name: "Bench", kind: "standard", createdAtMs: fromMs });
  const terms = { effectiveAtMs: null, expiresAtMs: null, priority: 0, reference: null };
  const grant = { kind: "grant" as const, organizationId, grantId: "grant_bench", ...terms };
  await store.books.apply("durable", [{ ...grant, amount: 1_000n * BigInt(count) }]);
  const bulk = { organizationId, grantId: "grant_bench", count, fromMs, stepMs, columns: BOOKED_COLUMNS };
  if (server === undefined) {
    const books = new DatabaseSync(join(dataDir, "tollgate.db"), { timeout: 5_000 });
    for (const statement of bulkStatements("sqlite", bulk)) books.exec(statement);
    books.close();
  } else {
    const client = new pg.Client({ connectionString: server.url });
    await client.connect();
    for (const statement of [...pastPartitions(fromMs), ...bulkStatements("postgres", bulk)])
      await client.query(statement);
    await client.end();
  }
  await store.close();

  const injected: Injected = { onlyService: [], onlyProvider: [], tokens: [], cost: [], model: [] };
  const file = join(directory, "books.csv");
  await pipeline(Readable.from(providerCsv(count, { fromMs, stepMs }, injected)), createWriteStream(file));
  const config = join(directory, "tollgate.yaml");
  writeFileSync(config, server ? `database: ${JSON.stringify(server.url)}\n` : "{}\n");

  const words = ["reconcile", file, "--provider", "csv", "--upstream", "shop", ...CSV_FLAGS, "--config", config];
  const code = `
    process.argv.splice(1, 0, "tollgate");
    process.once("exit", () => {
      const { maxRSS, userCPUTime } = process.resourceUsage();
      console.error("used: at most " + Math.round(maxRSS / 1024) + " MiB resident, " + (userCPUTime / 1e6).toFixed(1) + " s of a core");
    });
    await import(${JSON.stringify(new URL("../src/main.ts", import.meta.url).href)});`;
  const startedAtMs = performance.now();
  const { stdout, stderr } = await new Promise<{ stdout: string; stderr: string }>((resolve) => {
    const node = ["--input-type=module", "--eval", code, "--", ...words, "--data-dir", dataDir, "--json"];
    execFile(process.execPath, node, { maxBuffer: 2 ** 28 }, (_error, out, err) =>
      resolve({ stdout: out, stderr: err }),
    );
  });
  const seconds = (performance.now() - startedAtMs) / 1_000;
  const { counts, differences } = JSON.parse(stdout) as {
    counts: object;
    differences: { kind: string; fields: string[] }[];
  };
  const nameOf = ({ kind, fields }: { kind: string; fields: string[] }) =>
    kind === "different" ? ({ output: "tokens" }[fields.join()] ?? fields.join()) : kind;
  const found = Object.groupBy(differences, nameOf);
  const missed = Object.entries(injected).filter(([name, ids]) => found[name]?.length !== ids.length);
  console.log(`${values.store}: ${count} requests, ${JSON.stringify(counts)}`);
  console.log(`${seconds.toFixed(1)} s, ${/used: (.*)/.exec(stderr)?.[1]}`);
  console.log(
    missed.length === 0 ? `found each of ${differences.length} differences` : `MISSED: ${missed.map(([name]) => name)}`,
  );
  if (missed.length > 0) process.exitCode = 1;
} finally {
  await server?.remove();
  rmSync(directory, { recursive: true });
}
