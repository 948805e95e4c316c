import { rmSync } from "node:fs";
import { mkdtemp } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { describe, expect, test } from "vitest";
import { type AllowanceRow, periodAt } from "../../src/credits/allowance.ts";
import { closeAllowance, grantAllowances } from "../../src/ledger/allowances.ts";
import type { BookCredits } from "../../src/ledger/commit-queue.ts";
import { openPostgresStore } from "../../src/stores/postgres/postgres.ts";
import { openSqliteStore } from "../../src/stores/sqlite/sqlite.ts";
import type { Store } from "../../src/stores/store.ts";
import { createTestDatabase, hasPostgres } from "../support/postgres.ts";

const DAY_MS = 86_400_000;
/** Less than the minute by which grants are booked ahead. */
const SOON_MS = 55_000;

describe("months are granted", () => {
  test("on SQLite", async () => {
    const dataDir = await mkdtemp(join(tmpdir(), "tollgate-allowances-"));
    const first = await openSqliteStore({ dataDir, role: "service" });
    const second = await openSqliteStore({ dataDir, role: "command" });
    await play(first, second);
    await second.close();
    await first.close();
    rmSync(dataDir, { recursive: true });
  });

  test.skipIf(!hasPostgres)("on PostgreSQL", async () => {
    const database = await createTestDatabase();
    // Without the ledger's queues, a batch that does not get its lock in time would fail.
    const open = () => openPostgresStore({ url: database.url, role: "service", timeouts: { lockMs: 30_000 } });
    const [first, second] = [await open(), await open()];
    await play(first, second);
    await first.close();
    await second.close();
    await database.drop();
  });
});

const bookIn = ({ books }: Store): BookCredits => {
  return async (transition) => (await books.apply("durable", [transition]))[0];
};
/** The part of a node's sweep that concerns grants. */
const sweep = (store: Store) => grantAllowances({ allowances: store.allowances, book: bookIn(store) });

async function grantsOf({ books }: Store, organizationId: string) {
  const entries = await books.statement(organizationId, { after: null, limit: 100 });
  return entries.flatMap((entry) => (entry.kind === "grant" ? [entry.grant] : []));
}

async function play(first: Store, second: Store): Promise<void> {
  let made = 0;
  const organization = async (terms: Partial<AllowanceRow>): Promise<AllowanceRow> => {
    const organizationId = `org_${++made}`;
    await first.accounts.insertOrganization({ id: organizationId, name: "A", kind: "standard", createdAtMs: 0 });
    const atMs = terms.anchorAtMs ?? Date.now() - 100 * DAY_MS;
    const row = { organizationId, id: `allowance_${made}`, amount: 10n, priority: 0, lapses: true, createdAtMs: 0 };
    const allowance = { ...row, reference: null, anchorAtMs: atMs, nextAtMs: atMs, endedAtMs: null, ...terms };
    await first.allowances.insert(allowance);
    return allowance;
  };
  const lapsing = await organization({});
  const staying = await organization({ lapses: false });
  const soon = await organization({ anchorAtMs: Date.now() + SOON_MS });
  const far = await organization({ anchorAtMs: Date.now() + 10 * DAY_MS });
  const ended = await organization({});
  await first.allowances.end(ended, Date.now());

  // A node died after the grant and before the allowance advanced: the others reach the same result.
  const { allowances, books } = first;
  const advance = () => Promise.reject(new Error("died"));
  const dying = { allowances: { due: allowances.due, advance }, book: bookIn(first) };
  await expect(grantAllowances(dying)).rejects.toThrow("died");
  await Promise.all([first, second, first, second].map(sweep));

  const current = periodAt(lapsing.anchorAtMs, Date.now());
  expect(await grantsOf(first, lapsing.organizationId)).toMatchObject([
    { amount: 10n, remaining: 10n, effectiveAtMs: current.startMs, expiresAtMs: current.endMs },
  ]);
  // Without expiry no month is skipped: this is the fourth that has begun in 100 days.
  const stayed = await grantsOf(first, staying.organizationId);
  expect(stayed.map(({ remaining, expiresAtMs }) => [remaining, expiresAtMs])).toEqual(Array(4).fill([10n, null]));
  expect(await grantsOf(first, soon.organizationId)).toMatchObject([
    { state: "pending", remaining: 0n, effectiveAtMs: soon.anchorAtMs },
  ]);
  expect(await grantsOf(first, far.organizationId)).toEqual([]);
  expect(await grantsOf(first, ended.organizationId)).toEqual([]);
  for (const { organizationId } of [lapsing, staying, soon]) {
    expect((await books.verify(organizationId)).violations).toEqual([]);
  }

  // The allowance ends while another node is about to book the next month's grant.
  const late = await organization({ anchorAtMs: Date.now() + SOON_MS });
  const due: typeof allowances.due = async (options) => {
    const found = await allowances.due(options);
    await closeAllowance({ allowances, book: bookIn(first) }, late, Date.now());
    return found;
  };
  const { advance: move } = second.allowances;
  await grantAllowances({ allowances: { due, advance: move }, book: bookIn(second) });
  expect(await grantsOf(first, late.organizationId)).toMatchObject([{ state: "pending", amount: 10n, revoked: 10n }]);
  expect((await books.verify(late.organizationId)).violations).toEqual([]);

  await refuseOne(first, await organization({ anchorAtMs: 0 }), await organization({}));

  // Months that have not begun on the store's clock are granted later.
  const { rows } = await first.allowances.due({ aheadMs: 60_000, limit: 10 });
  expect(rows).toEqual([]);
}

/** Checks that an allowance whose grant is refused does not delay the others. */
async function refuseOne(store: Store, refused: AllowanceRow, other: AllowanceRow): Promise<void> {
  const { allowances } = store;
  const book: BookCredits = (next) =>
    next.organizationId === refused.organizationId ? Promise.reject(new Error("out of range")) : bookIn(store)(next);
  await expect(grantAllowances({ allowances, book })).rejects.toThrow("out of range");
  expect(await grantsOf(store, other.organizationId)).toHaveLength(1);
  await allowances.end(refused, Date.now());
}
