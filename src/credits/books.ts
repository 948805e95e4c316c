import type { MicroCredits } from "./amount.ts";
import type { TokenCounts, UnitPrices } from "./price.ts";

/**
 * The rows of the books and the transitions between them. Both stores keep these rows, and `decide.ts` turns rows and
 * transitions into outcomes and the rows to write. Times are milliseconds since 1970 by the store's clock.
 */
export interface BalanceRow {
  organizationId: string;
  granted: MicroCredits;
  available: MicroCredits;
  held: MicroCredits;
  spent: MicroCredits;
  expired: MicroCredits;
  /** When a grant next takes effect or lapses; null when none will. */
  nextChangeAtMs: number | null;
}

/** Of a token with a credit cap; locked after the balances. What is spent may pass the cap: a settlement is never refused. */
export interface TokenBalanceRow {
  organizationId: string;
  tokenId: string;
  /**
   * The token that this one goes back to by rotations, in whose row the cap is that all of them share: nothing is booked
   * in this one. Null: it has its own.
   */
  budgetId: string | null;
  cap: MicroCredits;
  held: MicroCredits;
  /** The costs of its events, less the credits that corrected them. */
  spent: MicroCredits;
}

export interface GrantRow {
  organizationId: string;
  id: string;
  /** A `credit` holds what was given back of what had been spent: it is not counted as granted again. */
  source: "grant" | "credit";
  amount: MicroCredits;
  /** What was taken back of it by revocations. */
  revoked: MicroCredits;
  /** What is neither held nor spent nor lapsed of it: 0 while pending, so that what remains of all grants is what is available. */
  remaining: MicroCredits;
  state: "pending" | "active" | "lapsed";
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

/** What is known of a request before its first attempt; enough to write its event on any node. */
export interface HoldFacts {
  /** UUIDv7, made by the caller before the first attempt. */
  holdId: string;
  organizationId: string;
  tokenId: string;
  requestId: string;
  model: string;
  /** `provider/model` of the upstream. */
  upstream: string;
  prices: UnitPrices;
  /** The request's own `metadata`, handed on to the usage event. */
  metadata: Record<string, string> | null;
}

/** One call of an upstream on behalf of a request. */
export interface Attempt {
  /** `provider/model` */
  route: string;
  outcome: string;
  durationMs: number;
  /** Tokens that the upstream reported, where others were charged. */
  reported?: TokenCounts;
}

/** How a request went, for those who look into it later; no charge depends on it. */
export interface Trace {
  isStreamed: boolean;
  /** From admission to the first piece of the answer; null where there was none. */
  firstTokenMs: number | null;
  attempts: Attempt[] | null;
  /** Error code of a request that was released or broke off. */
  failure: string | null;
}

export type HoldState = "open" | "charged" | "released" | "expired";

export interface HoldRow extends HoldFacts {
  amount: MicroCredits;
  /** Delivered at the last checkpoint. */
  tokens: TokenCounts;
  idempotencyKey: string | null;
  madeAtMs: number;
  expiresAtMs: number;
  /** Open: what is set aside of which grant. Charged or expired: what was taken of which grant. */
  draws: Draw[];
  state: HoldState;
  charged: MicroCredits;
  shortfall: MicroCredits;
  /** What credits that name the hold gave back of what was charged. */
  credited: MicroCredits;
  trace: Trace | null;
}

export interface IdempotencyKeyRow {
  organizationId: string;
  key: string;
  fingerprint: string;
  holdId: string;
  /** JSON text of the answer, once there is one. */
  answer: string | null;
  createdAtMs: number;
  expiresAtMs: number;
}

/** What changed a balance beside grants and charges: by an operator's hand, or by a grant's end. Appended and never changed. */
export interface AdjustmentRow {
  organizationId: string;
  id: string;
  kind: "revoke" | "credit" | "lapse";
  amount: MicroCredits;
  /** Revoked or lapsed: from which grants. Credited: to the grant that was made for it. */
  draws: Draw[];
  /** Whether a revocation asked for everything that was available, and not for an amount. */
  isAll: boolean;
  /** The grant that a revocation named. */
  grantId: string | null;
  /** When what is left of a credit lapses. */
  expiresAtMs: number | null;
  /** Of a credit that corrects a charge. */
  holdId: string | null;
  tokenId: string | null;
  reference: string | null;
  note: string | null;
  madeAtMs: number;
}

/**
 * Where the charged tokens come from: the upstream's report, the service's own count, the bound of the hold where the
 * report was above it, or an estimate where the client disconnected and the output was not visible.
 */
export const BASES = ["reported", "counted", "bounded", "estimated"] as const;
export type EventBasis = (typeof BASES)[number];
export type EventEnd = "complete" | "client_left" | "upstream_failed" | "timed_out" | "recovered";

/** The sums over both events of a hold are what it came to: tokens, cost and shortfall of event 1 are signed differences. */
export interface UsageEventRow extends HoldFacts {
  /** 0 with the charge or the expiry, 1 for the signed difference of a late settlement. */
  sequence: 0 | 1;
  tokens: TokenCounts;
  cost: MicroCredits;
  shortfall: MicroCredits;
  basis: EventBasis;
  end: EventEnd;
  madeAtMs: number;
  chargedAtMs: number;
}

/** A request's claim to be the first with its key. */
export interface IdempotencyClaim {
  key: string;
  /** Of the request's body: the same key with another body is refused. */
  fingerprint: string;
  keepMs: number;
}

/**
 * A hold takes what is available between `least` and `most`, at most what its token's cap leaves, or nothing. A key that
 * was used before is looked at first: then nothing is held.
 */
export interface HoldTransition {
  kind: "hold";
  facts: HoldFacts;
  least: MicroCredits;
  most: MicroCredits;
  lifeMs: number;
  idempotency?: IdempotencyClaim | null;
}
/**
 * Lengthens a hold's life and leaves a checkpoint: what an expiry would charge, at `facts.prices`. A hold that the store
 * lost is made again, as far as credits reach.
 */
export interface RenewTransition {
  kind: "renew";
  facts: HoldFacts;
  /** What was held. */
  amount: MicroCredits;
  /** Delivered so far: the input, and what was streamed to the client. */
  tokens: TokenCounts;
  lifeMs: number;
}
/** Charges tokens at `facts.prices`, those of the route that was taken. */
export interface SettleTransition {
  kind: "settle";
  facts: HoldFacts;
  tokens: TokenCounts;
  basis: EventBasis;
  end: EventEnd;
  /** JSON text, kept under the hold's idempotency key where it has one. */
  answer?: string | null;
  trace?: Trace | null;
}
/** Gives back everything that was held, and frees the hold's idempotency key. */
export interface ReleaseTransition {
  kind: "release";
  organizationId: string;
  holdId: string;
  trace?: Trace | null;
}
export interface ExpireTransition {
  kind: "expire";
  organizationId: string;
  holdId: string;
}
export interface GrantTransition {
  kind: "grant";
  organizationId: string;
  grantId: string;
  amount: MicroCredits;
  /** Null: at once. */
  effectiveAtMs: number | null;
  expiresAtMs: number | null;
  priority: number;
  reference: string | null;
}
/** Takes back credits that are neither held nor spent, in the order in which grants are drawn down: all of `amount` or nothing. */
export interface RevokeTransition {
  kind: "revoke";
  organizationId: string;
  adjustmentId: string;
  /** Null: all that is available, which may be 0. */
  amount: MicroCredits | null;
  /** Null: of every grant in force. Named, also of one that has not taken effect yet. */
  grantId: string | null;
  reference: string | null;
  note: string | null;
}
/**
 * Gives back what was spent, at most what was: all of it or nothing. What is given back is a grant of its own, whose id is
 * the adjustment's: the grants that it was drawn from may have lapsed.
 */
export interface CreditTransition {
  kind: "credit";
  organizationId: string;
  adjustmentId: string;
  amount: MicroCredits;
  /** The hold whose charge it corrects; null: goodwill. */
  holdId: string | null;
  expiresAtMs: number | null;
  priority: number;
  reference: string | null;
  note: string | null;
}
/** Applies what is due (grants that take effect or lapse) and tells the balance. */
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

export type HoldOutcome =
  | { outcome: "held"; amount: MicroCredits; available: MicroCredits }
  /** The credits are gone: not even with every running request's hold given back would they reach. */
  | ({ outcome: "insufficient" } & Shortage)
  /** Running requests hold what is missing. */
  | ({ outcome: "busy"; held: MicroCredits } & Shortage)
  /** A hold of this id ended before. */
  | Ended
  | KeyOutcome;
/** What a hold met that was too little. */
export interface Shortage {
  limitedBy: "organization" | "token";
  available: MicroCredits;
  /** What the request could have had: what is available, at most what its token's cap leaves. */
  reach: MicroCredits;
}
/** What became of the first request with the key. */
export type KeyOutcome =
  | { outcome: "replayed"; answer: string; charged: MicroCredits; available: MicroCredits }
  | { outcome: "in_progress" }
  /** It ended without an answer that could be given again. */
  | { outcome: "interrupted" }
  /** It had another body. */
  | { outcome: "mismatch" };
export type RenewOutcome = { outcome: "renewed"; remade: boolean } | Ended;
export type SettleOutcome =
  | { outcome: "charged"; charged: MicroCredits; shortfall: MicroCredits; available: MicroCredits }
  | { outcome: "released" };
export type ReleaseOutcome =
  | { outcome: "released"; available: MicroCredits }
  | { outcome: "charged" | "expired" }
  | Missing;
export type ExpireOutcome =
  | { outcome: "expired"; charged: MicroCredits; shortfall: MicroCredits }
  /** Renewed, or ended by its owner, since the sweeper read it. */
  | { outcome: "kept"; state: HoldState }
  | Missing;
export type GrantOutcome =
  | { outcome: "granted"; grantId: string; balance: BalanceRow; repeated: boolean }
  /** The organization has another grant under this reference. */
  | { outcome: "reference_mismatch"; first: GrantTerms };
/** Terms under which a grant was made. */
export type GrantTerms = Pick<GrantRow, "id" | "amount" | "effectiveAtMs" | "expiresAtMs" | "priority" | "createdAtMs">;
/** The organization has another adjustment of the same kind under this reference. */
export type AdjustmentMismatch = { outcome: "reference_mismatch"; first: AdjustmentRow };
export type RevokeOutcome =
  | { outcome: "revoked"; adjustment: AdjustmentRow; balance: BalanceRow; repeated: boolean }
  /** More than is available, or than is left of the grant. */
  | { outcome: "excessive"; most: MicroCredits }
  | AdjustmentMismatch
  | { outcome: "unknown_grant" };
export type CreditOutcome =
  | { outcome: "credited"; adjustment: AdjustmentRow; balance: BalanceRow; repeated: boolean }
  /** More than was spent, or than the hold was charged and not credited yet. */
  | { outcome: "excessive"; most: MicroCredits }
  | AdjustmentMismatch
  | Missing;
export type RefreshOutcome = { outcome: "refreshed"; balance: BalanceRow };
type Missing = { outcome: "missing" };
type Ended = { outcome: "ended"; state: Exclude<HoldState, "open"> };
export type UnknownOrganization = { outcome: "unknown_organization" };

/** The outcome that belongs to a kind of transition. */
export interface Outcomes {
  hold: HoldOutcome | UnknownOrganization;
  renew: RenewOutcome | UnknownOrganization;
  settle: SettleOutcome | UnknownOrganization;
  release: ReleaseOutcome | UnknownOrganization;
  expire: ExpireOutcome | UnknownOrganization;
  grant: GrantOutcome | UnknownOrganization;
  revoke: RevokeOutcome | UnknownOrganization;
  credit: CreditOutcome | UnknownOrganization;
  refresh: RefreshOutcome | UnknownOrganization;
}
export type Outcome = Outcomes[keyof Outcomes];

/** The rows that a batch concerns, read under the locks of its balances. What it names: `names.ts`. */
export interface BookRows {
  nowMs: number;
  balances: BalanceRow[];
  /** Of the tokens that the batch and its holds name, and those that these share a cap with. */
  tokenBalances: TokenBalanceRow[];
  /** Of those organizations: every grant pending or with something remaining, those that the holds draw on, those with an id or a reference that the batch names. */
  grants: GrantRow[];
  /** The holds that the batch names, and those of the keys that it names. */
  holds: HoldRow[];
  /** The keys that the batch names, and those of the holds that it names. */
  keys: IdempotencyKeyRow[];
  /** Those with an id, or a kind and a reference, that the batch names. */
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
  /** Still open: life, checkpoint, upstream and prices have changed. */
  renewedHolds: HoldRow[];
  /** No longer open: beside that of a renewal, what was drawn and charged, the state and the trace have changed. */
  endedHolds: HoldRow[];
  events: UsageEventRow[];
  /** To insert, or in the place of the row with the same key. */
  keys: IdempotencyKeyRow[];
  removedKeys: { organizationId: string; key: string }[];
  newAdjustments: AdjustmentRow[];
}

export interface Decision {
  /** One for each transition, in their order. */
  outcomes: Outcome[];
  writes: BookWrites;
}
