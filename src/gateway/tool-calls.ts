import type { Delta, ToolCallDelta } from "../api/completion.ts";
import type { AnswerPiece } from "./sink.ts";

/**
 * Completes the tool calls of one answer as OpenAI's clients need them: the first piece of each call has `type` and an
 * `id` that no other call of the answer has, and no later piece has another. Upstreams leave ids out or give the same
 * one twice; the ids that are made for those hold the answer's own id, so that no other answer has them.
 */
export class ToolCallCompleter {
  readonly #answerId: string;
  /** By the index of a call. */
  #ids: Map<number, string> | undefined;

  /** `answerId` is a UUID. */
  constructor(answerId: string) {
    this.#answerId = answerId;
  }

  /** The same pieces, their tool calls completed. */
  complete(pieces: readonly AnswerPiece[]): readonly AnswerPiece[] {
    if (!pieces.some(({ delta }) => delta?.tool_calls !== undefined)) return pieces;
    return pieces.map((piece) => {
      const calls = piece.delta?.tool_calls;
      if (calls === undefined) return piece;
      const delta: Delta = { ...piece.delta, tool_calls: calls.map((call) => this.#completed(call)) };
      return { ...piece, delta };
    });
  }

  #completed(call: ToolCallDelta): ToolCallDelta {
    const { index, id, type: _type, function: called, ...rest } = call;
    this.#ids ??= new Map();
    if (this.#ids.has(index)) return { index, ...(called && { function: called }), ...rest };
    const isUnique = id !== undefined && id !== "" && !this.#ids.values().some((other) => other === id);
    const unique = isUnique ? id : this.#makeId(index);
    this.#ids.set(index, unique);
    return { index, id: unique, type: "function", function: { name: "", arguments: "", ...called }, ...rest };
  }

  /** Short, because OpenAI takes back ids of at most 40 characters. */
  #makeId(index: number): string {
    return `call_${BigInt(`0x${this.#answerId.replaceAll("-", "")}`).toString(36)}_${index}`;
  }
}
