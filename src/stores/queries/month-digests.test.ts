import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { expect, test } from "vitest";
import { grantOf, one } from "../../../test/stores/fixture.ts";
import { organizationsDue, STATEMENT_TERMS } from "../../../test/support/month-digests.ts";
import { databaseOver } from "../database.ts";
import { sql } from "../sql.ts";
import { openSqliteDriver } from "../sqlite/sqlite.ts";
import { storeOver } from "../store.ts";
import { monthDigestRows } from "./month-digests.ts";

const ORGANIZATION = "org_clock";
const DAY_MS = 86_400_000;

test("a month is over a day after its end by the clock of the store, for which its digest is stored", async () => {
  const dataDir = await mkdtemp(join(tmpdir(), "tollgate-digests-"));
  const driver = await openSqliteDriver({ dataDir, role: "service", creates: true, clock: Date.now });
  const { accounts, books } = storeOver(driver);
  await accounts.insertOrganization({ id: ORGANIZATION, name: "Clock", kind: "standard", createdAtMs: 1 });
  await one(books, grantOf(ORGANIZATION, 5n), "durable");
  const marchMs = Date.UTC(2026, 2, 1);
  const aprilMs = Date.UTC(2026, 3, 1);
  const database = databaseOver(driver);
  await database.write([sql`update credit_grant set created_at = ${aprilMs - 1}`]);
  const at = (nowMs: number) => monthDigestRows({ ...database, now: () => sql`${nowMs}` });
  const early = at(aprilMs + DAY_MS - 1);
  const next = { month: marchMs, previous: undefined };
  expect(await organizationsDue(early)).toEqual([ORGANIZATION, "org_playground"]);
  expect(await early.next(ORGANIZATION)).toEqual({ ...next, isOver: false });
  // A process whose own clock is ahead cannot store it either.
  const hash = early.begin(ORGANIZATION, { ...next, isOver: true });
  while (!(await early.add(hash)));
  await early.store(hash, STATEMENT_TERMS);
  expect(await books.monthDigests(ORGANIZATION, {})).toEqual([]);

  const due = at(aprilMs + DAY_MS);
  expect(await due.next(ORGANIZATION)).toEqual({ ...next, isOver: true });
  const again = due.begin(ORGANIZATION, { ...next, isOver: true });
  while (!(await due.add(again)));
  await due.store(again, STATEMENT_TERMS);
  expect(await books.monthDigests(ORGANIZATION, {})).toMatchObject([{ month: marchMs }]);
  expect(await organizationsDue(due)).toEqual(["org_playground"]);
  expect(await organizationsDue(at(Date.UTC(2026, 4, 2)))).toEqual([ORGANIZATION, "org_playground"]);
  await driver.close();
  await rm(dataDir, { recursive: true });
});
