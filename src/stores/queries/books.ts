import { sql } from "kysely";
import type { MicroCredits } from "../../credits/amount.ts";
import type { BalanceRow, Transition } from "../../credits/books.ts";
import type { Outcomes } from "../../credits/outcomes.ts";
import { type Database, read } from "../database.ts";
import type { Durability, StoreDriver } from "../driver.ts";
import { ADMIN_KEY, BALANCE, KEY } from "../schema.ts";
import type { TableShape } from "../table.ts";
import { monthDigestsOf } from "./month-digests.ts";
import { closedBefore, recordBalances, type StatementRange, statementPage, statementStart } from "./statement.ts";
import { verifyOrganization } from "./verify.ts";
import { verifyStore } from "./verify-store.ts";

/** As `holdEndsWithinMs` of `ledger/verify.ts`, with the default configuration. */
const HOLD_ENDS_WITHIN_MS = 510_000;

export type OutcomesOf<T extends Transition[]> = { [I in keyof T]: Outcomes[T[I]["kind"]] };

export interface HoldSearch {
  lifeMs: number;
  /** All holds of these owners are found; those of others only if their expiry has passed or is too far ahead. */
  owners: Owners;
  afterHoldId: string | null;
  limit: number;
}

export type Owners = { only: readonly string[] } | { allBut: string };

/** An open hold as it was read without a lock. */
export interface SeenHold {
  organizationId: string;
  holdId: string;
  owner: string;
  expiresAtMs: number;
}

export type Books = ReturnType<typeof bookRows>;

/** Credits in motion: transitions, and the reads beside them. */
export function bookRows(database: Database, driver: StoreDriver) {
  const { kysely } = database;
  return {
    /** Applies a batch as `StoreDriver.apply` says. */
    apply<T extends Transition[]>(durability: Durability, transitions: [...T]): Promise<OutcomesOf<T>> {
      return driver.apply(durability, transitions) as Promise<OutcomesOf<T>>;
    },
    /**
     * Finds open holds that may no longer be renewed: those past their expiry or with an expiry more than a life ahead by
     * the store's clock, and those of the named owners, in the order of their ids; and the store's time. Takes no locks:
     * `expire` checks again.
     */
    recoverableHolds: (search: HoldSearch) => recoverableHolds(database, search),
    /** Counts the open holds of all organizations, with the times of the oldest ones by the store's clock. */
    openHolds: () => openHolds(database),
    async balance(organizationId: string): Promise<BalanceRow | undefined> {
      const row = await kysely
        .selectFrom("balance")
        .selectAll()
        .where("organization_id", "=", organizationId)
        .executeTakeFirst();
      return row && BALANCE.fromRecord(row);
    },
    /**
     * Finds organizations that have a grant that is due to take effect or to expire, by the store's clock, in the order of
     * their ids. Takes no locks: `refresh` checks again.
     */
    dueOrganizations: (page: OrganizationPage) => dueOrganizations(database, page),
    /**
     * Returns everything that changed an organization's balance, oldest first: grants, also those not yet in force,
     * charges, and adjustments. Their sum is what is available, held and pending.
     */
    statement: (organizationId: string, page: StatementRange) => statementPage(database, organizationId, page),
    statementStart: (organizationId: string, fromMs: number | null) => statementStart(database, organizationId, fromMs),
    monthDigests: (organizationId: string, period: Parameters<typeof monthDigestsOf>[2]) =>
      monthDigestsOf(database, organizationId, period),
    closedBefore: (organizationId: string) => closedBefore(database, organizationId),
    recordBalances: (organizationId: string) => recordBalances(database, organizationId),
    /** Returns the sum of the grants that have not taken effect. */
    async pendingCredits(organizationId: string): Promise<MicroCredits> {
      const row = await kysely
        .selectFrom("credit_grant")
        .select(sql<bigint>`cast(coalesce(sum(amount - revoked), 0) as bigint)`.as("pending"))
        .where("organization_id", "=", organizationId)
        .where("state", "=", sql.lit("pending"))
        .executeTakeFirst();
      return row?.pending ?? 0n;
    },
    /**
     * Removes expired idempotency keys, those of completions and those of administrators, at most `limit` of each; returns
     * their number. They already counted as absent.
     */
    removeOldKeys: (limit: number) => removeOldKeys(database, limit),
    /**
     * Checks every invariant of one organization that the store alone can show, in short snapshots. A hold may be open for
     * `endsWithinMs` after its expiry; absent: by the default configuration.
     */
    verify: (organizationId: string, endsWithinMs = HOLD_ENDS_WITHIN_MS) =>
      verifyOrganization(database, organizationId, endsWithinMs),
    verifyStore: () => verifyStore(database),
    /** Returns ids of organizations in their order, without reading the rows, which may be malformed. */
    async organizationIds({ after, limit }: OrganizationPage): Promise<string[]> {
      const query = kysely
        .selectFrom("organization")
        .select("id")
        .where("id", ">", after ?? "");
      return (await query.orderBy("id").limit(limit).execute()).map(({ id }) => id);
    },
  };
}

interface OrganizationPage {
  after: string | null;
  limit: number;
}

async function dueOrganizations(database: Database, { after, limit }: OrganizationPage): Promise<string[]> {
  let query = database.kysely
    .selectFrom("balance")
    .select("organization_id")
    .where("next_change_at", "is not", null)
    .where("next_change_at", "<=", database.now())
    .orderBy("organization_id")
    .limit(limit);
  if (after !== null) query = query.where("organization_id", ">", after);
  return (await query.execute()).map((row) => row.organization_id);
}

async function recoverableHolds(
  database: Database,
  { lifeMs, owners, afterHoldId, limit }: HoldSearch,
): Promise<{ nowMs: number; holds: SeenHold[] }> {
  const now = database.now();
  let query = database.kysely
    .selectFrom("hold")
    .select(["organization_id", "id", "owner", "expires_at", now.as("now")])
    .where((where) => {
      const either = [
        where("expires_at", "<=", now),
        where("expires_at", ">", sql<bigint>`${now} + ${sql.lit(lifeMs)}`),
      ];
      if ("allBut" in owners) either.push(where("owner", "<>", owners.allBut));
      else if (owners.only.length > 0) either.push(where("owner", "in", owners.only));
      return where.or(either);
    })
    .orderBy("id")
    .limit(limit);
  if (afterHoldId !== null) query = query.where("id", ">", afterHoldId);
  const rows = await query.execute();
  const holds = rows.map(({ organization_id: organizationId, id: holdId, owner, expires_at }) => {
    return { organizationId, holdId, owner, expiresAtMs: Number(expires_at) };
  });
  return { nowMs: Number(rows[0]?.now ?? 0), holds };
}

/** The open holds of a store. */
export interface OpenHolds {
  count: number;
  /** Milliseconds from now to the earliest expiry; negative if it has passed, and 0 without an open hold. */
  earliestExpiryMs: number;
}

async function openHolds(database: Database): Promise<OpenHolds> {
  const { count, min } = database.kysely.fn;
  const query = database.kysely
    .selectFrom("hold")
    .select([count("id").as("count"), min("expires_at").as("expires")])
    .select(sql<bigint>`${database.now()}`.as("now"));
  type Row = Record<"count" | "now", bigint | number> & Record<"expires", bigint | number | null>;
  const [row] = await read<Row>(database, query);
  const nowMs = Number(row?.now ?? 0);
  return {
    count: Number(row?.count ?? 0),
    earliestExpiryMs: Number(row?.expires ?? nowMs) - nowMs,
  };
}

async function removeOldKeys({ kysely, now: nowOf }: Database, limit: number): Promise<number> {
  const now = nowOf();
  const remove = async ({ name, key }: TableShape) => {
    const [from, columns] = [sql.table(name), sql.join(key.map((column) => sql.ref(column)))];
    const old = sql`select ${columns} from ${from} where expires_at <= ${now} limit ${sql.lit(limit)}`;
    // Checked again: another process may have claimed the key since the read.
    const removal = sql`delete from ${from} where (${columns}) in (${old}) and expires_at <= ${now}`;
    return Number((await removal.execute(kysely)).numAffectedRows ?? 0n);
  };
  return (await remove(KEY)) + (await remove(ADMIN_KEY));
}
