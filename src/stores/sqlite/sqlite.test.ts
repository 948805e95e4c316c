import { rmSync } from "node:fs";
import { mkdtemp } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { DatabaseSync } from "node:sqlite";
import { type ContractStore, storeContract } from "../../../test/stores/contract.ts";
import type { Store } from "../store.ts";
import { openSqliteStore } from "./sqlite.ts";

storeContract("SQLite", openForContract);

async function openForContract(): Promise<ContractStore> {
  const dataDir = await mkdtemp(join(tmpdir(), "tollgate-sqlite-"));
  const stores: Store[] = [await openSqliteStore({ dataDir, role: "service" })];
  const beside = new DatabaseSync(join(dataDir, "tollgate.db"), { timeout: 60_000 });
  beside.exec("PRAGMA ignore_check_constraints = ON");
  return {
    store: stores[0] as Store,
    async openAnother() {
      const another = await openSqliteStore({ dataDir, role: "command" });
      stores.push(another);
      return another;
    },
    async write(statement) {
      beside.exec(statement);
    },
    async tamper(statement) {
      beside.exec(statement);
    },
    async read(statement) {
      return beside
        .prepare(statement)
        .all()
        .map((row) => ({ ...row }));
    },
    async close() {
      beside.close();
      for (const store of stores.reverse()) await store.close();
      rmSync(dataDir, { recursive: true });
    },
  };
}
