import { spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { fileURLToPath } from "node:url";
import { describe, expect, test } from "vitest";
import { openPostgresStore } from "../../src/stores/postgres/postgres.ts";
import { openSqliteStore } from "../../src/stores/sqlite/sqlite.ts";
import type { Store } from "../../src/stores/store.ts";
import { grantOf, one } from "../stores/fixture.ts";
import { seedOfRun } from "../support/counts.ts";
import { createTestDatabase, hasPostgres } from "../support/postgres.ts";

const NODE = fileURLToPath(new URL("statement-node.ts", import.meta.url));
const ORGANIZATIONS = 40;
const KILLS = 6;
const FROM_MS = Date.UTC(2026, 4, 3);

interface Place {
  kind: Store["kind"];
  place: string;
  /** Nodes that run at once: a SQLite store has one. */
  nodes: number;
  open(): Promise<Store>;
}

/** Creates organizations whose first bookings were months ago. */
async function fill(store: Store): Promise<string[]> {
  const ids = Array.from({ length: ORGANIZATIONS }, (_, index) => `org_${String(index).padStart(3, "0")}`);
  for (const id of ids) {
    await store.accounts.insertOrganization({ id, name: id, kind: "standard", createdAtMs: FROM_MS });
    await one(store.books, grantOf(id, 5n), "durable");
  }
  return ids;
}

/** Runs a node, and kills it after a time unless it ends before. Resolves with whether it ended by itself. */
async function runNode({ kind, place }: Place, ids: readonly string[], killAfterMs: number | null): Promise<boolean> {
  const node = spawn(process.execPath, [NODE, kind, place, ...ids], { stdio: ["ignore", "pipe", "inherit"] });
  const end = once(node, "exit");
  await Promise.race([once(node.stdout, "data"), end]);
  if (killAfterMs !== null) {
    await Promise.race([sleep(killAfterMs), end]);
    node.kill("SIGKILL");
  }
  const [code] = await end;
  return code === 0;
}

async function expectNoGap(at: Place, move: (store: Store) => Promise<void>): Promise<void> {
  const store = await at.open();
  const ids = await fill(store);
  await move(store);
  await store.close();
  let seed = seedOfRun();
  for (let kill = 0; kill < KILLS; kill += 1) {
    const nodes = Array.from({ length: at.nodes }, (_, index) => {
      seed = (seed * 1_103_515_245 + 12_345) % 2 ** 31;
      return runNode(at, index === 0 ? ids : ids.toReversed(), seed % 60);
    });
    await Promise.all(nodes);
  }
  for (let ended = false; !ended; ) ended = await runNode(at, ids, null);
  const after = await at.open();
  const rows = await after.monthlyStatements.list({ organizationId: null, month: null, before: null, limit: 10_000 });
  expect(rows.map(({ number }) => number)).toEqual(rows.map((_, index) => rows.length - index));
  const digests = await after.books.monthDigests(ids[0] ?? "", {});
  expect(digests.length).toBeGreaterThan(3);
  expect(rows).toHaveLength(digests.length * ORGANIZATIONS);
  for (const id of ids) expect((await after.books.verify(id)).violations).toEqual([]);
  expect((await after.books.verifyStore()).list).toEqual([]);
  await after.close();
}

describe("numbers of statements have no gap, with nodes that are killed at any moment", () => {
  test("on SQLite", async () => {
    const dataDir = await mkdtemp(join(tmpdir(), "tollgate-statements-"));
    const open = () => openSqliteStore({ dataDir, role: "service" });
    const { DatabaseSync } = await import("node:sqlite");
    await expectNoGap({ kind: "sqlite", place: dataDir, nodes: 1, open }, async () => {
      const beside = new DatabaseSync(join(dataDir, "tollgate.db"), { timeout: 60_000 });
      beside.exec(`update credit_grant set created_at = ${FROM_MS}, effective_at = ${FROM_MS}`);
      beside.close();
    });
    await rm(dataDir, { recursive: true });
  }, 600_000);

  test.skipIf(!hasPostgres)(
    "on PostgreSQL, with two nodes at once",
    async () => {
      const database = await createTestDatabase();
      const open = () => openPostgresStore({ url: database.url, role: "service" });
      const { default: pg } = await import("pg");
      await expectNoGap({ kind: "postgres", place: database.url, nodes: 2, open }, async () => {
        const client = new pg.Client({ connectionString: database.url });
        await client.connect();
        await client.query(`update credit_grant set created_at = ${FROM_MS}, effective_at = ${FROM_MS}`);
        await client.end();
      });
      await database.drop();
    },
    600_000,
  );
});
