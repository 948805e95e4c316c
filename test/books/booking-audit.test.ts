import { randomBytes } from "node:crypto";
import { rmSync } from "node:fs";
import { mkdtemp } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { v7 } from "uuid";
import { describe, expect, test } from "vitest";
import { auditLogOver } from "../../src/admin/audit.ts";
import type { Transition } from "../../src/credits/books.ts";
import { StoreUnavailableError } from "../../src/errors.ts";
import { grantCredits, revokeCredits } from "../../src/operations/credits.ts";
import { openPostgresStore } from "../../src/stores/postgres/postgres.ts";
import type { Books } from "../../src/stores/queries/books.ts";
import { openSqliteStore } from "../../src/stores/sqlite/sqlite.ts";
import type { Store } from "../../src/stores/store.ts";
import { keepLog } from "../support/log.ts";
import { ORGANIZATION, openLedger } from "../support/open-ledger.ts";
import { createTestDatabase, hasPostgres } from "../support/postgres.ts";

describe("a booking whose answer is lost after the commit has one audit entry", () => {
  test("on SQLite", async () => {
    const dataDir = await mkdtemp(join(tmpdir(), "tollgate-audit-"));
    const store = await openSqliteStore({ dataDir: join(dataDir, "store"), role: "service" });
    await play(store, dataDir);
    await store.close();
    rmSync(dataDir, { recursive: true });
  });

  test.skipIf(!hasPostgres)("on PostgreSQL", async () => {
    const dataDir = await mkdtemp(join(tmpdir(), "tollgate-audit-"));
    const database = await createTestDatabase();
    const store = await openPostgresStore({ url: database.url, role: "service" });
    await play(store, dataDir);
    await store.close();
    await database.drop();
    rmSync(dataDir, { recursive: true });
  });
});

/** Creates books that commit a batch and lose its answer, a given number of times. */
function losing(books: Books, loss: { batches: number }): Books {
  return {
    ...books,
    async apply<T extends Transition[]>(...[durability, transitions]: Parameters<typeof books.apply<T>>) {
      const outcomes = await books.apply(durability, transitions);
      if (loss.batches === 0) return outcomes;
      loss.batches -= 1;
      throw Object.assign(new StoreUnavailableError("lost"), { mayBeBooked: true });
    },
  };
}

async function play(store: Store, dataDir: string): Promise<void> {
  await store.accounts.insertOrganization({ id: ORGANIZATION, name: "A", kind: "standard", createdAtMs: 0 });
  const times = { clock: Date.now, newId: () => v7() };
  const audit = auditLogOver({ rows: store.admin, ...times });
  const recorded = async () => {
    const filter = { organizationId: ORGANIZATION, action: null, cursor: null, limit: 100 };
    return (await audit.entries(filter)).data.map(({ action, subject_id, after }) => [
      action,
      subject_id,
      after?.amount,
    ]);
  };
  const loss = { batches: 0 };
  const actor = { kind: "operator" as const, id: "adm_1", name: "Ada", address: "::1", requestId: null };
  const open = async (directory: string, settleRetryMs: number) => {
    const books = losing(store.books, loss);
    const ledger = await openLedger({ books, dataDir: join(dataDir, directory), log: keepLog(), settleRetryMs });
    return { ledger, core: { ...store, ...times, book: ledger.book, random: randomBytes, actor } };
  };
  const patient = await open("patient", 10_000);
  const impatient = await open("impatient", 0);

  // The ledger repeats the transition itself.
  loss.batches = 1;
  const { id: grantId } = await grantCredits(patient.core, { organizationId: ORGANIZATION, amount: 5_000_000n });
  expect(loss.batches).toBe(0);
  expect(await recorded()).toEqual([["credits.grant", grantId, 5]]);

  // The caller repeats the request, after an error and perhaps with another process.
  loss.batches = 1;
  const revoke = { organizationId: ORGANIZATION, amount: null, grantId: null, reference: "chargeback", note: null };
  await expect(revokeCredits(impatient.core, revoke)).rejects.toMatchObject({ mayBeBooked: true });
  const repeated = await revokeCredits(patient.core, revoke);
  expect(repeated).toMatchObject({ amount: 5, repeated: true });
  expect(await recorded()).toEqual([
    ["credits.revoke", repeated.id, 5],
    ["credits.grant", grantId, 5],
  ]);
  await patient.ledger.stop();
  await impatient.ledger.stop();
}
