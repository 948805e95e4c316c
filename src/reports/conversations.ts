import type { Conversation, KeptAnswer } from "../api/admin/request.ts";
import type { ChatCompletionRequest } from "../api/chat/request.ts";
import { isoTime } from "../api/time.ts";
import type { ConversationRows } from "../stores/queries/conversations.ts";

export interface ConversationsOptions {
  rows: ConversationRows;
  /** Time for which a conversation is stored. */
  retentionMs: number;
  /** Milliseconds since 1970. */
  clock: () => number;
}

const REMOVED_ROWS = 50;

/** Reads and removes the stored conversations for the admin API. */
export class Conversations {
  readonly #options: ConversationsOptions;

  constructor(options: ConversationsOptions) {
    this.#options = options;
  }

  /** Finds the stored conversation of a request; undefined if there is none. */
  async find(organizationId: string, requestId: string): Promise<Conversation | undefined> {
    const { rows, retentionMs } = this.#options;
    const row = await rows.find({ organizationId, holdId: requestId }, retentionMs);
    if (row === undefined) return undefined;
    return {
      object: "conversation",
      id: row.holdId,
      organization_id: row.organizationId,
      request: JSON.parse(row.request) as ChatCompletionRequest,
      answer: row.answer === null ? null : (JSON.parse(row.answer) as KeptAnswer),
      is_truncated: row.isTruncated,
      ended_at: isoTime(row.endedAtMs),
      kept_until: isoTime(row.endedAtMs + retentionMs),
    };
  }

  /** Tells if storage is enabled for the organization now, and if the conversation of this request is stored. */
  status(organizationId: string, requestId: string): Promise<{ isEnabled: boolean; isStored: boolean }> {
    return this.#options.rows.status({ organizationId, holdId: requestId }, this.#options.retentionMs);
  }

  /** Counts the stored conversations of an organization. */
  count(organizationId: string): Promise<number> {
    return this.#options.rows.count(organizationId);
  }

  /** Removes the stored conversation of a request; returns false if there is none. */
  removeOne(organizationId: string, requestId: string): Promise<boolean> {
    return this.#options.rows.removeOne({ organizationId, holdId: requestId });
  }

  /** Removes all conversations that have ended, a few at a time. Returns their number. */
  async remove(organizationId: string): Promise<number> {
    const { rows, clock } = this.#options;
    const untilMs = clock();
    let removed = 0;
    for (;;) {
      const count = await rows.removeOf(organizationId, untilMs, REMOVED_ROWS);
      removed += count;
      if (count < REMOVED_ROWS) return removed;
    }
  }
}
