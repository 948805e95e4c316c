import type { BookRows } from "../credits/batch.ts";
import type { Transition } from "../credits/books.ts";
import { budgetUsesOf } from "../credits/budget-counters.ts";
import { callersOf, grantsOf, grantsOfPayment, holdNamesOf, keysOf, namesOf, without } from "../credits/names.ts";
import { PAYMENT, VOUCHER } from "./admin-schema.ts";
import type { BudgetCache } from "./budget-cache.ts";
import {
  ADJUSTMENT,
  BALANCE,
  BROKEN_ATTEMPT,
  BUDGET,
  BUDGET_USE,
  GRANT,
  HOLD,
  KEY,
  NEW_VALUES,
  ORGANIZATION,
  REQUEST,
} from "./schema.ts";
import type { RowOf, TableShape } from "./table.ts";

/** One kind of read of a batch: rows of a table by the values of some columns. */
export interface BookRead {
  table: TableShape & { fromCells(cells: readonly unknown[]): object };
  /** The columns, each with the property of a name that has its value. */
  by: Readonly<Record<string, string>>;
  /** SQL after the condition on these columns. */
  rest?: string;
  /** True if one name may have several rows. */
  hasMany?: boolean;
  /** True if other batches must wait for the rows. Read in the order of their names. */
  isLocked?: boolean;
}

const OWNER = { organization_id: "organizationId" };

/** The reads of a batch, for both databases. */
export const BOOK_READS = {
  balances: { table: BALANCE, by: OWNER, isLocked: true },
  budgets: { table: BUDGET, by: OWNER, rest: "ORDER BY id", hasMany: true },
  /** Locked after the balances. */
  budgetUses: {
    table: BUDGET_USE,
    by: { ...OWNER, budget_id: "budgetId", window_at: "windowAtMs", value: "value" },
    isLocked: true,
  },
  newValues: { table: NEW_VALUES, by: { ...OWNER, caller_id: "id" } },
  liveGrants: { table: GRANT, by: OWNER, rest: "AND (state = 'pending' OR is_used_up = 0)", hasMany: true },
  grants: { table: GRANT, by: { ...OWNER, id: "id" } },
  referredGrants: { table: GRANT, by: { ...OWNER, reference: "id" } },
  holds: { table: HOLD, by: { ...OWNER, id: "id" } },
  requests: { table: REQUEST, by: { ...OWNER, id: "id" } },
  keys: { table: KEY, by: { ...OWNER, caller_id: "callerId", key: "key" } },
  brokenAttempts: {
    table: BROKEN_ATTEMPT,
    by: { ...OWNER, caller_id: "callerId", fingerprint: "fingerprint" },
    hasMany: true,
  },
  adjustments: { table: ADJUSTMENT, by: { ...OWNER, id: "id" } },
  adjustmentsOfRequests: { table: ADJUSTMENT, by: { ...OWNER, hold_id: "id" }, hasMany: true },
  referredAdjustments: { table: ADJUSTMENT, by: { ...OWNER, kind: "kind", reference: "id" } },
  payments: { table: PAYMENT, by: { ...OWNER, id: "id" } },
  debts: { table: PAYMENT, by: OWNER, rest: "AND debt > debt_covered", hasMany: true },
  /** Locked after the balances: two organizations may redeem one. */
  vouchers: { table: VOUCHER, by: { id: "id" }, isLocked: true },
  /** Read after the balances are locked: closing an organization revokes what is available after it has become closed. */
  closed: { table: ORGANIZATION, by: { id: "organizationId" }, rest: "AND status = 'closed'" },
} satisfies Record<string, BookRead>;

type ReadName = keyof typeof BOOK_READS;

export type WantedRows = { [Name in ReadName]?: readonly object[] };

/** The rows that a step has read; those of a read that it did not want are missing. */
export type FoundRows = { [Name in ReadName]: RowOf<(typeof BOOK_READS)[Name]["table"]>[] } & {
  /** The store's time, once the balances are locked. */
  nowMs: number;
};

/**
 * Plans the reads of a batch: yields the names that a step wants, all of which can be read at once, and is resumed with the
 * rows. The first step locks the balances, in the order of their ids.
 */
export function* planReads(
  cache: BudgetCache,
  transitions: readonly Transition[],
): Generator<WantedRows, BookRows, FoundRows> {
  const { organizationIds, newHolds, holds: oldHolds, ...named } = namesOf(transitions);
  const organizations = organizationIds.map((organizationId) => ({ organizationId }));
  const holdNames = [...newHolds, ...oldHolds];
  const wanted = { balances: organizations, liveGrants: organizations, holds: holdNames, requests: newHolds };
  const paying = named.payments.map(({ organizationId }) => ({ organizationId }));
  const redeeming = named.vouchers.map(({ organizationId }) => ({ organizationId }));
  const first = yield { ...wanted, ...named, debts: paying, closed: [...paying, ...redeeming] };
  const { nowMs, balances, holds, requests, keys, brokenAttempts } = first;
  const payments = [...first.payments, ...first.debts];
  const grants = [...first.liveGrants, ...first.grants, ...first.referredGrants];
  const open = holdNamesOf(holds);
  const outdated = cache.outdated(balances);
  // Usually every request that ends now has an open hold.
  const isEachOpen = holds.length === holdNames.length;
  const second = yield {
    budgets: outdated.map((organizationId) => ({ organizationId })),
    requests: isEachOpen ? [] : without(oldHolds, open),
  };
  if (outdated.length > 0) cache.set(balances, outdated, second.budgets);
  requests.push(...second.requests);
  const referring = holdNamesOf([...keys, ...brokenAttempts]);
  const referred = without(referring, [...holdNamesOf(requests), ...open, ...holdNames]);
  const third = yield {
    holds: referred,
    requests: referred,
    keys: without(keysOf(holds, requests), named.keys),
    grants: without([...grantsOf([...holds, ...requests]), ...payments.flatMap(grantsOfPayment)], grants),
  };
  holds.push(...third.holds);
  requests.push(...third.requests);
  const budgets = cache.of(balances);
  const used = budgetUsesOf({ nowMs, budgets, holds, requests }, transitions);
  const last = yield { budgetUses: used, adjustmentsOfRequests: holdNamesOf(requests) };
  // A counter that is missing may be that of a new value.
  const { newValues } = yield { newValues: last.budgetUses.length < used.length ? callersOf(transitions) : [] };
  return {
    ...{ nowMs, balances, budgets, budgetUses: last.budgetUses, newValues, holds, requests },
    keys: [...keys, ...third.keys],
    brokenAttempts,
    payments,
    vouchers: first.vouchers,
    closed: first.closed,
    grants: [...grants, ...third.grants],
    adjustments: [...first.adjustments, ...first.referredAdjustments, ...last.adjustmentsOfRequests],
  };
}
