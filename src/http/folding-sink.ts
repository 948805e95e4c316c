import type { ChatCompletion, ResultingMessage } from "../api/completion.ts";
import type { RequestMessage } from "../api/request.ts";
import type { AnswerEnd, AnswerHead, AnswerPiece, AnswerSink } from "../gateway/answer.ts";
import { AnswerFold } from "../gateway/answer-fold.ts";

/** Folds the pieces of an answer into one document. */
export class FoldingSink implements AnswerSink {
  readonly streams = false;
  /** The messages that stand before the reply in `messages`. */
  readonly #conversation: readonly ResultingMessage[];
  readonly #fold = new AnswerFold();
  #head: AnswerHead | undefined;
  /** The answer, once it is complete and charged. */
  answer: { body: ChatCompletion; headers: Record<string, string> } | undefined;

  constructor(conversation: readonly RequestMessage[]) {
    this.#conversation = conversation.map(resulting);
  }

  open(head: AnswerHead): void {
    this.#head = head;
  }

  push(pieces: readonly AnswerPiece[]): undefined {
    this.#fold.add(pieces);
  }

  close({ finishReason, usage, headers }: AnswerEnd): void {
    const head = this.#head;
    if (head === undefined) throw new Error("An answer was closed before it was opened");
    const message = this.#fold.message();
    this.answer = {
      body: {
        id: head.id,
        object: "chat.completion",
        created: head.created,
        model: head.model,
        organization_id: head.organizationId,
        messages: [...this.#conversation, { ...message, content: message.content ?? "" }],
        choices: [{ index: 0, message, logprobs: this.#fold.logprobs, finish_reason: finishReason }],
        usage,
      },
      headers: { ...head.headers, ...headers },
    };
  }

  fail(): void {
    throw new Error("An answer that is not streamed fails by its status");
  }
}

/** A message of the request as it stands in the answer: content as text, of parts the text ones. */
function resulting({ role, content, ...rest }: RequestMessage): ResultingMessage {
  if (content === undefined || typeof content === "string") return { role, content: content ?? "", ...rest };
  return { role, content: content.map((part) => (part.type === "text" ? part.text : "")).join(""), ...rest };
}
