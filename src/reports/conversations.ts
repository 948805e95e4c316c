import type { Conversation, KeptAnswer } from "../api/admin/conversation.ts";
import type { ChatCompletionRequest } from "../api/request.ts";
import type { ConversationRows } from "../stores/queries/conversations.ts";

export interface ConversationsOptions {
  rows: ConversationRows;
  /** How long each is kept. */
  keptMs: number;
  /** Milliseconds since 1970. */
  clock: () => number;
}

const REMOVED_ROWS = 50;

/** Conversations that are kept, as the admin API shows and removes them. */
export class Conversations {
  readonly #options: ConversationsOptions;

  constructor(options: ConversationsOptions) {
    this.#options = options;
  }

  /** What is kept of a request; undefined where nothing is. */
  async find(organizationId: string, requestId: string): Promise<Conversation | undefined> {
    const { rows, keptMs } = this.#options;
    const row = await rows.find({ organizationId, holdId: requestId }, keptMs);
    if (row === undefined) return undefined;
    return {
      object: "conversation",
      id: row.holdId,
      organization_id: row.organizationId,
      request: JSON.parse(row.request) as ChatCompletionRequest,
      answer: row.answer === null ? null : (JSON.parse(row.answer) as KeptAnswer),
      is_truncated: row.isTruncated,
      ended_at: new Date(row.endedAtMs).toISOString(),
      kept_until: new Date(row.endedAtMs + keptMs).toISOString(),
    };
  }

  /** Whether the organization has conversations kept now, and whether that of this request is. */
  standing(organizationId: string, requestId: string): Promise<{ isKeeping: boolean; isKept: boolean }> {
    return this.#options.rows.status({ organizationId, holdId: requestId }, this.#options.keptMs);
  }

  /** How many are kept of an organization. */
  count(organizationId: string): Promise<number> {
    return this.#options.rows.count(organizationId);
  }

  /** Removes all that ended until now, a few at a time; gives how many. */
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
