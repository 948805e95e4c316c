import type { MicroCredits } from "../../credits/amount.ts";
import type { BalanceRow, HoldRow, Transition } from "../../credits/books.ts";
import type { Outcomes } from "../../credits/outcomes.ts";
import { ADMIN_KEY, PAYMENT } from "../admin-schema.ts";
import type { Database, IdPage } from "../database.ts";
import type { Durability, StoreDriver } from "../driver.ts";
import { BALANCE, BROKEN_ATTEMPT, KEY } from "../schema.ts";
import { allOf, join, raw, sql } from "../sql.ts";
import { monthDigestsOf } from "./month-digests.ts";
import {
  closedBefore,
  recordBalance,
  type StatementRange,
  statementPage,
  statementStart,
  totalsBetween,
} from "./statement.ts";
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
export type SeenHold = Pick<HoldRow, "organizationId" | "holdId" | "owner" | "expiresAtMs">;

export type Books = ReturnType<typeof bookRows>;

/** Transitions of credits, and the reads that belong to them. */
export function bookRows(database: Database, driver: StoreDriver) {
  return { ...transitions(database, driver), ...statements(database), ...verifications(database) };
}

function transitions({ find, findRow, now, read, remove }: Database, driver: StoreDriver) {
  return {
    /** Applies a batch as `StoreDriver.apply` says. */
    apply<T extends Transition[]>(durability: Durability, batch: [...T]): Promise<OutcomesOf<T>> {
      return driver.apply(durability, batch) as Promise<OutcomesOf<T>>;
    },
    /**
     * Finds the open holds of the named owners, and those past their expiry or with one more than a life ahead by the store's
     * clock, in the order of their ids; and the store's time. Takes no locks: `expire` checks again.
     */
    async recoverableHolds({ lifeMs, owners, afterHoldId, limit }: HoldSearch) {
      const isOf = "allBut" in owners ? sql`owner <> ${owners.allBut}` : sql`owner in (${join(["", ...owners.only])})`;
      const rows = await find(sql`
        select organization_id, id, owner, expires_at, ${now()} as now from hold
        where (expires_at <= ${now()} or expires_at > ${now()} + ${raw(lifeMs)} or ${isOf}) and id > ${afterHoldId ?? ""}
        order by id limit ${limit}`);
      const holds = rows.map(({ organization_id, id, owner, expires_at }): SeenHold => {
        const names = { organizationId: organization_id as string, holdId: id as string, owner: owner as string };
        return { ...names, expiresAtMs: Number(expires_at) };
      });
      return { nowMs: Number(rows[0]?.now ?? 0), holds };
    },
    /** Counts all open holds. Returns the time to the earliest expiry, too: negative if it has passed, 0 without an open hold. */
    async openHolds() {
      const [row] = await read<Record<"count" | "now" | "expires", bigint | null>>(
        sql`select count(id) as count, min(expires_at) as expires, ${now()} as now from hold`,
      );
      const nowMs = Number(row?.now ?? 0);
      return { count: Number(row?.count ?? 0), earliestExpiryMs: Number(row?.expires ?? nowMs) - nowMs };
    },
    balance: (organizationId: string): Promise<BalanceRow | undefined> =>
      findRow(BALANCE)`select * from balance where organization_id = ${organizationId}`,
    /** Finds organizations with a grant that is due by the store's clock, in order. Takes no locks: `refresh` checks again. */
    async dueOrganizations({ after, limit }: IdPage): Promise<string[]> {
      const rows = await find(sql`
        select organization_id from balance
        where organization_id > ${after ?? ""} and next_change_at is not null and next_change_at <= ${now()}
        order by organization_id limit ${limit}`);
      return rows.map((row) => row.organization_id as string);
    },
    /** Removes expired idempotency keys and broken attempts, at most `limit` of each; returns their number. */
    async removeOldKeys(limit: number): Promise<number> {
      const isOld = sql`expires_at <= ${now()}`;
      const keys = (await remove(KEY, isOld, limit)) + (await remove(ADMIN_KEY, isOld, limit));
      return keys + (await remove(BROKEN_ATTEMPT, isOld, limit));
    },
  };
}

function statements(database: Database) {
  return {
    /** Returns all that changed a balance, oldest first. The sum is what is available, held and pending. */
    statement: (organizationId: string, page: StatementRange) => statementPage(database, organizationId, page),
    statementStart: (organizationId: string, fromMs: number | null) => statementStart(database, organizationId, fromMs),
    statementTotals: (organizationId: string, period: Parameters<typeof totalsBetween>[2]) =>
      totalsBetween(database, organizationId, period),
    monthDigests: (organizationId: string, period: Parameters<typeof monthDigestsOf>[2]) =>
      monthDigestsOf(database, organizationId, period),
    closedBefore: (organizationId: string) => closedBefore(database, organizationId),
    recordBalance: (organizationId: string, beforeMs: number) => recordBalance(database, organizationId, beforeMs),
    /** Returns the sum of the grants that have not taken effect. */
    async pendingCredits(organizationId: string): Promise<MicroCredits> {
      const [row] = await database.find(sql`
        select cast(coalesce(sum(amount - revoked), 0) as bigint) as pending from credit_grant
        where organization_id = ${organizationId} and state = 'pending'`);
      return row?.pending as MicroCredits;
    },
  };
}

function verifications(database: Database) {
  return {
    /** Checks the invariants that the store alone can show. A hold may be open for `endsWithinMs` after its expiry. */
    verify: (organizationId: string, endsWithinMs = HOLD_ENDS_WITHIN_MS) =>
      verifyOrganization(database, organizationId, endsWithinMs),
    verifyStore: () => verifyStore(database),
    organizationIds: () => database.organizationIds(),
  };
}

export interface PaymentPage {
  organizationId: string;
  /** The last payment seen. */
  before: { createdAtMs: number; id: string } | null;
  limit: number;
}

/** Payments. The books write them, see `book-writes.ts`. */
export function paymentRows({ findRow, findRows, readRows, read }: Database) {
  return {
    find: (id: string) => findRow(PAYMENT)`select * from payment where id = ${id}`,
    /** Returns the payments of an organization, the newest first. */
    list: ({ organizationId, before, limit }: PaymentPage) => {
      const older = before !== null && sql`(created_at, id) < (${before.createdAtMs}, ${before.id})`;
      return readRows(PAYMENT)`
        select * from payment where ${allOf(sql`organization_id = ${organizationId}`, older)}
        order by created_at desc, id desc limit ${limit}`;
    },
    /** Returns the open debts of an organization. */
    async debt(organizationId: string): Promise<MicroCredits> {
      const [row] = await read<{ debt: bigint }>(sql`
        select cast(coalesce(sum(debt - debt_covered), 0) as bigint) as debt from payment
        where organization_id = ${organizationId} and debt > debt_covered`);
      return row?.debt ?? 0n;
    },
    /** Finds payments whose debt can be collected: holds have returned credits to their grants, or these were revoked. */
    collectable: (limit: number) =>
      findRows(PAYMENT)`
        select * from payment where debt > debt_covered and revoked < (
          select coalesce(sum(made.revoked + made.remaining), 0) from credit_grant as made
          where made.organization_id = payment.organization_id
            and made.id between 'grant_' || payment.id || '_' and 'grant_' || payment.id || '_~')
        order by id limit ${limit}`,
  };
}
