import type { MicroCredits } from "../credits/amount.ts";
import type { Draw, EventBasis, EventEnd, HoldFacts, HoldState, RequestEnd, Trace } from "../credits/books.ts";
import type { TokenCounts } from "../credits/price.ts";

/** The request log: open holds and ended requests. */
export interface RequestRows {
  /**
   * The newest first. A search that takes long ends before its page is full; the next page starts at `next`, which is null
   * at the end.
   */
  requests(search: RequestSearch): Promise<{ rows: ListedRequest[]; next: string | null }>;
  request(id: string): Promise<ListedRequest | undefined>;
}

/** A request as it is listed: its late settlement is included in its tokens, draws and amounts. */
export interface ListedRequest {
  /** With the upstream and the prices of its last charge. */
  facts: HoldFacts;
  organizationName: string;
  /** Null for a token that does not exist any more. */
  tokenName: string | null;
  state: HoldState;
  amount: MicroCredits;
  tokens: TokenCounts;
  charged: MicroCredits;
  shortfall: MicroCredits;
  /** The sum of the credits that correct it. */
  credited: MicroCredits;
  draws: Draw[];
  madeAtMs: number;
  trace: Trace | null;
  /** The end of its last charge; null while it is running. */
  end: RequestEnd | null;
  /** At most two, in their order. */
  events: UsageEvent[];
}

/** A charge: of an ended request (0), or the signed differences of its late settlement (1). */
export interface UsageEvent extends HoldFacts {
  sequence: 0 | 1;
  tokens: TokenCounts;
  cost: MicroCredits;
  shortfall: MicroCredits;
  basis: EventBasis;
  end: EventEnd;
  madeAtMs: number;
  chargedAtMs: number;
}

/** Null: any. */
export interface RequestSearch {
  organizationId: string | null;
  tokenId: string | null;
  model: string | null;
  requestId: string | null;
  isRunning: boolean | null;
  /** Endings of the ended requests. */
  endings: readonly RequestEnd[] | null;
  hasFailed: boolean | null;
  fromMs: number | null;
  toMs: number | null;
  /** From here on back: `next` of the page before. */
  before: string | null;
  limit: number;
  /** Tells whether a row belongs to the page, once its events are known. */
  keep(row: ListedRequest): boolean;
}
