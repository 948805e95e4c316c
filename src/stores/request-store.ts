import type { HoldRow, HoldState, UsageEventRow } from "../credits/books.ts";

/** Requests as they are looked through: holds, with what was charged for them. */
export interface RequestRows {
  /**
   * The newest first. A search that takes long ends before its page is full; `next` is where it goes on, and null at the
   * end.
   */
  requests(search: RequestSearch): Promise<{ rows: RequestRow[]; next: string | null }>;
  request(id: string): Promise<RequestRow | undefined>;
}

export interface RequestRow {
  hold: HoldRow;
  organizationName: string;
  /** Null for a token that is not there any more. */
  tokenName: string | null;
  /** At most two, in their order. */
  events: UsageEventRow[];
}

/** Null: any. */
export interface RequestSearch {
  organizationId: string | null;
  tokenId: string | null;
  model: string | null;
  requestId: string | null;
  states: readonly HoldState[] | null;
  hasFailed: boolean | null;
  fromMs: number | null;
  toMs: number | null;
  /** From here on back: `next` of the page before. */
  before: string | null;
  limit: number;
  /** What is asked of a row once its events are known. */
  keep(row: RequestRow): boolean;
}
