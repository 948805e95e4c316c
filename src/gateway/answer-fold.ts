import type { Delta, FinishReason, ReplyMessage, ToolCallDelta } from "../api/chat/completion.ts";
import type { ToolCall } from "../api/chat/request.ts";
import type { TokenCounts } from "../credits/price.ts";
import type { AnswerHead, AnswerPiece } from "./answer.ts";

/** A longer answer is not stored: its idempotency key then counts as interrupted. */
const STORED_CHARACTERS_MAX = 1024 * 1024;

/** An answer as it is stored under its idempotency key. The conversation before it is in the request. */
export interface StoredAnswer {
  id: string;
  created: number;
  /** The headers `x-tollgate-…` of the answer. */
  headers: Record<string, string>;
  message: ReplyMessage;
  logprobs: unknown;
  finishReason: FinishReason;
  tokens: TokenCounts;
}

interface Logprobs {
  content: unknown[] | null;
  refusal: unknown[] | null;
}

/** Folds the pieces of an answer into one message. */
export class AnswerFold {
  #content: string | undefined;
  #refusal: string | undefined;
  #reasoning: string | undefined;
  #logprobs: Logprobs | null = null;
  readonly #calls = new Map<number, ToolCall>();

  add(pieces: readonly AnswerPiece[]): void {
    for (const { delta, logprobs } of pieces) {
      if (delta !== undefined) this.#add(delta);
      if (logprobs !== undefined && logprobs !== null) this.#addLogprobs(logprobs);
    }
  }

  /** Null where there are none. */
  get logprobs(): unknown {
    return this.#logprobs;
  }

  message(): ReplyMessage {
    const calls = [...this.#calls.values()];
    const saysNothing = calls.length > 0 || this.#refusal !== undefined;
    return {
      role: "assistant",
      content: this.#content ?? (saysNothing ? null : ""),
      refusal: this.#refusal ?? null,
      ...(calls.length > 0 && { tool_calls: calls }),
      ...(this.#reasoning !== undefined && { reasoning_content: this.#reasoning }),
    };
  }

  #add(delta: Delta): void {
    if (delta.content) this.#content = (this.#content ?? "") + delta.content;
    if (delta.refusal) this.#refusal = (this.#refusal ?? "") + delta.refusal;
    if (delta.reasoning_content) this.#reasoning = (this.#reasoning ?? "") + delta.reasoning_content;
    for (const call of delta.tool_calls ?? []) this.#addCall(call);
  }

  #addLogprobs(given: Partial<Record<keyof Logprobs, unknown>>): void {
    this.#logprobs ??= { content: null, refusal: null };
    for (const name of ["content", "refusal"] as const) {
      const more = given[name];
      if (!Array.isArray(more)) continue;
      const joined = this.#logprobs[name] ?? [];
      for (const one of more) joined.push(one);
      this.#logprobs[name] = joined;
    }
  }

  #addCall({ index, id, function: called, extra_content }: ToolCallDelta): void {
    const begun = this.#calls.get(index);
    const call: ToolCall = begun ?? { id: id ?? "", type: "function", function: { name: "", arguments: "" } };
    if (begun === undefined) this.#calls.set(index, call);
    call.function.name += called?.name ?? "";
    call.function.arguments += called?.arguments ?? "";
    if (extra_content !== undefined) call.extra_content = extra_content;
  }
}

/** Returns a whole message as one piece; the fold of that piece is the message again. */
export function pieceOf(
  { content, refusal, reasoning_content, tool_calls }: ReplyMessage,
  logprobs: unknown,
): AnswerPiece {
  const calls = tool_calls?.map((call, index) => ({ index, ...call }));
  return { delta: { content, refusal, reasoning_content, ...(calls && { tool_calls: calls }) }, logprobs };
}

/** Returns the JSON text of a complete answer to store under its idempotency key; null where it is too long. */
export function storedText(
  { id, created, headers }: AnswerHead,
  fold: Pick<AnswerFold, "message" | "logprobs">,
  tokens: TokenCounts,
  finishReason: FinishReason = "stop",
): string | null {
  const stored: StoredAnswer = {
    id,
    created,
    headers: Object.fromEntries(Object.entries(headers).filter(([name]) => name.startsWith("x-tollgate-"))),
    message: fold.message(),
    logprobs: fold.logprobs,
    finishReason,
    tokens,
  };
  const text = JSON.stringify(stored);
  return text.length > STORED_CHARACTERS_MAX ? null : text;
}
