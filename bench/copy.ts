/**
 * `node bench/copy.ts --rows 1000000`: how long the service pauses while `tollgate store copy` moves so many requests of 90 days
 * from SQLite to a PostgreSQL of its own, how long the whole copy and a backup of it take, and how much memory they need.
 */
import { readFileSync, rmSync, statSync } from "node:fs";
import { join } from "node:path";
import { DatabaseSync } from "node:sqlite";
import { parseArgs } from "node:util";
import { openSqliteStore } from "../src/stores/sqlite/sqlite.ts";
import { bulkStatements } from "../test/support/bulk.ts";
import { type Started, startTollgate } from "../test/support/command-line.ts";
import { makePostgresServer } from "../test/support/postgres-server.ts";
import { makeDirectory, makeOrganization, send, startProcess } from "../test/support/service.ts";

const ORGANIZATIONS = 10;
const DAYS_MS = 90 * 86_400_000;
const GRANTED = 1_000_000_000_000n;

const { values } = parseArgs({ options: { rows: { type: "string", default: "1000000" } } });
const rows = Math.floor(Number(values.rows) / ORGANIZATIONS);

async function fill(dataDir: string): Promise<void> {
  const { accounts, books, close } = await openSqliteStore({ dataDir, role: "command" });
  const beside = new DatabaseSync(join(dataDir, "tollgate.db"), { timeout: 5_000 });
  for (let number = 0; number < ORGANIZATIONS; number += 1) {
    const [organizationId, grantId] = [`org_bench${number}`, `grant_${number}`];
    await accounts.insertOrganization({ id: organizationId, name: "Bench", kind: "standard", createdAtMs: Date.now() });
    const terms = { effectiveAtMs: null, expiresAtMs: null, priority: 0, reference: null };
    await books.apply("durable", [{ kind: "grant", organizationId, grantId, amount: GRANTED, ...terms }]);
    const bulk = { organizationId, grantId, count: rows, fromMs: Date.now() - DAYS_MS, stepMs: DAYS_MS / rows };
    for (const statement of bulkStatements("sqlite", bulk)) beside.exec(statement);
  }
  beside.close();
  await close();
}

/** Resolves when a command has ended, with its duration and the memory that it used at most. */
async function measured(command: Started): Promise<string> {
  const startedAtMs = performance.now();
  let kibibytes = 0;
  const timer = setInterval(() => {
    try {
      const status = readFileSync(`/proc/${command.child.pid}/status`, "utf8");
      kibibytes = Number(/VmHWM\D+(\d+)/.exec(status)?.[1] ?? kibibytes);
    } catch {
      // It has ended.
    }
  }, 50);
  const { code, stderr } = await command.ended;
  clearInterval(timer);
  if (code !== 0) throw new Error(stderr);
  const seconds = ((performance.now() - startedAtMs) / 1_000).toFixed(1);
  return `${seconds} s, at most ${Math.round(kibibytes / 1_024)} MiB resident`;
}

const dataDir = await makeDirectory();
const server = await makePostgresServer();
await fill(dataDir);
console.log(
  `${rows * ORGANIZATIONS} requests, ${Math.round(statSync(join(dataDir, "tollgate.db")).size / 2 ** 20)} MiB`,
);
const before = await startProcess({ dataDir });
const { token } = await makeOrganization(before, "5");
const ask = { model: "sandbox/echo", messages: [{ role: "user", content: "hello" }] };
const status = async (service: { url: string }) => (await send(service, "/v1/chat/completions", token, ask)).status;
const copy = startTollgate(["store", "copy", "--to", server.url, "--data-dir", dataDir, "--wait"], dataDir);
const copied = measured(copy);
await copy.prints(/Stop the service now/);
if ((await status(before)) !== 200) throw new Error("the service did not answer beside the copy");
const stoppedAtMs = performance.now();
await before.end();
await copy.prints(/next/);
const after = await startProcess({ dataDir, databaseUrl: server.url, awaits: "/readyz" });
if ((await status(after)) !== 200) throw new Error("the service did not answer on the copy");
console.log(`pause, from the signal to the first answer: ${((performance.now() - stoppedAtMs) / 1_000).toFixed(1)} s`);
console.log(`locked: ${/pause +([\d.]+ s)/.exec(copy.stdout())?.[1]}`);
console.log(`the whole copy, with both verifications: ${await copied}`);
const words = ["store", "backup", join(dataDir, "backup.db"), "--data-dir", dataDir];
console.log(`backup: ${await measured(startTollgate(words, dataDir, { DATABASE_URL: server.url }))}`);
const restore = startTollgate(
  ["store", "restore", join(dataDir, "backup.db"), "--data-dir", join(dataDir, "to")],
  dataDir,
);
console.log(`restore: ${await measured(restore)}`);
await after.end();
await server.remove();
rmSync(dataDir, { recursive: true });
