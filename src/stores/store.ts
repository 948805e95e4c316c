import type { AllowanceRow } from "../credits/allowance.ts";
import type { MicroCredits } from "../credits/amount.ts";
import type { AuditRow } from "../credits/audit.ts";
import type { AdjustmentRow, BalanceRow, GrantRow, Outcomes, Transition } from "../credits/books.ts";
import type { AccountRows, IdPage } from "./account-store.ts";
import type { AdminRows } from "./admin-store.ts";
import type { ConversationRows } from "./conversation-store.ts";
import type { DirectoryRows } from "./directory-store.ts";
import type { RefusalRows } from "./refusal-store.ts";
import type { RequestRows, UsageEvent } from "./request-store.ts";
import type { UsageRows } from "./usage-store.ts";

export type { LimitSettings, OrganizationKind } from "../api/principal.ts";
export type {
  AccountRows,
  NewOrganizationRow,
  OrganizationChange,
  OrganizationRow,
  TokenBudget,
  TokenRow,
  TokenWithBudget,
  TokenWithOrganization,
} from "./account-store.ts";
export type {
  AdminKeyName,
  AdminKeyRow,
  AdminKeyRows,
  AdminRows,
  AdminTokenRow,
  SessionRow,
} from "./admin-store.ts";
export type { ConversationRow, ConversationRows } from "./conversation-store.ts";
export type { DirectoryRows, ListedOrganization, ListedToken } from "./directory-store.ts";
export type { RefusalEntry, RefusalRow, RefusalRows, RefusalSearch } from "./refusal-store.ts";
export type { ListedRequest, RequestRows, RequestSearch, UsageEvent } from "./request-store.ts";
export type { RequestSum, UsageCounts, UsageDayRow, UsageRows } from "./usage-store.ts";

/**
 * The seam to a store. Every verb rejects with StoreUnavailableError when the store cannot be reached or does not
 * answer in time; any other rejection is a defect. A store is a folder beside this file that passes `contract.ts`.
 */
export interface Store {
  readonly kind: "sqlite" | "postgres";
  readonly books: Books;
  readonly accounts: AccountRows;
  readonly allowances: AllowanceRows;
  readonly admin: AdminRows;
  readonly directory: DirectoryRows;
  readonly requests: RequestRows;
  readonly refusals: RefusalRows;
  readonly usage: UsageRows;
  readonly conversations: ConversationRows;
  /**
   * Does work of a start while no other service does any on this store: of several that start at once, one after the
   * other. A process that dies ends its turn. Rejects with OperatorError when it waited for a minute.
   */
  inTurn<T>(work: () => Promise<T>): Promise<T>;
  /** Resolves when the store answers and takes writes. */
  ping(): Promise<void>;
  close(): Promise<void>;
}

/** Holds need not survive a crash of the store; all else must (fsynced) before its promise resolves. */
export type Durability = "holds" | "durable";

/** Credits in motion: transitions, and what is read beside them. */
export interface Books {
  /**
   * Applies a batch in one transaction of four steps: lock the balances in the order of their ids; in a later
   * statement read holds and grants; decide (`credits/decide.ts`); write and commit. Outcomes come in the order of the
   * transitions. A batch names a hold id once. All of it is booked, or none.
   */
  apply<T extends Transition[]>(durability: Durability, transitions: [...T]): Promise<OutcomesOf<T>>;
  /**
   * Finds open holds that nobody may be renewing: those past their expiry or with an expiry more than a life ahead by the
   * store's clock, and those of the owners named, in the order of their ids; and the store's time. A look without locks:
   * `expire` tests again.
   */
  recoverableHolds(search: HoldSearch): Promise<{ nowMs: number; holds: SeenHold[] }>;
  balance(organizationId: string): Promise<BalanceRow | undefined>;
  /**
   * Organizations that have a grant that is due to take effect or to expire, by the store's clock, in the order of their
   * ids. A look without locks: `refresh` tests again.
   */
  dueOrganizations(options: { after: string | null; limit: number }): Promise<string[]>;
  /**
   * Everything that changed what an organization has, oldest first: grants, also those that are not in force yet, charges,
   * and adjustments. What they add up to is what is available, held and pending.
   */
  statement(organizationId: string, page: StatementPage): Promise<StatementEntry[]>;
  /**
   * Removes idempotency keys past their time, those of completions and those of administrators, at most `limit` of each;
   * gives how many. They counted as absent before.
   */
  removeOldKeys(limit: number): Promise<number>;
  /** Adds up the statement's entries before a time. */
  openingBalance(organizationId: string, beforeMs: number): Promise<MicroCredits>;
  /** Records balances of the statement, so that an opening balance adds up few entries. */
  recordBalances(organizationId: string): Promise<void>;
  /** What was granted and has not taken effect. */
  pendingCredits(organizationId: string): Promise<MicroCredits>;
  /** Checks every invariant of one organization that the store alone can show, in short snapshots. */
  verify(organizationId: string): Promise<OrganizationVerification>;
  /** Finds rows of organizations that do not exist. */
  verifyOwners(): Promise<Violation[]>;
}

export type OutcomesOf<T extends Transition[]> = { [I in keyof T]: Outcomes[T[I]["kind"]] };

export interface HoldSearch {
  lifeMs: number;
  /** All holds of these are found; holds of others only when they are past their expiry or too far ahead. */
  owners: Owners;
  afterHoldId: string | null;
  limit: number;
}

export type Owners = { only: readonly string[] } | { allBut: string };

/** An open hold as it was seen, without a lock. */
export interface SeenHold {
  organizationId: string;
  holdId: string;
  owner: string;
  expiresAtMs: number;
}

export interface StatementPage {
  /** Position of the last entry seen, from `StatementEntry.position`. */
  after: string | null;
  /** Entries at this time or later. */
  fromMs?: number;
  limit: number;
}
/** `amount` is what the entry adds to the balance, negative where it takes from it. */
export type StatementEntry = { position: string; atMs: number; amount: MicroCredits } & (
  | { kind: "grant"; grant: GrantRow }
  | { kind: "charge"; event: UsageEvent }
  | { kind: Exclude<AdjustmentRow["kind"], "late_settlement">; adjustment: AdjustmentRow }
);

export interface Violation {
  /** Number of the invariant, as in docs/ledger.md. */
  invariant: number;
  organizationId: string;
  holdId: string | null;
  message: string;
}
export interface OrganizationVerification {
  organizationId: string;
  holds: number;
  events: number;
  violations: Violation[];
}

/** Allowances: what is granted again every month. Their grants are made through the books. */
export interface AllowanceRows {
  /**
   * Gives the allowance that the organization has of the same reference, or else writes this one, with its audit entry, and
   * gives it.
   */
  insert(allowance: AllowanceRow, audit?: AuditRow): Promise<AllowanceRow>;
  /** Null: of every organization. */
  list(page: IdPage & { organizationId: string | null }): Promise<AllowanceRow[]>;
  /** False where there is no such allowance or it was ended before; then nothing is written. */
  end(allowance: Pick<AllowanceRow, "organizationId" | "id">, atMs: number, audit?: AuditRow): Promise<boolean>;
  /** Those whose next month begins within `aheadMs` by the store's clock or has begun; the most overdue first. */
  due(options: { aheadMs: number; limit: number }): Promise<{ nowMs: number; rows: AllowanceRow[] }>;
  /** Moves the beginning of the next month, unless somebody has moved it. */
  advance(allowance: Pick<AllowanceRow, "organizationId" | "id" | "nextAtMs">, toMs: number): Promise<void>;
}
