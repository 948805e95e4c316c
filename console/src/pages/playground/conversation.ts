import type { CompletionUsage } from "../../../../src/api/chat/completion.ts";
import { countOf, formatDuration, formatExactCredits, formatSpeed } from "../../format/numbers.ts";

/** Figures of an answer. */
export interface Figures {
  model: string;
  /** Time from sending to the first text; null if there was none. */
  firstMs: number | null;
  durationMs: number;
  /** Null if the answer is incomplete. */
  usage: CompletionUsage | null;
  finishReason: string | null;
}

export interface Turn {
  key: number;
  role: "user" | "assistant";
  content: string;
  state: "done" | "streaming" | "stopped" | "failed";
  figures?: Figures;
  failure?: unknown;
}

export interface Conversation {
  turns: readonly Turn[];
  nextKey: number;
}

export const EMPTY_CONVERSATION: Conversation = { turns: [], nextKey: 0 };

export type Event =
  | { kind: "asked"; content: string }
  | { kind: "edited"; key: number; content: string }
  | { kind: "piece"; text: string }
  | { kind: "ended"; figures: Figures; state: "done" | "stopped" }
  | { kind: "failed"; failure: unknown }
  | { kind: "cleared" };

/** Reduces an event into the conversation. Each question is immediately followed by a pending answer. */
export function conversationAfter(before: Conversation, event: Event): Conversation {
  switch (event.kind) {
    case "asked":
      return asked(before, event.content);
    case "edited": {
      const at = before.turns.findIndex(({ key }) => key === event.key);
      return at === -1 ? before : asked({ ...before, turns: before.turns.slice(0, at) }, event.content);
    }
    case "piece":
      return withLast(before, (turn) => ({ ...turn, content: turn.content + event.text }));
    case "ended":
      return withLast(before, (turn) => ({ ...turn, state: event.state, figures: event.figures }));
    case "failed":
      return withLast(before, (turn) => ({ ...turn, state: "failed", failure: event.failure }));
    case "cleared":
      return { ...EMPTY_CONVERSATION, nextKey: before.nextKey };
  }
}

function asked({ turns, nextKey }: Conversation, content: string): Conversation {
  const question: Turn = { key: nextKey, role: "user", content, state: "done" };
  const answer: Turn = { key: nextKey + 1, role: "assistant", content: "", state: "streaming" };
  return { turns: [...turns, question, answer], nextKey: nextKey + 2 };
}

function withLast(before: Conversation, change: (turn: Turn) => Turn): Conversation {
  const last = before.turns.at(-1);
  if (last?.state !== "streaming") return before;
  return { ...before, turns: [...before.turns.slice(0, -1), change(last)] };
}

/** Returns the messages to send to the model, without empty answers. */
export function messagesOf(turns: readonly Turn[]): { role: string; content: string }[] {
  return turns
    .filter(({ role, content }) => role === "user" || content !== "")
    .map(({ role, content }) => ({ role, content }));
}

/** Formats the figures of an answer as a line. */
export function figuresLine({ model, firstMs, durationMs, usage, finishReason }: Figures, isStopped: boolean): string {
  const parts = [model];
  if (usage !== null) {
    parts.push(`${countOf(usage.prompt_tokens, "token")} in, ${countOf(usage.completion_tokens, "token")} out`);
    if (usage.cost !== undefined) parts.push(`${formatExactCredits(usage.cost)} credits`);
  }
  if (firstMs !== null) {
    parts.push(`first token after ${formatDuration(firstMs)}`);
    if (usage !== null) parts.push(formatSpeed(usage.completion_tokens, durationMs - firstMs));
  }
  if (isStopped) parts.push("Stopped: tokens generated so far are charged");
  if (finishReason === "length") parts.push("Stopped at max tokens");
  return parts.join(" · ");
}
