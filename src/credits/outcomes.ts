import type { MicroCredits } from "./amount.ts";
import type { AdjustmentRow, BalanceRow, EndedState, GrantRow, HoldState, PaymentRow } from "./books.ts";
import type { BudgetState } from "./budgets.ts";
import type { RecordedUses } from "./facts.ts";

/** The budgets that cover a request that was admitted; absent if there is none. */
export interface Covered {
  budgets: RecordedUses;
  /** The budget with the least left, the hold included; absent if all of them were deleted since. */
  tightest?: BudgetState;
}
/** Why a hold was refused. */
export interface Shortage {
  /** The budget that has too little left; absent: the organization has too few credits. */
  budget?: BudgetState;
  available: MicroCredits;
  /** Amount that the request could have held: the available credits, at most what is left of each budget. */
  reach: MicroCredits;
}
/** State of the first request with the key. */
export type KeyOutcome =
  | { outcome: "replayed"; answer: string; charged: MicroCredits; available: MicroCredits }
  | { outcome: "in_progress" }
  /** It ended without a stored answer. */
  | { outcome: "interrupted" }
  /** It had another endpoint or body. */
  | { outcome: "mismatch" };
export type GrantTerms = Pick<GrantRow, "id" | "amount" | "effectiveAtMs" | "expiresAtMs" | "priority" | "createdAtMs">;
/** The organization has another adjustment of the same kind under this reference. */
export type AdjustmentMismatch = { outcome: "reference_mismatch"; first: AdjustmentRow };
type Missing = { outcome: "missing" };
/** The request belongs to a closed period, so nothing is booked. */
type Closed = { outcome: "closed"; beforeMs: number };
/** A hold of this id ended before. */
type Ended = { outcome: "ended"; state: EndedState };

/** The outcomes of a kind of transition on an organization that exists. */
interface Decided {
  hold:
    | { outcome: "held"; amount: MicroCredits; available: MicroCredits; covered?: Covered }
    /** The credits would not suffice even if every running request returned its hold. */
    | ({ outcome: "insufficient" } & Shortage)
    /** Running requests hold the missing amount. */
    | ({ outcome: "busy"; held: MicroCredits } & Shortage)
    /** The caller has had `most` requests with a new value in this minute. */
    | { outcome: "too_many_values"; budget: BudgetState; most: number; waitMs: number }
    | Ended
    | KeyOutcome;
  renew: { outcome: "renewed"; remade: boolean } | Ended;
  settle:
    | { outcome: "charged"; charged: MicroCredits; shortfall: MicroCredits; available: MicroCredits }
    | { outcome: "released" }
    | Closed;
  release: { outcome: "released"; available: MicroCredits } | { outcome: "charged" | "recovered" } | Closed;
  expire:
    | { outcome: "expired"; charged: MicroCredits; shortfall: MicroCredits }
    /** Renewed, or ended by its owner, since the sweeper read it. */
    | { outcome: "kept"; state: HoldState }
    | Missing;
  grant:
    | { outcome: "granted"; grantId: string; balance: BalanceRow; repeated: boolean }
    /** The organization has another grant under this reference. */
    | { outcome: "reference_mismatch"; first: GrantTerms };
  revoke:
    | { outcome: "revoked"; adjustment: AdjustmentRow; balance: BalanceRow; repeated: boolean }
    /** More than is available, or than remains of the grant. */
    | { outcome: "excessive"; most: MicroCredits }
    | AdjustmentMismatch
    | { outcome: "unknown_grant" };
  credit:
    | { outcome: "credited"; adjustment: AdjustmentRow; balance: BalanceRow; repeated: boolean }
    /** More than was spent, or than the hold was charged and not credited yet. */
    | { outcome: "excessive"; most: MicroCredits }
    | AdjustmentMismatch
    | Closed
    | Missing;
  payment:
    | { outcome: "booked"; payment: PaymentRow; changed: boolean }
    /** The row has changed since it was read. */
    | { outcome: "outdated" }
    /** The organization has a grant under this reference that was not made for the payment. */
    | { outcome: "granted_before"; grantId: string };
  redeem:
    | { outcome: "granted"; grantId: string; balance: BalanceRow; repeated: boolean }
    /** `redeemed`: by another organization. `closed`: the organization is. */
    | { outcome: "unusable"; reason: "redeemed" | "revoked" | "expired" | "closed" };
  refresh: { outcome: "refreshed"; balance: BalanceRow };
}

export type Outcomes = { [Kind in keyof Decided]: Decided[Kind] | { outcome: "unknown_organization" } };
export type Outcome = Outcomes[keyof Outcomes];
