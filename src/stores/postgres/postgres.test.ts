import pg from "pg";
import { describe } from "vitest";
import { type ContractStore, storeContract } from "../../../test/stores/contract.ts";
import { createTestDatabase, hasPostgres } from "../../../test/support/postgres.ts";
import type { Store } from "../store.ts";
import { openPostgresStore } from "./postgres.ts";

/** Long, because 1,000 concurrent transitions share a few connections and one balance. */
const TIMEOUTS = { connectMs: 120_000, lockMs: 30_000 };

describe.skipIf(!hasPostgres)("on a real server", () => {
  storeContract("PostgreSQL", openForContract);
});

async function openForContract(): Promise<ContractStore> {
  const database = await createTestDatabase();
  const open = () => openPostgresStore({ url: database.url, role: "service", timeouts: TIMEOUTS });
  const stores: Store[] = [await open()];
  const beside = new pg.Client({ connectionString: database.url });
  await beside.connect();
  let hasChecks = true;
  return {
    store: stores[0] as Store,
    async openAnother() {
      const another = await open();
      stores.push(another);
      return another;
    },
    async write(statement) {
      await beside.query(statement);
    },
    async tamper(statement) {
      if (hasChecks) await dropChecks(beside);
      hasChecks = false;
      await beside.query(statement);
    },
    async read(statement) {
      const { rows } = await beside.query<Record<string, unknown>>({ text: statement, types: NUMBERS });
      return rows;
    },
    async close() {
      await beside.end();
      for (const store of stores) await store.close();
      await database.drop();
    },
  };
}

const NUMBERS = { getTypeParser: (type: number) => (type === pg.types.builtins.INT8 ? Number : String) };

async function dropChecks(client: pg.Client): Promise<void> {
  const { rows } = await client.query<{ statement: string }>(
    `SELECT format('ALTER TABLE %s DROP CONSTRAINT %I', conrelid::regclass, conname) AS statement
     FROM pg_constraint WHERE contype = 'c' AND conrelid <> 0 AND coninhcount = 0`,
  );
  for (const { statement } of rows) await client.query(statement);
}
