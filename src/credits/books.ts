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

export interface GrantRow {
  organizationId: string;
  id: string;
  amount: MicroCredits;
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
}

export type EventBasis = "reported" | "counted";
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

/** A hold takes what is available between `least` and `most`, or nothing. */
export interface HoldTransition {
  kind: "hold";
  facts: HoldFacts;
  least: MicroCredits;
  most: MicroCredits;
  lifeMs: number;
}
export interface RenewTransition {
  kind: "renew";
  organizationId: string;
  holdId: string;
  lifeMs: number;
}
/** Charges tokens at `facts.prices`, those of the route that was taken. */
export interface SettleTransition {
  kind: "settle";
  facts: HoldFacts;
  tokens: TokenCounts;
  basis: EventBasis;
  end: EventEnd;
}
export interface ReleaseTransition {
  kind: "release";
  organizationId: string;
  holdId: string;
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
  | RefreshTransition;

export type HoldOutcome =
  | { outcome: "held"; amount: MicroCredits; available: MicroCredits }
  /** The credits are gone: not even with every running request's hold given back would they reach. */
  | { outcome: "insufficient"; available: MicroCredits }
  /** Running requests hold what is missing. */
  | { outcome: "busy"; available: MicroCredits; held: MicroCredits }
  /** A hold of this id ended before. */
  | { outcome: "ended"; state: Exclude<HoldState, "open"> };
export type RenewOutcome = { outcome: "renewed" } | { outcome: "ended"; state: Exclude<HoldState, "open"> } | Missing;
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
export type GrantOutcome = { outcome: "granted"; grantId: string; balance: BalanceRow; repeated: boolean };
export type RefreshOutcome = { outcome: "refreshed"; balance: BalanceRow };
type Missing = { outcome: "missing" };
export type UnknownOrganization = { outcome: "unknown_organization" };

/** The outcome that belongs to a kind of transition. */
export interface Outcomes {
  hold: HoldOutcome | UnknownOrganization;
  renew: RenewOutcome | UnknownOrganization;
  settle: SettleOutcome | UnknownOrganization;
  release: ReleaseOutcome | UnknownOrganization;
  expire: ExpireOutcome | UnknownOrganization;
  grant: GrantOutcome | UnknownOrganization;
  refresh: RefreshOutcome | UnknownOrganization;
}
export type Outcome = Outcomes[keyof Outcomes];

/** The rows that a batch concerns, read under the locks of its balances. */
export interface BookRows {
  nowMs: number;
  balances: BalanceRow[];
  /** Of those organizations: every grant pending or with something remaining, those that the holds draw on, those with an id or a reference that a grant of the batch names. */
  grants: GrantRow[];
  /** The holds that the batch names. */
  holds: HoldRow[];
}

/** The rows to write, each the whole row in its new state, each at most once. */
export interface BookWrites {
  balances: BalanceRow[];
  newGrants: GrantRow[];
  changedGrants: GrantRow[];
  newHolds: HoldRow[];
  changedHolds: HoldRow[];
  events: UsageEventRow[];
}

export interface Decision {
  /** One for each transition, in their order. */
  outcomes: Outcome[];
  writes: BookWrites;
}
