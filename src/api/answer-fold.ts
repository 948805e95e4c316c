import { type AnswerPiece, NATIVE_DOCUMENT } from "./answer.ts";
import type { Delta, ReplyMessage, ToolCallDelta } from "./chat/completion.ts";
import type { ReasoningDetail, ToolCall } from "./chat/request.ts";

interface Logprobs {
  content: unknown[] | null;
  refusal: unknown[] | null;
}

/** Folds the pieces of an answer into one message. */
export class AnswerFold {
  #content: string | undefined;
  #refusal: string | undefined;
  #reasoning: string | undefined;
  readonly #details: ReasoningDetail[] = [];
  /** The whole answer on the upstream's own wire, if the request went out on that wire and the answer is not streamed. */
  document: Readonly<Record<string, unknown>> | undefined;
  #logprobs: Logprobs | null = null;
  readonly #calls = new Map<number, ToolCall>();

  add(pieces: readonly AnswerPiece[]): void {
    for (const { delta, logprobs, native } of pieces) {
      const document = native?.find(({ type }) => type === NATIVE_DOCUMENT);
      if (document !== undefined) this.document = document.data;
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
      ...(this.#details.length > 0 && { reasoning_details: this.#details }),
    };
  }

  #add(delta: Delta): void {
    if (delta.content) this.#content = (this.#content ?? "") + delta.content;
    if (delta.refusal) this.#refusal = (this.#refusal ?? "") + delta.refusal;
    if (delta.reasoning_content) this.#reasoning = (this.#reasoning ?? "") + delta.reasoning_content;
    if (delta.reasoning_details) this.#details.push(...delta.reasoning_details);
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
