import { type Static, Type } from "typebox";
import { CALL_ROWS, type CallName } from "../price-classes.ts";
import { Json, Nullable, OptionalKeys, OptionalText, PartialObject, TokenCount } from "../schema.ts";
import { CHOICES_MAX, ReasoningDetail, ToolCall } from "./request.ts";

export const FinishReason = Type.Enum(["stop", "length", "tool_calls", "content_filter"]);
/** `function_call` is sent instead of `tool_calls` to a request with `functions`. */
const SentFinishReason = Type.Enum(["stop", "length", "tool_calls", "content_filter", "function_call"]);

/** Token counts of one completion, in OpenAI's shape; `cost` in credits. */
export const CompletionUsage = Type.Object({
  prompt_tokens: TokenCount,
  completion_tokens: TokenCount,
  total_tokens: TokenCount,
  ...OptionalKeys({
    prompt_tokens_details: PartialObject({
      cached_tokens: TokenCount,
      cache_write_tokens: TokenCount,
      cache_write_1h_tokens: TokenCount,
      audio_tokens: TokenCount,
      cached_audio_tokens: TokenCount,
      image_tokens: TokenCount,
    }),
    completion_tokens_details: PartialObject({
      reasoning_tokens: TokenCount,
      audio_tokens: TokenCount,
      image_tokens: TokenCount,
    }),
    calls: Type.Unsafe<{ [Name in CallName]?: number }>({
      ...PartialObject(Object.fromEntries(CALL_ROWS.map(({ name }) => [name, TokenCount]))),
      description: "Calls with a price of their own that were charged.",
    }),
    cost: Type.Number({ minimum: 0, description: "Charged credits." }),
  }),
});

const FunctionCall = PartialObject({ name: Type.String(), arguments: Type.String() });

/** Content of an answer beside its text; the media are as the upstream sent them. */
const BESIDE_TEXT = OptionalKeys({
  reasoning_details: Type.Array(ReasoningDetail),
  function_call: FunctionCall,
  annotations: Type.Array(Type.Unknown(), { description: "Citations, such as `url_citation`." }),
  audio: Json,
  images: Type.Array(Type.Unknown(), { description: "Images, as `image_url` parts." }),
});

/** Entry of `messages` in the response: a message of the conversation whose `content` is always a string. */
export const ResultingMessage = Type.Object({
  role: Type.String(),
  content: Type.String(),
  name: OptionalText,
  refusal: Type.Optional(Nullable(Type.String())),
  tool_calls: Type.Optional(Type.Array(ToolCall)),
  tool_call_id: OptionalText,
  reasoning_content: OptionalText,
  ...BESIDE_TEXT,
});

/** The reply; a compatible upstream's further fields are passed on. */
export const ReplyMessage = Type.Object({
  role: Type.Literal("assistant"),
  content: Nullable(Type.String()),
  refusal: Nullable(Type.String()),
  tool_calls: Type.Optional(Type.Array(ToolCall)),
  reasoning_content: OptionalText,
  ...BESIDE_TEXT,
});

const COMMON = {
  id: Type.String({ pattern: "^chatcmpl-" }),
  created: Type.Integer({ description: "Unix time in seconds." }),
  model: Type.String(),
  organization_id: Type.String(),
  system_fingerprint: OptionalText,
  service_tier: OptionalText,
};

export const ChatCompletion = Type.Object({
  ...COMMON,
  object: Type.Literal("chat.completion"),
  messages: Type.Array(ResultingMessage),
  choices: Type.Array(
    Type.Object({
      index: Type.Integer({ minimum: 0 }),
      message: ReplyMessage,
      logprobs: Nullable(Type.Unknown()),
      finish_reason: SentFinishReason,
    }),
    { minItems: 1, maxItems: CHOICES_MAX },
  ),
  usage: CompletionUsage,
});

const SentToolCallDelta = Type.Object({
  index: Type.Integer({ minimum: 0 }),
  ...OptionalKeys({
    id: Type.String(),
    type: Type.Enum(["function", "custom"]),
    function: FunctionCall,
    custom: PartialObject({ name: Type.String(), input: Type.String() }),
    extra_content: Type.Unknown(),
  }),
});
/** A piece of a tool call; a custom tool's is that of a function, and marked, as in `ToolCall`. */
export const ToolCallDelta = Type.Unsafe<
  Omit<Static<typeof SentToolCallDelta>, "type" | "custom"> & { type?: "function"; isCustom?: true }
>(SentToolCallDelta);

export const Delta = Type.Object({
  role: Type.Optional(Type.Literal("assistant")),
  content: Type.Optional(Nullable(Type.String())),
  refusal: Type.Optional(Nullable(Type.String())),
  reasoning_content: Type.Optional(Nullable(Type.String())),
  tool_calls: Type.Optional(Type.Array(ToolCallDelta)),
  ...BESIDE_TEXT,
});

export const ChatCompletionChunk = Type.Object({
  ...COMMON,
  object: Type.Literal("chat.completion.chunk"),
  choices: Type.Array(
    Type.Object({
      index: Type.Integer({ minimum: 0 }),
      delta: Delta,
      logprobs: Type.Optional(Nullable(Type.Unknown())),
      finish_reason: Nullable(SentFinishReason),
    }),
    { maxItems: 1 },
  ),
  usage: Type.Optional(Nullable(CompletionUsage)),
});

export type FinishReason = Static<typeof FinishReason>;
export type CompletionUsage = Static<typeof CompletionUsage>;
export type ResultingMessage = Static<typeof ResultingMessage>;
export type ReplyMessage = Omit<Static<typeof ReplyMessage>, "function_call"> & { others?: OtherFields };
/** Fields of an upstream's answer that this service only passes on. */
export type OtherFields = Readonly<Record<string, unknown>>;
export type ChatCompletion = Static<typeof ChatCompletion>;
export type ToolCallDelta = Static<typeof ToolCallDelta>;
/** `others` are the fields that only this upstream has; they are sent beside the named ones. */
export type Delta = Omit<Static<typeof Delta>, "function_call"> & { others?: OtherFields };
export type ChatCompletionChunk = Static<typeof ChatCompletionChunk>;
