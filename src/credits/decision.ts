import type { AuditRow } from "./audit.ts";
import type {
  AdjustmentRow,
  BalanceRow,
  GrantRow,
  HoldRow,
  IdempotencyKeyRow,
  Outcome,
  RequestRow,
  TokenBalanceRow,
} from "./books.ts";

/** The rows that a batch concerns, read under the locks of its balances. What it names: `names.ts`. */
export interface BookRows {
  nowMs: number;
  balances: BalanceRow[];
  /** Rows of the tokens of its transitions, holds and requests, and of those that these share a cap with. */
  tokenBalances: TokenBalanceRow[];
  /** All grants of those organizations that are pending or have something remaining, that holds and requests draw on, or whose id or reference the batch names. */
  grants: GrantRow[];
  /** The open holds that the batch names, and those of the keys that it names. */
  holds: HoldRow[];
  /** The ended requests among those names. */
  requests: RequestRow[];
  /** The keys that the batch names, and those of its holds. */
  keys: IdempotencyKeyRow[];
  /** Those with an id, or a kind and a reference, that the batch names, and all of the requests above. */
  adjustments: AdjustmentRow[];
}

/** The rows to write, each the whole row in its new state, each at most once. */
export interface BookWrites {
  balances: BalanceRow[];
  /** `held` and `spent` have changed. */
  tokenBalances: TokenBalanceRow[];
  newGrants: GrantRow[];
  /** `remaining`, `revoked` and `state` have changed. */
  changedGrants: GrantRow[];
  newHolds: HoldRow[];
  /** Expiry, owner and details have changed. */
  renewedHolds: HoldRow[];
  /** Holds that ended. */
  removedHolds: { organizationId: string; holdId: string }[];
  newRequests: RequestRow[];
  /** To insert, or in the place of the row with the same key. */
  keys: IdempotencyKeyRow[];
  removedKeys: { organizationId: string; key: string }[];
  newAdjustments: AdjustmentRow[];
  /** Records of the bookings that this batch made first. */
  newAuditEntries: AuditRow[];
}

export interface Decision {
  /** One for each transition, in their order. */
  outcomes: Outcome[];
  writes: BookWrites;
}
