import type { AuditOfRows } from "./audit.ts";
import type {
  AdjustmentRow,
  BalanceRow,
  BrokenAttemptRow,
  BudgetUseRow,
  GrantRow,
  HoldRow,
  IdempotencyKeyRow,
  NewValuesRow,
  PaymentRow,
  RequestRow,
  VoucherRow,
} from "./books.ts";
import { counterIdOf } from "./budget-uses.ts";
import type { BudgetIndex } from "./budgets.ts";
import { keyIdOf } from "./names.ts";
import type { EventRow } from "./warnings.ts";

/** The rows that a batch needs, read under the locks of its balances. `names.ts` lists the rows that it names. */
export interface BookRows {
  nowMs: number;
  balances: BalanceRow[];
  /** All budgets of each organization that has some. */
  budgets: ReadonlyMap<string, BudgetIndex>;
  /** The counters that its holds will use, and those that its transitions, holds and requests recorded. */
  budgetUses: BudgetUseRow[];
  /** The rows of the callers of its holds, if one of these counters has no row. */
  newValues: NewValuesRow[];
  /** Grants of those organizations that are pending or have credits remaining, that holds and requests draw on, or whose id or reference the batch names. */
  grants: GrantRow[];
  /** The open holds that the batch names, and those of the keys that it names. */
  holds: HoldRow[];
  /** The ended requests among those names. */
  requests: RequestRow[];
  /** The keys that the batch names, and those of its holds. */
  keys: IdempotencyKeyRow[];
  /** Those of the intents of its holds. */
  brokenAttempts: BrokenAttemptRow[];
  /** Adjustments whose id, or kind and reference, the batch names, and all adjustments of the requests above. */
  adjustments: AdjustmentRow[];
  /** Those that the batch names, and of their organizations those with debts. */
  payments: PaymentRow[];
  /** Locked after the balances. */
  vouchers: VoucherRow[];
  /** The organizations that the batch pays or redeems vouchers for, if they are closed. */
  closed: { id: string }[];
}

/** The rows to write: each whole, in its new state, and at most once. */
export class BookWrites {
  balances: BalanceRow[] = [];
  newBudgetUses: BudgetUseRow[] = [];
  /** `held`, `spent` and the last warning have changed. */
  changedBudgetUses: BudgetUseRow[] = [];
  /** To insert, or to replace. */
  newValues: NewValuesRow[] = [];
  newGrants: GrantRow[] = [];
  /** `remaining`, `revoked` and `state` have changed. */
  changedGrants: GrantRow[] = [];
  newHolds: HoldRow[] = [];
  /** Expiry, owner and details have changed. */
  renewedHolds: HoldRow[] = [];
  removedHolds: { organizationId: string; holdId: string }[] = [];
  newRequests: RequestRow[] = [];
  /** Keys to insert, or to replace. */
  keys: IdempotencyKeyRow[] = [];
  removedKeys: Pick<IdempotencyKeyRow, "organizationId" | "callerId" | "key">[] = [];
  brokenAttempts: BrokenAttemptRow[] = [];
  /** Attempts that a retry repeats. */
  removedBrokenAttempts: Partial<BrokenAttemptRow>[] = [];
  newAdjustments: AdjustmentRow[] = [];
  newPayments: PaymentRow[] = [];
  changedPayments: PaymentRow[] = [];
  redeemedVouchers: VoucherRow[] = [];
  /** Records of the bookings that this batch made first. */
  newAuditEntries: AuditOfRows[] = [];
  /** Warnings; those whose key is known are not written again. */
  newEvents: EventRow[] = [];
}

/**
 * The books of one organization while a batch is decided. Balance, grants and counters of budgets are copies, which are changed
 * in place; other rows are replaced. Every function preserves granted = available + held + spent + expired, unless its comment
 * names a part that the caller must book, and keeps available equal to the remaining amounts of the active grants.
 */
export class Account {
  readonly organizationId: string;
  readonly nowMs: number;
  readonly readBalance: BalanceRow;
  readonly balance: BalanceRow;
  readonly budgets: BudgetIndex | undefined;
  /** True if the organization is closed and the batch names one of its payments, or redeems a voucher for it. */
  readonly isClosed: boolean;
  readonly grants = new Rows<GrantRow>();
  /** Active grants in the order in which they are drawn down; null if the order must be computed again. */
  drawOrder: GrantRow[] | null = null;
  /** By `counterIdOf`. */
  readonly budgetUses = new Rows<BudgetUseRow>();
  /** By caller. */
  readonly newValues = new Rows<NewValuesRow>();
  readonly holds = new Rows<HoldRow>();
  readonly requests = new Rows<RequestRow>();
  readonly keys = new Rows<IdempotencyKeyRow>();
  /** By the ids of the requests. */
  readonly brokenAttempts = new Rows<BrokenAttemptRow>();
  readonly adjustments = new Rows<AdjustmentRow>();
  readonly payments = new Rows<PaymentRow>();
  /** Those of the batch, which all of its accounts share. */
  readonly vouchers: Rows<VoucherRow>;
  readonly newAuditEntries: AuditOfRows[] = [];
  readonly newEvents: EventRow[] = [];

  constructor({ nowMs, budgets, closed }: BookRows, balance: BalanceRow, vouchers: Rows<VoucherRow>) {
    this.organizationId = balance.organizationId;
    this.nowMs = nowMs;
    this.readBalance = balance;
    this.balance = { ...balance };
    this.budgets = budgets.get(balance.organizationId);
    this.vouchers = vouchers;
    this.isClosed = closed.some(({ id }) => id === balance.organizationId);
  }
}

/** The rows of a table that belong to one organization, by id: each as it is now, and as it was read. */
class Rows<Row extends object> {
  /** Made for the first row: of most tables an organization has no row in a batch, and a batch may have 1,000 organizations. */
  #rows: Map<string, { read: Row | undefined; now: Row | undefined }> | undefined;

  get(id: string): Row | undefined {
    return this.#rows?.get(id)?.now;
  }

  values(): Row[] {
    return [...(this.#rows?.values() ?? [])].flatMap(({ now }) => now ?? []);
  }

  /** Adds a row that was read, or a copy of it. */
  load(id: string, read: Row | undefined, now = read): void {
    this.#rows ??= new Map();
    this.#rows.set(id, { read, now });
  }

  /** Adds a new row. Throws an error if there is one with its id. */
  insert(id: string, row: Row): void {
    if (this.get(id) !== undefined) throw new Error(`the row ${id} exists already`);
    this.set(id, row);
  }

  /** Adds or replaces a row; undefined removes it. */
  set(id: string, now: Row | undefined): void {
    const known = this.#rows?.get(id);
    if (known === undefined) this.load(id, undefined, now);
    else known.now = now;
  }

  /** Adds to the lists: the rows that are new, those that have other values, and those that are gone. */
  addChanges(added: Row[], changed: Row[] = [], removed: Partial<Row>[] = []): void {
    for (const { read, now } of this.#rows?.values() ?? []) {
      if (read === undefined) {
        if (now !== undefined) added.push(now);
      } else if (now === undefined) removed.push(read);
      else if (differs(read, now)) changed.push(now);
    }
  }
}

/** Opens the accounts of a batch, by organization. */
export function openAccounts(rows: BookRows): Map<string, Account> {
  const vouchers = new Rows<VoucherRow>();
  for (const row of rows.vouchers) vouchers.load(row.id, row);
  const accounts = new Map(
    rows.balances.map((balance) => [balance.organizationId, new Account(rows, balance, vouchers)]),
  );
  const of = ({ organizationId }: { organizationId: string }) => accounts.get(organizationId);
  for (const row of rows.grants) of(row)?.grants.load(row.id, row, { ...row });
  for (const row of rows.budgetUses) of(row)?.budgetUses.load(counterIdOf(row), row, { ...row });
  for (const row of rows.newValues) of(row)?.newValues.load(row.callerId, row);
  for (const row of rows.holds) of(row)?.holds.load(row.holdId, row);
  for (const row of rows.requests) of(row)?.requests.load(row.holdId, row);
  for (const row of rows.keys) of(row)?.keys.load(keyIdOf(row), row);
  for (const row of rows.brokenAttempts) of(row)?.brokenAttempts.load(row.holdId, row);
  for (const row of rows.adjustments) of(row)?.adjustments.load(row.id, row);
  for (const row of rows.payments) of(row)?.payments.load(row.id, row, { ...row });
  return accounts;
}

/** Returns the rows that have changed since they were read. Throws an error for a balance that does not add up. */
export function writesOf(accounts: Iterable<Account>): BookWrites {
  const writes = new BookWrites();
  for (const account of accounts) {
    assertBalanced(account.balance);
    if (differs(account.readBalance, account.balance)) writes.balances.push(account.balance);
    account.budgetUses.addChanges(writes.newBudgetUses, writes.changedBudgetUses);
    account.newValues.addChanges(writes.newValues, writes.newValues);
    account.grants.addChanges(writes.newGrants, writes.changedGrants);
    account.holds.addChanges(writes.newHolds, writes.renewedHolds, writes.removedHolds);
    account.requests.addChanges(writes.newRequests);
    account.keys.addChanges(writes.keys, writes.keys, writes.removedKeys);
    const { brokenAttempts: broken, removedBrokenAttempts: repeated } = writes;
    account.brokenAttempts.addChanges(broken, broken, repeated);
    account.adjustments.addChanges(writes.newAdjustments);
    account.payments.addChanges(writes.newPayments, writes.changedPayments);
    // All accounts share these rows.
    if (writes.redeemedVouchers.length === 0) account.vouchers.addChanges([], writes.redeemedVouchers);
    writes.newAuditEntries.push(...account.newAuditEntries);
    writes.newEvents.push(...account.newEvents);
  }
  return writes;
}

function differs<Row extends object>(before: Row, after: Row): boolean {
  if (before === after) return false;
  return (Object.keys(after) as (keyof Row)[]).some((column) => before[column] !== after[column]);
}

function assertBalanced({ organizationId, granted, available, held, spent, expired }: BalanceRow): void {
  const whole = granted === available + held + spent + expired;
  if (whole && [available, held, spent, expired].every((amount) => amount >= 0n)) return;
  throw new Error(`the batch would leave the balance of ${organizationId} inconsistent`);
}
