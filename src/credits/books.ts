import type { MicroCredits } from "./amount.ts";
import type { Audited } from "./audit.ts";
import type { TokenCounts, UnitPrices } from "./price.ts";

/**
 * The rows of the books and the transitions between them. Both stores contain these rows, and `decide.ts` turns rows and
 * transitions into outcomes and the rows to write. Times are milliseconds since 1970 by the store's clock.
 */
export interface BalanceRow {
  organizationId: string;
  granted: MicroCredits;
  available: MicroCredits;
  held: MicroCredits;
  spent: MicroCredits;
  expired: MicroCredits;
  /** When a grant next takes effect or expires; null if none will. */
  nextChangeAtMs: number | null;
  /** Requests that began before are closed: nothing more is booked for them. Null: none is closed. */
  closedBeforeMs: number | null;
  /** Counts the changes of its budgets; 0: it never had one. */
  budgetVersion: number;
}

export type BudgetWindow = "day" | "week" | "month" | "lifetime";

/** A limit on what some requests of an organization may spend in each window of time. Selector, `each` and window never change. */
export interface BudgetRow {
  organizationId: string;
  id: string;
  name: string;
  /** The callers that it covers, each by the first token of its rotations; null: all. */
  callerIds: string[] | null;
  /** The models that it covers, with `*` at the end for all that begin so; null: all. */
  models: string[] | null;
  /** The values that a request must have of each of these metadata keys; null: any. */
  metadata: Record<string, string[]> | null;
  /** `token`, `model` or `metadata.` and a key: each value has the whole amount for itself. Null: all share it. */
  each: string | null;
  window: BudgetWindow;
  amount: MicroCredits;
  /** The caller whose spending cap it is; null: it is none. */
  capOf: string | null;
  createdAtMs: number;
}

/** The counter of a budget that a request uses for good: that of its value, in the window in which it was admitted. */
export interface BudgetUse {
  budgetId: string;
  /** First millisecond of the window, in UTC; 0 for a lifetime. */
  windowAtMs: number;
  /** Empty for a budget without `each`. */
  value: string;
}

/**
 * A counter of a budget; locked after the balances. It may exceed the amount after the amount was lowered: a settlement is
 * never refused.
 */
export interface BudgetUseRow extends BudgetUse {
  organizationId: string;
  /** The open holds that recorded it. */
  held: MicroCredits;
  /** The opening amount and the charges of the requests that recorded it, less the credits that corrected them. */
  spent: MicroCredits;
  /** The part that was spent before a cap was set, or by requests that are closed. */
  opening: MicroCredits;
  /** The amount that raises add in this window. */
  raised: MicroCredits;
}

export interface GrantRow {
  organizationId: string;
  id: string;
  /** A `credit` is a refund of spent credits: it is not counted as granted again. */
  source: "grant" | "credit";
  amount: MicroCredits;
  /** Revoked part of the amount. */
  revoked: MicroCredits;
  /** Part that is neither held nor spent nor expired: 0 while pending, so that the sum over all grants is the available amount. */
  remaining: MicroCredits;
  state: "pending" | "active" | "expired";
  effectiveAtMs: number;
  expiresAtMs: number | null;
  /** Lower is drawn first. */
  priority: number;
  reference: string | null;
  createdAtMs: number;
}

export interface Draw {
  grantId: string;
  amount: MicroCredits;
}

/** Facts of a request that are known before its first attempt; enough to charge it on any node. */
export interface HoldFacts {
  /** UUIDv7, made by the caller before the first attempt. Also the id of the ended request. */
  holdId: string;
  organizationId: string;
  tokenId: string;
  requestId: string;
  model: string;
  /** `provider/model` of the upstream. */
  upstream: string;
  prices: UnitPrices;
  /** The request's own `metadata`, copied to the ended request. */
  metadata: Record<string, string> | null;
  /** Key that the request came with. */
  idempotencyKey: CallerKey | null;
  /** The counters that its hold recorded; absent before the hold. */
  budgets?: readonly BudgetUse[];
}

/** An idempotency key. Those of one caller are not known to the others of its organization. */
export interface CallerKey {
  callerId: string;
  key: string;
}

/** One call of an upstream on behalf of a request. */
export interface Attempt {
  /** `provider/model` */
  route: string;
  outcome: string;
  durationMs: number;
  /** Tokens that the upstream reported, if others were charged. */
  reported?: TokenCounts;
}

/** Details of a request for later inspection; no charge depends on them. */
export interface Trace {
  isStreamed: boolean;
  /** From admission to the first piece of the answer; null if there was none. */
  firstTokenMs: number | null;
  attempts: Attempt[] | null;
  /** Error code of a request that was released or broke off. */
  failure: string | null;
  /** The provider's own id of the answer. */
  providerResponseId: string | null;
  /** The provider's own cost, as a decimal number in its own unit. */
  providerCost: string | null;
}

/** State of a request that ended. */
export type EndedState = "charged" | "released" | "recovered";
export type HoldState = "open" | EndedState;

/** An open hold. */
export interface HoldRow {
  organizationId: string;
  holdId: string;
  tokenId: string;
  amount: MicroCredits;
  /** Amounts reserved of each grant; they add up to `amount`. */
  draws: Draw[];
  /** The counters that its amount, its charge and all corrections count in. */
  budgets: readonly BudgetUse[];
  /** The process that renews it. */
  owner: string;
  madeAtMs: number;
  expiresAtMs: number;
  details: HoldDetails;
}

/** The facts that another process needs to charge an open hold. */
export interface HoldDetails extends Omit<HoldFacts, "holdId" | "organizationId" | "tokenId" | "prices" | "budgets"> {
  /** The tokens delivered at the last checkpoint, and their prices: see `charge-lines.ts`. */
  charge: string;
}

/** A request that ended. Inserted once and never changed. */
export interface RequestRow extends Omit<HoldFacts, "prices"> {
  /** Amount that was held when it ended. */
  amount: MicroCredits;
  /** Its tokens and prices: see `charge-lines.ts`. */
  charge: string;
  /** Sums of these tokens. */
  inputTokens: number;
  outputTokens: number;
  cost: MicroCredits;
  /** Part of the price that the credits did not cover. */
  shortfall: MicroCredits;
  /** Amounts spent of each grant; they add up to `cost`. */
  draws: Draw[];
  budgets: readonly BudgetUse[];
  /** Null for a released request. */
  basis: EventBasis | null;
  end: RequestEnd;
  madeAtMs: number;
  endedAtMs: number;
  /** True if it was booked more than a day away from the time in its id. */
  isLate: boolean;
  trace: Trace | null;
}

export interface IdempotencyKeyRow extends CallerKey {
  organizationId: string;
  fingerprint: string;
  holdId: string;
  /** JSON text of the answer, once there is one. */
  answer: string | null;
  createdAtMs: number;
  expiresAtMs: number;
}

/** Change of a balance other than a grant, a hold or a charge. Inserted once and never changed. */
export interface AdjustmentRow {
  organizationId: string;
  id: string;
  kind: "revoke" | "credit" | "lapse" | "late_settlement";
  /** Signed for a late settlement: the difference to the cost that the request was charged. */
  amount: MicroCredits;
  /**
   * Revoked or expired: from these grants. Credited: to the grant that was made for it. Late settlement: signed, below 0
   * if it returned to the grant.
   */
  draws: Draw[];
  /** True for a revocation of all available credits instead of an amount. */
  isAll: boolean;
  /** The grant that a revocation named. */
  grantId: string | null;
  /** Expiry of a credit, or the time at which an expiry was due. */
  expiresAtMs: number | null;
  /** The request that a credit or a late settlement corrects. */
  holdId: string | null;
  tokenId: string | null;
  /** The counters that this request recorded. */
  budgets: readonly BudgetUse[];
  reference: string | null;
  note: string | null;
  madeAtMs: number;
  /** Set for late settlements only. */
  settlement: LateSettlement | null;
}

/** The settlement of a request that had been recovered. Tokens and shortfall are signed differences to the request. */
export interface LateSettlement extends Pick<RequestRow, "charge" | "inputTokens" | "outputTokens"> {
  upstream: string;
  shortfall: MicroCredits;
  basis: EventBasis;
  end: EventEnd;
  trace: Trace | null;
}

/** Reported by the provider, counted by the service, limited to the bound of the hold, or estimated if output is not visible. */
export type EventBasis = "reported" | "counted" | "bounded" | "estimated";
export type EventEnd =
  | "complete"
  | "client_disconnected"
  | "upstream_failed"
  | "timed_out"
  | "service_failed"
  | "recovered";
export type RequestEnd = EventEnd | "released";

export function endedStateOf(end: RequestEnd): EndedState {
  return end === "released" || end === "recovered" ? end : "charged";
}

/** Claim of a request to be the first with its idempotency key. */
export interface IdempotencyClaim extends CallerKey {
  /** Hash of the request's endpoint and body: the same key with others is refused. */
  fingerprint: string;
  keepMs: number;
}

/**
 * Reserves the available amount between `least` and `most`, at most what is left of each budget that covers the request, or
 * nothing. A key that was used before takes precedence: then nothing is held.
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
}
/**
 * Extends a hold's life and stores a checkpoint: the charge of an expiry, at `facts.prices`. A hold that the store lost is
 * created again, as far as credits are available.
 */
export interface RenewTransition {
  kind: "renew";
  facts: HoldFacts;
  /** Amount held. */
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
  | RefreshTransition;
