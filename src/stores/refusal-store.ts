/** Requests of known organizations that were refused before credits were held for them. The books do not rest on them. */
export interface RefusalRow {
  /** UUIDv7 of the moment of the refusal. */
  id: string;
  organizationId: string;
  tokenId: string;
  requestId: string;
  /** Method and route. */
  endpoint: string;
  model: string | null;
  status: number;
  code: string;
  /** The message that the caller received. */
  message: string;
  durationMs: number;
  /** How many requests the row stands for; the facts are those of the first. */
  count: number;
}

/** A refusal with the names that a list shows. */
export interface RefusalEntry extends RefusalRow {
  organizationName: string;
  /** Null for a token that is not there any more. */
  tokenName: string | null;
}

/** Null: any. */
export interface RefusalSearch {
  organizationId: string | null;
  tokenId: string | null;
  model: string | null;
  requestId: string | null;
  fromMs: number | null;
  toMs: number | null;
  /** Ids below this one. */
  before: string | null;
  limit: number;
}

export interface RefusalRows {
  /** Writes rows in one transaction, which need not survive a crash of the store. */
  insert(rows: readonly RefusalRow[]): Promise<void>;
  /** The newest first. */
  search(search: RefusalSearch): Promise<RefusalEntry[]>;
  find(id: string): Promise<RefusalEntry | undefined>;
  /** Removes those of before a time, at most `limit`; gives how many. */
  removeBefore(timeMs: number, limit: number): Promise<number>;
}
