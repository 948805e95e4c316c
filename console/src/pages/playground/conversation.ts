import type { CompletionUsage } from "../../../../src/api/chat/completion.ts";
import { countOf, formatDuration, formatExactCredits, formatSpeed } from "../../format/numbers.ts";
import type { CallMessage, ContentPart, ToolCallPart } from "../../snippets/snippets.ts";

/** Figures of an answer. */
export interface Figures {
  model: string;
  /** Time from sending to the first text; null if there was none. */
  firstMs: number | null;
  durationMs: number;
  /** Null if the answer is incomplete. */
  usage: CompletionUsage | null;
  finishReason: string | null;
  /** Credits that an incomplete answer cost; absent while that is unknown. */
  charged?: number;
}

/** File that is sent with a message. */
export interface Attachment {
  name: string;
  type: string;
  /** Content as a `data:` URL. */
  url: string;
  /** Content of a text file, which is sent as text. */
  text?: string;
}

export interface Turn {
  key: number;
  role: "user" | "assistant" | "tool";
  content: string;
  state: "done" | "streaming" | "stopped" | "failed";
  attachments?: readonly Attachment[];
  /** Tools that an answer calls. */
  toolCalls?: readonly ToolCallPart[];
  /** URLs of the images of an answer. */
  images?: readonly string[];
  /** The call that a result of a tool belongs to. */
  toolCallId?: string;
  /** The model that answers; absent in a stored conversation. */
  model?: string;
  figures?: Figures;
  failure?: unknown;
}

export interface Conversation {
  turns: readonly Turn[];
  nextKey: number;
}

export const EMPTY_CONVERSATION: Conversation = { turns: [], nextKey: 0 };

export interface Piece {
  text?: string;
  /** All calls so far. */
  toolCalls?: readonly ToolCallPart[];
  /** Further images. */
  images?: readonly string[];
}

/** The beginning of an answer: a question, an edited one by its number, a retry, or the results of tools by call. */
export type Start = { /** The model that answers. */ model?: string } & (
  | { kind: "asked"; content: string; attachments?: readonly Attachment[] }
  | { kind: "edited"; question: number; content: string }
  | { kind: "retried" }
  | { kind: "resulted"; results: Readonly<Record<string, string>> }
);
export type Event =
  | Start
  | ({ kind: "piece" } & Piece)
  | { kind: "ended"; figures: Figures; state: "done" | "stopped" }
  | { kind: "failed"; failure: unknown; figures?: Figures }
  | { kind: "charged"; key: number; charged: number }
  | { kind: "cleared" };

/** Reduces an event into the conversation. Each question is immediately followed by a pending answer. */
export function conversationAfter(before: Conversation, event: Event): Conversation {
  switch (event.kind) {
    case "asked":
      return asked(before, { content: event.content, ...attached(event.attachments) }, event.model);
    case "edited": {
      const at = before.turns.findIndex((turn) => turn.key === questionKeys(before)[event.question]);
      const old = before.turns[at];
      if (old === undefined) return before;
      return asked(
        { ...before, turns: before.turns.slice(0, at) },
        { ...attached(old.attachments), content: event.content },
        event.model,
      );
    }
    case "retried": {
      const isAnswered = before.turns.at(-1)?.role === "assistant";
      return isAnswered ? pending({ ...before, turns: before.turns.slice(0, -1) }, event.model) : before;
    }
    case "resulted":
      return pending(Object.entries(event.results).reduce(withResult, before), event.model);
    case "piece":
      return withLast(before, (turn) => ({ ...turn, ...added(turn, event) }));
    case "ended":
      return withLast(before, (turn) => ({ ...turn, state: event.state, figures: event.figures }));
    case "failed": {
      const { failure, figures } = event;
      return withLast(before, (turn) => ({ ...turn, state: "failed", failure, ...(figures && { figures }) }));
    }
    case "charged": {
      const { key, charged } = event;
      const turns = before.turns.map((turn) =>
        turn.key === key && turn.figures !== undefined ? { ...turn, figures: { ...turn.figures, charged } } : turn,
      );
      return { ...before, turns };
    }
    case "cleared":
      return { ...EMPTY_CONVERSATION, nextKey: before.nextKey };
  }
}

function attached(attachments: readonly Attachment[] | undefined) {
  return attachments === undefined || attachments.length === 0 ? {} : { attachments };
}

/** Returns the keys of the questions of a conversation, in their order. */
export function questionKeys({ turns }: Pick<Conversation, "turns">): number[] {
  return turns.filter(({ role }) => role === "user").map(({ key }) => key);
}

function asked(before: Conversation, question: Pick<Turn, "content" | "attachments">, model?: string): Conversation {
  return pending(withTurn(before, { role: "user", state: "done", ...question }), model);
}

/** Appends an answer that is to come. */
function pending(before: Conversation, model?: string): Conversation {
  return withTurn(before, { role: "assistant", content: "", state: "streaming", ...(model && { model }) });
}

function withTurn({ turns, nextKey }: Conversation, turn: Omit<Turn, "key">): Conversation {
  return { turns: [...turns, { ...turn, key: nextKey }], nextKey: nextKey + 1 };
}

function withResult(before: Conversation, [toolCallId, content]: [string, string]): Conversation {
  return withTurn(before, { role: "tool", state: "done", toolCallId, content });
}

function added({ content, images = [] }: Turn, piece: Piece): Partial<Turn> {
  return {
    content: content + (piece.text ?? ""),
    ...(piece.toolCalls && { toolCalls: piece.toolCalls }),
    ...(piece.images && { images: [...images, ...piece.images] }),
  };
}

function withLast(before: Conversation, change: (turn: Turn) => Turn): Conversation {
  const last = before.turns.at(-1);
  if (last?.state !== "streaming") return before;
  return { ...before, turns: [...before.turns.slice(0, -1), change(last)] };
}

/** Returns the messages to send to the model, without empty answers. */
export function messagesOf(turns: readonly Turn[]): CallMessage[] {
  return turns.flatMap(({ role, content, attachments, toolCalls, toolCallId }): CallMessage[] => {
    if (role === "tool") return [{ role, content, tool_call_id: toolCallId ?? "" }];
    if (role === "user") return [{ role, content: contentOf(content, attachments) }];
    if (content === "" && toolCalls === undefined) return [];
    return [{ role, content, ...(toolCalls && { tool_calls: [...toolCalls] }) }];
  });
}

function contentOf(text: string, attachments: readonly Attachment[] | undefined): CallMessage["content"] {
  if (attachments === undefined) return text;
  return [...(text.trim() === "" ? [] : [{ type: "text", text } as const]), ...attachments.map(partOf)];
}

function partOf({ name, type, url, text }: Attachment): ContentPart {
  if (text !== undefined) return { type: "text", text: `${name}:\n${text}` };
  if (type.startsWith("image/")) return { type: "image_url", image_url: { url } };
  return { type: "file", file: { filename: name, file_data: url } };
}

/** Shorter answers have no meaningful speed: they arrive at once. */
const SPEED_FROM_MS = 50;

/** Formats the figures of an answer as a line. */
export function figuresLine(figures: Figures, state: Turn["state"]): string {
  const { model, firstMs, durationMs, usage, finishReason, charged } = figures;
  const parts = [model];
  if (usage !== null) {
    parts.push(`${countOf(usage.prompt_tokens, "token")} in, ${countOf(usage.completion_tokens, "token")} out`);
    if (usage.cost !== undefined) parts.push(`${formatExactCredits(usage.cost)} credits`);
  }
  if (firstMs !== null) {
    parts.push(`first token after ${formatDuration(firstMs)}`);
    const generatedMs = durationMs - firstMs;
    if (usage !== null && generatedMs >= SPEED_FROM_MS) parts.push(formatSpeed(usage.completion_tokens, generatedMs));
  }
  if (state === "stopped") parts.push("Stopped: tokens generated so far are charged");
  if (charged !== undefined) parts.push(`${formatExactCredits(charged)} credits charged`);
  else if (state === "failed") parts.push("Tokens generated so far are charged");
  if (finishReason === "length") parts.push("Stopped at max tokens");
  return parts.join(" · ");
}
