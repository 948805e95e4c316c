import type { CompletionUsage, Delta, FinishReason, OtherFields } from "./chat/completion.ts";
import type { EmbeddingVector } from "./embeddings/vector.ts";
import type { CallCounts, ReportField } from "./price-classes.ts";

/** A piece of an answer, as a chunk of the chat completions wire, so that compatible upstreams are passed through. */
export interface AnswerPiece {
  /** The upstream's own id of the answer, as its invoices and its support know it. */
  responseId?: string;
  /** The choice that the piece belongs to; 0 if absent. */
  index?: number;
  delta?: Delta;
  /** Texts in the delta's further fields that earlier pieces contain, or its reasoning does: they are metered once. */
  repeated?: ReadonlySet<unknown>;
  logprobs?: unknown;
  finish_reason?: FinishReason;
  usage?: ReportedUsage;
  /** Calls so far, as the answer itself shows them: one that breaks off has no report of them, and some have none at all. */
  calls?: CallCounts;
  /** Fields of the whole answer, such as `system_fingerprint`, `service_tier` and `citations`. */
  whole?: OtherFields;
  /** Fields beside the delta, such as `content_filter_results`. */
  choice?: OtherFields;
  vectors?: readonly EmbeddingVector[];
  service_tier?: string;
  /** Events that the client receives instead of the delta, if the request went out on the upstream's own wire unchanged. */
  native?: readonly NativeEvent[];
}

/** Follows which choices of an answer have begun, and which have finished. */
export class ChoicesProgress {
  /** Finish reasons by the index of their choice: null for one that has not finished, a hole for one that has not begun. */
  readonly reasons: (FinishReason | null)[] = [];

  add({ index = 0, delta, finish_reason }: AnswerPiece): void {
    if (finish_reason !== undefined) this.reasons[index] = finish_reason;
    else if (delta !== undefined) this.reasons[index] ??= null;
  }

  get begun(): number {
    return this.reasons.filter((reason) => reason !== undefined).length;
  }

  /** Tells whether at least `count` choices have begun and all of them have finished. */
  hasFinished(count: number): boolean {
    return !this.reasons.includes(null) && this.begun >= count;
  }
}

/** Returns the pieces of an answer that is not streamed as the only item of an iteration. */
export async function* once(pieces: readonly AnswerPiece[]): AsyncGenerator<readonly AnswerPiece[], undefined> {
  yield pieces;
}

/** The type of a native event that is a whole answer, which is not streamed. */
export const NATIVE_DOCUMENT = "document";

export interface NativeEvent {
  type: string;
  /** Its fields as the upstream sent them, without those that no client receives. */
  data: Readonly<Record<string, unknown>>;
  /** Values in `data` that are metered elsewhere: the piece's delta has them, or they repeat an earlier event. */
  counted?: Pick<ReadonlySet<unknown>, "has">;
}

type TokenReport = "prompt_tokens" | "completion_tokens" | "cached_tokens" | "cache_write_tokens" | "reasoning_tokens";

/**
 * Counters as the upstream reported them: untrusted, checked by whoever charges them. The cache writes are those of both
 * kinds; `cost` is in the upstream's own unit (OpenRouter's documentation, "Usage Accounting").
 */
export type ReportedUsage = { [Field in TokenReport | ReportField | "cost"]?: unknown };

/** The part of an answer that is known when the upstream has begun it. */
export interface AnswerHead {
  /** 32 hexadecimal digits; each wire puts its own prefix before them. */
  id: string;
  /** Unix seconds. */
  created: number;
  /** The catalog's id. */
  model: string;
  organizationId: string;
  /** Tokens of the prompt, as far as they are known then: usually an estimate. */
  promptTokens?: number;
  headers: Record<string, string>;
}

/** The part of an answer that is known when its charge is committed. */
export interface AnswerEnd {
  finishReason: FinishReason;
  /** Those of all choices by their index; a choice without one has `finishReason`. */
  reasons?: readonly (FinishReason | null)[];
  usage: CompletionUsage;
  /** Unix seconds; absent where no time is stored. */
  ended?: number;
  /** The charge and the available credits; for answers whose headers have not been sent. */
  headers: Record<string, string>;
}
