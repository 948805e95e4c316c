import type { MicroCredits } from "./amount.ts";
import type { TokenCounts, UnitPrices } from "./price.ts";

/* The facts of requests that rows of the books and transitions contain. */

/** The counter of a budget that a request uses for good: that of its value, in the window in which it was admitted. */
export interface BudgetUse {
  budgetId: string;
  /** First millisecond of the window, in UTC; 0 for a lifetime. */
  windowAtMs: number;
  /** Empty for a budget without `each`. */
  value: string;
}

/** The counters that a request uses, as the text that is stored with it: see `budget-uses.ts`. Null: none. */
export type RecordedUses = string | null;

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
  budgets?: RecordedUses;
  /** Set before the hold only for a retry, and later for every request that a retry may repeat. */
  intent?: Intent | null;
}

/** Identifies the requests of a caller with the same endpoint and body, one of which may be a retry of another. */
export interface Intent {
  callerId: string;
  /** Hash of the endpoint and body. */
  fingerprint: string;
}

/** The broken attempt that a request repeats. Of its price, only the part above `paid` is charged. */
export interface Retry {
  of: string;
  /** Sum of the charges of this attempt and of those before it. */
  paid: MicroCredits;
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
  providerResponseId: string | null;
  /** The provider's own cost, as a decimal number in its own unit. */
  providerCost: string | null;
}

/** The facts that another process needs to charge an open hold. */
export interface HoldDetails
  extends Omit<HoldFacts, "holdId" | "organizationId" | "tokenId" | "prices" | "budgets" | "intent"> {
  intent: Intent | null;
  retry: Retry | null;
  /** The tokens delivered at the last checkpoint, and their prices: see `charge-lines.ts`. */
  charge: string;
}

/** The settlement of a request that had been recovered. Tokens and shortfall are signed differences to the request. */
export interface LateSettlement {
  /** See `charge-lines.ts`. */
  charge: string;
  inputTokens: number;
  outputTokens: number;
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
