import type { ChatCompletion, Delta, ReplyMessage, ResultingMessage, ToolCallDelta } from "../contract/completion.ts";
import type { RequestMessage, ToolCall } from "../contract/request.ts";
import type { AnswerEnd, AnswerHead, AnswerPiece, AnswerSink } from "../gateway/sink.ts";

/** Folds the pieces of an answer into one document. */
export class FoldingSink implements AnswerSink {
  readonly streams = false;
  /** The messages that stand before the reply in `messages`. */
  readonly #conversation: readonly ResultingMessage[];
  #head: AnswerHead | undefined;
  #content: string | undefined;
  #refusal: string | undefined;
  #reasoning: string | undefined;
  #logprobs: unknown = null;
  readonly #calls = new Map<number, ToolCall>();
  /** The answer, once it is complete and charged. */
  answer: { body: ChatCompletion; headers: Record<string, string> } | undefined;

  constructor(conversation: readonly RequestMessage[]) {
    this.#conversation = conversation.map(resulting);
  }

  open(head: AnswerHead): void {
    this.#head = head;
  }

  push(chunks: readonly AnswerPiece[]): undefined {
    for (const { delta, logprobs } of chunks) {
      if (delta !== undefined) this.#add(delta);
      if (logprobs !== undefined && logprobs !== null) this.#logprobs = joinedLogprobs(this.#logprobs, logprobs);
    }
  }

  close({ finishReason, usage, headers }: AnswerEnd): void {
    const head = this.#head;
    if (head === undefined) throw new Error("An answer was closed before it was opened");
    const message = this.#reply();
    this.answer = {
      body: {
        id: head.id,
        object: "chat.completion",
        created: head.created,
        model: head.model,
        organization_id: head.organizationId,
        messages: [...this.#conversation, { ...message, content: message.content ?? "" }],
        choices: [{ index: 0, message, logprobs: this.#logprobs, finish_reason: finishReason }],
        usage,
      },
      headers: { ...head.headers, ...headers },
    };
  }

  fail(): void {
    throw new Error("An answer that is not streamed fails by its status");
  }

  #add(delta: Delta): void {
    if (delta.content) this.#content = (this.#content ?? "") + delta.content;
    if (delta.refusal) this.#refusal = (this.#refusal ?? "") + delta.refusal;
    if (delta.reasoning_content) this.#reasoning = (this.#reasoning ?? "") + delta.reasoning_content;
    for (const call of delta.tool_calls ?? []) this.#addCall(call);
  }

  #addCall({ index, id, function: called, extra_content }: ToolCallDelta): void {
    const begun = this.#calls.get(index);
    const call: ToolCall = begun ?? { id: id ?? "", type: "function", function: { name: "", arguments: "" } };
    if (begun === undefined) this.#calls.set(index, call);
    call.function.name += called?.name ?? "";
    call.function.arguments += called?.arguments ?? "";
    if (extra_content !== undefined) call.extra_content = extra_content;
  }

  #reply(): ReplyMessage {
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
}

/** A message of the request as it stands in the answer: content as text, of parts the text ones. */
function resulting({ role, content, ...rest }: RequestMessage): ResultingMessage {
  if (content === undefined || typeof content === "string") return { role, content: content ?? "", ...rest };
  return { role, content: content.map((part) => (part.type === "text" ? part.text : "")).join(""), ...rest };
}

interface Logprobs {
  content?: unknown[] | null;
  refusal?: unknown[] | null;
}

function joinedLogprobs(before: unknown, next: unknown): unknown {
  const a = (before ?? {}) as Logprobs;
  const b = next as Logprobs;
  const join = (x?: unknown[] | null, y?: unknown[] | null) => (x || y ? [...(x ?? []), ...(y ?? [])] : null);
  return { content: join(a.content, b.content), refusal: join(a.refusal, b.refusal) };
}
