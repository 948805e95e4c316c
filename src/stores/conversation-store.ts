/** What was asked and answered in one request, of an organization that has it kept. The books do not rest on it. */
export interface ConversationRow {
  organizationId: string;
  holdId: string;
  endedAtMs: number;
  /** Whether something was too long to be kept. */
  isTruncated: boolean;
  /** JSON of the request. */
  request: string;
  /** JSON of the answer as far as it was delivered; null where nothing was. */
  answer: string | null;
}

type ConversationKey = Pick<ConversationRow, "organizationId" | "holdId">;

/** Conversations that are kept. What ended `retentionMs` ago or earlier, by the store's clock, counts as absent. */
export interface ConversationRows {
  /**
   * Writes, in one transaction, those whose organization has them kept when it commits: none is written after the end of
   * keeping was. One that is there already stays as it is.
   */
  insert(rows: readonly ConversationRow[]): Promise<void>;
  find(key: ConversationKey, retentionMs: number): Promise<ConversationRow | undefined>;
  /** Whether the organization has conversations kept now, and whether this one is. */
  status(key: ConversationKey, retentionMs: number): Promise<{ isEnabled: boolean; isStored: boolean }>;
  count(organizationId: string): Promise<number>;
  /** Removes what counts as absent, at most `limit`; gives how many. */
  removeOld(retentionMs: number, limit: number): Promise<number>;
  /** Removes those of an organization that ended until then, at most `limit`; gives how many. */
  removeOf(organizationId: string, untilMs: number, limit: number): Promise<number>;
}
