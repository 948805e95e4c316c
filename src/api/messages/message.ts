import { type Static, Type } from "typebox";
import type { AnswerHead, AnswerPiece } from "../answer.ts";
import type { CompletionUsage, FinishReason } from "../chat/completion.ts";
import { citedSources } from "../json.ts";
import { Nullable, OptionalKeys, TokenCount, Typed } from "../schema.ts";

const MessageUsage = Type.Object({
  input_tokens: Type.Integer({ minimum: 0, description: "Prompt tokens that no cache served or stored." }),
  cache_creation_input_tokens: TokenCount,
  cache_creation: Type.Object(
    { ephemeral_5m_input_tokens: TokenCount, ephemeral_1h_input_tokens: TokenCount },
    { description: "The tokens of `cache_creation_input_tokens`, by how long the cache keeps them." },
  ),
  cache_read_input_tokens: TokenCount,
  output_tokens: TokenCount,
  ...OptionalKeys({
    server_tool_use: Type.Object({ web_search_requests: Type.Integer({ minimum: 0 }) }),
    output_tokens_details: Type.Object({ thinking_tokens: TokenCount }),
    cost: Type.Number({ minimum: 0, description: "Charged credits." }),
  }),
});

const OutputBlock = Type.Object({ type: Type.String() });

export const MessageDocument = Typed("message", {
  id: Type.String({ pattern: "^msg_" }),
  role: Type.Literal("assistant"),
  model: Type.String(),
  content: Type.Array(OutputBlock),
  stop_reason: Nullable(Type.String()),
  stop_sequence: Nullable(Type.String()),
  usage: MessageUsage,
});

export const MessageEvent = Type.Object({
  type: Type.Enum([
    "message_start",
    "content_block_start",
    "content_block_delta",
    "content_block_stop",
    "message_delta",
    "message_stop",
    "ping",
    "error",
  ]),
});

export type MessageDocument = Static<typeof MessageDocument>;
type MessageUsage = Static<typeof MessageUsage>;
export type OutputBlock = Static<typeof OutputBlock>;

/** Returns a message without content, as a stream begins with it; `first` is the first piece of the answer. */
export function messageStart(head: AnswerHead, first: AnswerPiece | undefined): MessageDocument {
  return {
    id: `msg_${head.id}`,
    type: "message",
    role: "assistant",
    model: head.model,
    content: [],
    stop_reason: null,
    stop_sequence: null,
    usage: toMessageUsage(usageAtStart(head, first)),
  };
}

/** Returns the usage of the first piece: how many have arrived with it depends on how the network cuts the stream. */
function usageAtStart({ promptTokens = 0 }: AnswerHead, first: AnswerPiece | undefined): CompletionUsage {
  const { prompt_tokens: counted, ...reported } = first?.usage ?? {};
  const numberOf = (value: unknown) => (typeof value === "number" ? value : 0);
  const [read, written] = [numberOf(reported.cached_tokens), numberOf(reported.cache_write_tokens)];
  const isPlausible = typeof counted === "number" && counted > 0 && read + written <= counted;
  const prompt = isPlausible ? counted : promptTokens;
  const details = isPlausible ? { cached_tokens: read, cache_write_tokens: written } : {};
  return { prompt_tokens: prompt, completion_tokens: 0, total_tokens: prompt, prompt_tokens_details: details };
}

const STOP_REASONS: Record<FinishReason, string> = {
  stop: "end_turn",
  length: "max_tokens",
  tool_calls: "tool_use",
  content_filter: "refusal",
};

/** Returns why an answer ended. The internal form does not tell which stop sequence ended it. */
export function endingOf(
  finishReason: FinishReason,
  { hasRefusal, hasCalls }: { hasRefusal: boolean; hasCalls: boolean },
) {
  let reason = STOP_REASONS[finishReason];
  if (finishReason === "stop" && hasRefusal) reason = "refusal";
  else if (finishReason === "stop" && hasCalls) reason = "tool_use";
  return { stop_reason: reason, stop_sequence: null };
}

export function toMessageUsage(usage: CompletionUsage): MessageUsage {
  const details = usage.prompt_tokens_details ?? {};
  const { cached_tokens: read = 0, cache_write_tokens: written = 0, cache_write_1h_tokens: hour = 0 } = details;
  const thinking = usage.completion_tokens_details?.reasoning_tokens;
  const searches = usage.calls?.searches;
  return {
    input_tokens: usage.prompt_tokens - read - written,
    cache_creation_input_tokens: written,
    cache_creation: { ephemeral_5m_input_tokens: written - hour, ephemeral_1h_input_tokens: hour },
    cache_read_input_tokens: read,
    output_tokens: usage.completion_tokens,
    ...(searches !== undefined && { server_tool_use: { web_search_requests: searches } }),
    ...(thinking !== undefined && { output_tokens_details: { thinking_tokens: thinking } }),
    ...(usage.cost !== undefined && { cost: usage.cost }),
  };
}

/** Returns the addresses that a text cites. They are no results of a search that could be sent back to its model. */
export function citationsOf(annotations?: readonly unknown[]): object[] {
  return citedSources(annotations).map(({ url, title }) => {
    return { type: "web_search_result_location", url, title: title ?? null, cited_text: "", encrypted_index: "" };
  });
}

/** Returns an id with only the characters that the wire allows. */
export function toToolUseId(id: string): string {
  return id.replace(/[^\w-]/g, "_");
}
