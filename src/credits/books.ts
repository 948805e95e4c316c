import type { PAYMENT, VOUCHER, VOUCHER_BATCH } from "../stores/admin-schema.ts";
import type {
  ADJUSTMENT,
  BALANCE,
  BROKEN_ATTEMPT,
  BUDGET,
  BUDGET_USE,
  GRANT,
  HOLD,
  KEY,
  NEW_VALUES,
  REQUEST,
} from "../stores/schema.ts";
import type { RowOf } from "../stores/table.ts";
import type { MicroCredits } from "./amount.ts";
import type { Audited, BookingAudit } from "./audit.ts";
import type { CallerKey, EventBasis, EventEnd, HoldFacts, RequestEnd, Trace } from "./facts.ts";
import type { TokenCounts } from "./price.ts";

/*
 * The rows of the books and the transitions between them. Both stores contain these rows, as `schema.ts` declares them, and
 * `decide.ts` turns rows and transitions into outcomes and the rows to write. Times are milliseconds since 1970 by the store's
 * clock.
 */

export type BalanceRow = RowOf<typeof BALANCE>;
export type BudgetRow = RowOf<typeof BUDGET>;
export type BudgetWindow = BudgetRow["window"];
export type BudgetUseRow = RowOf<typeof BUDGET_USE>;
export type NewValuesRow = RowOf<typeof NEW_VALUES>;
export type GrantRow = RowOf<typeof GRANT>;
export type HoldRow = RowOf<typeof HOLD>;
/** A request that ended. Inserted once and never changed. */
export type RequestRow = RowOf<typeof REQUEST>;
export type BrokenAttemptRow = RowOf<typeof BROKEN_ATTEMPT>;
export type IdempotencyKeyRow = RowOf<typeof KEY>;
/** Change of a balance other than a grant, a hold or a charge. Inserted once and never changed. */
export type AdjustmentRow = RowOf<typeof ADJUSTMENT>;

/** A payment, and how many of its credits were granted, revoked, withheld or are a debt. */
export type PaymentRow = RowOf<typeof PAYMENT>;

export type VoucherBatchRow = RowOf<typeof VOUCHER_BATCH>;
export type VoucherRow = RowOf<typeof VOUCHER>;

export type EndedState = "charged" | "released" | "recovered";
export type HoldState = "open" | EndedState;

export function endedStateOf(end: RequestEnd): EndedState {
  return end === "released" || end === "recovered" ? end : "charged";
}

export interface IdempotencyClaim extends CallerKey {
  /** Hash of the request's endpoint and body: the same key with others is refused. */
  fingerprint: string;
  keepMs: number;
}

/**
 * Reserves the available amount between `least` and `most`, at most what is left of each budget that covers the request, or
 * nothing. A key that was used before takes precedence: then nothing is held. A hold with an intent repeats the oldest broken
 * attempt of it, if there is one.
 */
export interface HoldTransition {
  kind: "hold";
  facts: HoldFacts;
  /** The first token of the rotations to the one that the request came with. */
  callerId: string;
  least: MicroCredits;
  most: MicroCredits;
  lifeMs: number;
  /** The process that renews the hold. */
  owner: string;
  idempotency?: IdempotencyClaim | null;
  /** Requests of the caller per minute that may have a new value; see `NEW_VALUES`. Absent: any number. */
  newValuesMost?: number;
}
/**
 * Extends a hold's life and stores a checkpoint: the charge of an expiry, at `facts.prices`. A hold that the store lost is
 * created again, as far as credits are available.
 */
export interface RenewTransition {
  kind: "renew";
  facts: HoldFacts;
  amount: MicroCredits;
  /** Delivered so far: the input, and what was streamed to the client. */
  tokens: TokenCounts;
  lifeMs: number;
  owner: string;
}
/** Charges tokens at `facts.prices`, those of the route that was taken. */
export interface SettleTransition {
  kind: "settle";
  facts: HoldFacts;
  tokens: TokenCounts;
  basis: EventBasis;
  end: EventEnd;
  /** JSON text, stored under the hold's idempotency key if it has one. */
  answer?: string | null;
  trace?: Trace | null;
}
/**
 * Returns the whole hold, and frees the idempotency key. Without a hold, the request is recorded as released, so that a
 * hold that arrives later is refused.
 */
export interface ReleaseTransition {
  kind: "release";
  facts: HoldFacts;
  trace?: Trace | null;
}
/** Charges a hold at its checkpoint and ends it, if it is past its expiry or still as it was claimed. */
export interface ExpireTransition {
  kind: "expire";
  organizationId: string;
  holdId: string;
  claim?: HoldClaim;
}
/** State of a hold that is no longer renewed, as the sweeper read it: the hold is kept if it has changed since. */
export interface HoldClaim {
  owner: string;
  expiresAtMs: number;
  /** Time since its expiry that is required by the store's clock; null: none. */
  afterExpiryMs: number | null;
}
export interface GrantTransition
  extends Audited,
    Pick<GrantRow, "organizationId" | "amount" | "expiresAtMs" | "priority" | "reference"> {
  kind: "grant";
  grantId: string;
  /** Null: at once. */
  effectiveAtMs: number | null;
}
/** Revokes credits that are neither held nor spent, in the order in which grants are drawn down: all of `amount` or nothing. */
export interface RevokeTransition extends Audited, Pick<AdjustmentRow, "organizationId" | "reference" | "note"> {
  kind: "revoke";
  adjustmentId: string;
  /** Null: all available credits, which may be 0. */
  amount: MicroCredits | null;
  /** Null: from every active grant. A named grant may also be pending. */
  grantId: string | null;
  /** Present while the organization is being closed: no warning says that its credits are used up. */
  isClosing?: true;
}
/**
 * Refunds spent credits: all of `amount` or nothing. The refund is a grant of its own, whose id is the adjustment's: the
 * grants that the credits were drawn from may have expired.
 */
export interface CreditTransition
  extends Audited,
    Pick<AdjustmentRow, "organizationId" | "amount" | "expiresAtMs" | "reference" | "note"> {
  kind: "credit";
  adjustmentId: string;
  /** The request whose charge is corrected; null: goodwill. */
  holdId: string | null;
  priority: number;
}
/**
 * Books the present state of a payment at Stripe: the credits of a new one, and those of refunds and disputes that were made or
 * undone. `revision` is that of the row that was read before Stripe was asked, 0 for none.
 */
export interface PaymentTransition
  extends Pick<
    PaymentRow,
    "organizationId" | "id" | "currency" | "amount" | "refunded" | "disputed" | "credits" | "revision"
  > {
  kind: "payment";
  audit: BookingAudit;
}
/** Redeems a voucher, with the terms of its batch, which never change: grants its credits to one organization, once. */
export interface RedeemTransition extends Pick<VoucherBatchRow, "amount" | "priority" | "creditDays" | "expiresAtMs"> {
  kind: "redeem";
  organizationId: string;
  voucherId: string;
  audit: BookingAudit;
}
/** Activates and expires the grants that are due, and returns the balance. */
export interface RefreshTransition {
  kind: "refresh";
  organizationId: string;
}
export type Transition =
  | HoldTransition
  | RenewTransition
  | SettleTransition
  | ReleaseTransition
  | ExpireTransition
  | GrantTransition
  | RevokeTransition
  | CreditTransition
  | PaymentTransition
  | RedeemTransition
  | RefreshTransition;
