import { EVENT_LENGTH_MAX } from "../event-stream.ts";
import { isObject, type JsonObject, textOf } from "./json.ts";

/** Fields of a piece that go on where the piece before it ended. */
const GROWING = ["text", "summary", "data"];

/**
 * Collects OpenRouter's `reasoning_details`: signed reasoning, streamed in pieces. Some models require it back with the
 * results of tool calls ("Preserving reasoning" in OpenRouter's guide).
 */
export class ReasoningDetails {
  readonly #details = new Map<string, Record<string, unknown>>();
  #length = 0;

  add(pieces: unknown): void {
    if (!Array.isArray(pieces)) return;
    for (const piece of pieces.filter(isObject)) this.#addPiece(piece);
  }

  /** All of it, in order; undefined where there is none, or too much to be sent back. */
  all(): JsonObject[] | undefined {
    return this.#details.size === 0 || this.#length > EVENT_LENGTH_MAX ? undefined : [...this.#details.values()];
  }

  #addPiece(piece: JsonObject): void {
    this.#length += JSON.stringify(piece).length;
    if (this.#length > EVENT_LENGTH_MAX) {
      this.#details.clear();
      return;
    }
    const key = `${piece.type} ${typeof piece.index === "number" ? piece.index : `after ${this.#details.size}`}`;
    const begun = this.#details.get(key);
    if (begun === undefined) {
      this.#details.set(key, { ...piece });
      return;
    }
    for (const [name, value] of Object.entries(piece)) {
      if (value === null || value === undefined) continue;
      begun[name] = GROWING.includes(name) ? `${textOf(begun[name]) ?? ""}${textOf(value) ?? ""}` : value;
    }
  }
}

/** The details that a message's calls bring back; undefined where there are none. */
export function detailsOf(calls: readonly { extra_content?: unknown }[] | undefined): JsonObject[] | undefined {
  for (const { extra_content: extra } of calls ?? []) {
    const details = isObject(extra) ? extra.reasoning_details : undefined;
    if (Array.isArray(details) && details.every(isObject)) return details;
  }
  return undefined;
}
