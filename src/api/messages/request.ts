import { type Static, type TSchema, Type } from "typebox";
import { CacheControl, MESSAGES_MAX, SentRequest, TOOLS_MAX, taggedUnion } from "../chat/request.ts";
import { pick } from "../json.ts";

/** Versions of the wire that clients may name in `anthropic-version`. */
export const MESSAGES_VERSIONS = ["2026-10-21", "2023-06-01", "2023-01-01"] as const;

const cacheControl = Type.Optional(CacheControl);
const Citations = Type.Object({ enabled: Type.Optional(Type.Boolean()) });
const JsonObject = Type.Record(Type.String(), Type.Unknown());

const TextBlock = Type.Object({
  type: Type.Literal("text"),
  text: Type.String(),
  citations: Type.Optional(Type.Array(JsonObject)),
  cache_control: cacheControl,
});
const ImageBlock = Type.Object({
  type: Type.Literal("image"),
  source: taggedUnion("type", [
    Type.Object({
      type: Type.Literal("base64"),
      media_type: Type.Enum(["image/jpeg", "image/png", "image/gif", "image/webp"]),
      data: Type.String({ minLength: 1 }),
    }),
    Type.Object({ type: Type.Literal("url"), url: Type.String({ minLength: 1 }) }),
  ]),
  cache_control: cacheControl,
});
const DocumentBlock = Type.Object({
  type: Type.Literal("document"),
  source: taggedUnion("type", [
    Type.Object({
      type: Type.Literal("base64"),
      media_type: Type.Literal("application/pdf"),
      data: Type.String({ minLength: 1 }),
    }),
    Type.Object({ type: Type.Literal("url"), url: Type.String({ minLength: 1 }) }),
    Type.Object({ type: Type.Literal("text"), media_type: Type.Literal("text/plain"), data: Type.String() }),
    Type.Object({
      type: Type.Literal("content"),
      content: Type.Union([Type.String(), Type.Array(taggedUnion("type", [TextBlock, ImageBlock]))]),
    }),
  ]),
  title: Type.Optional(Type.String()),
  context: Type.Optional(Type.String()),
  citations: Type.Optional(Citations),
  cache_control: cacheControl,
});
const SearchResultBlock = Type.Object({
  type: Type.Literal("search_result"),
  source: Type.String(),
  title: Type.String(),
  content: Type.Array(TextBlock),
  citations: Type.Optional(Citations),
  cache_control: cacheControl,
});
const ThinkingBlock = Type.Object({
  type: Type.Literal("thinking"),
  thinking: Type.String(),
  signature: Type.Optional(Type.String()),
});
const RedactedThinkingBlock = Type.Object({ type: Type.Literal("redacted_thinking"), data: Type.String() });
const ToolUseBlock = Type.Object({
  type: Type.Literal("tool_use"),
  id: Type.String({ minLength: 1 }),
  name: Type.String({ minLength: 1 }),
  input: JsonObject,
  caller: Type.Optional(Type.Object({ type: Type.Literal("direct") })),
  toolset_name: Type.Optional(Type.String()),
  cache_control: cacheControl,
});
/** A search that Anthropic has run, and its results, in the form in which they came. */
const ServerToolUseBlock = Type.Object({
  type: Type.Literal("server_tool_use"),
  id: Type.String({ minLength: 1 }),
  name: Type.Literal("web_search"),
  input: JsonObject,
  cache_control: cacheControl,
});
const SearchToolResultBlock = Type.Object({
  type: Type.Literal("web_search_tool_result"),
  tool_use_id: Type.String({ minLength: 1 }),
  content: Type.Union([Type.Array(JsonObject), JsonObject]),
  cache_control: cacheControl,
});
const resultBlocks = [TextBlock, ImageBlock, DocumentBlock, SearchResultBlock] as const;
const ToolResultBlock = Type.Object({
  type: Type.Literal("tool_result"),
  tool_use_id: Type.String({ minLength: 1 }),
  content: Type.Optional(Type.Union([Type.String(), Type.Array(taggedUnion("type", [...resultBlocks]))])),
  is_error: Type.Optional(Type.Boolean()),
  cache_control: cacheControl,
});

/** A message with the blocks that its role can have. Of the tools that a provider runs, only searches have some. */
function messageOf<Role extends string, Blocks extends TSchema[]>(role: Role, blocks: [...Blocks]) {
  const content = Type.Union([Type.String(), Type.Array(taggedUnion("type", blocks))]);
  return Type.Object({ role: Type.Literal(role), content });
}
const calls = [ToolUseBlock, ServerToolUseBlock, SearchToolResultBlock] as const;
const Message = taggedUnion("role", [
  messageOf("user", [...resultBlocks, ToolResultBlock]),
  messageOf("assistant", [TextBlock, ThinkingBlock, RedactedThinkingBlock, ...calls]),
  messageOf("system", [TextBlock]),
]);

/** A custom tool, or one that Anthropic defines, such as `bash_20250124`. */
const MessageTool = Type.Object({
  type: Type.Optional(Type.String()),
  name: Type.Optional(Type.String({ minLength: 1, description: "Required, except for a toolset." })),
  description: Type.Optional(Type.String()),
  input_schema: Type.Optional(
    Type.Unsafe<Record<string, unknown>>({ ...JsonObject, description: "Required for a custom tool." }),
  ),
  input_examples: Type.Optional(Type.Array(JsonObject)),
  strict: Type.Optional(Type.Boolean()),
  eager_input_streaming: Type.Optional(Type.Boolean()),
  cache_control: cacheControl,
  max_characters: Type.Optional(Type.Integer({ minimum: 1 })),
  display_width_px: Type.Optional(Type.Integer({ minimum: 1 })),
  display_height_px: Type.Optional(Type.Integer({ minimum: 1 })),
  display_number: Type.Optional(Type.Integer()),
  enable_zoom: Type.Optional(Type.Boolean()),
  configs: Type.Optional(JsonObject),
  max_uses: Type.Optional(Type.Integer({ minimum: 1 })),
  allowed_domains: Type.Optional(Type.Array(Type.String())),
  blocked_domains: Type.Optional(Type.Array(Type.String())),
  user_location: Type.Optional(JsonObject),
  response_inclusion: Type.Optional(Type.String()),
});

const isSequential = { disable_parallel_tool_use: Type.Optional(Type.Boolean()) };
const MessageToolChoice = taggedUnion("type", [
  Type.Object({ type: Type.Literal("auto"), ...isSequential }),
  Type.Object({ type: Type.Literal("any"), ...isSequential }),
  Type.Object({ type: Type.Literal("tool"), name: Type.String({ minLength: 1 }), ...isSequential }),
  Type.Object({ type: Type.Literal("none") }),
]);

const display = Type.Optional(Type.Enum(["summarized", "omitted"]));
const Thinking = taggedUnion("type", [
  Type.Object({ type: Type.Literal("enabled"), budget_tokens: Type.Integer({ minimum: 1024 }), display }),
  Type.Object({ type: Type.Literal("adaptive"), display }),
  Type.Object({ type: Type.Literal("disabled") }),
]);

const OutputFormat = Type.Object({ type: Type.Literal("json_schema"), schema: JsonObject });

/** Fields of a request whose tokens are counted. `null` counts as absent. */
const promptFields = {
  model: SentRequest.properties.model,
  messages: Type.Array(Message, { minItems: 1, maxItems: MESSAGES_MAX }),
  system: Type.Optional(Type.Union([Type.String(), Type.Array(taggedUnion("type", [TextBlock]))])),
  tools: Type.Optional(Type.Array(MessageTool, { maxItems: TOOLS_MAX })),
  tool_choice: Type.Optional(MessageToolChoice),
  thinking: Type.Optional(Thinking),
  output_config: Type.Optional(
    Type.Object({
      effort: Type.Optional(Type.Enum(["low", "medium", "high", "xhigh", "max"])),
      format: Type.Optional(OutputFormat),
    }),
  ),
  output_format: Type.Optional(OutputFormat),
  cache_control: cacheControl,
  context_management: Type.Optional(
    Type.Object({
      edits: Type.Optional(
        Type.Array(
          Type.Object({
            type: Type.String({
              pattern: "^clear_",
              description: "an edit that clears content, such as 'clear_thinking_20251015'.",
            }),
          }),
        ),
      ),
    }),
  ),
};

/** Body of POST /v1/messages/count_tokens. */
export const CountTokensRequest = Type.Object(promptFields);

/** Body of POST /v1/messages. */
export const MessagesRequest = Type.Object({
  ...promptFields,
  max_tokens: Type.Integer({
    minimum: 1,
    description: "Maximum tokens to generate; at most the model's own maximum.",
  }),
  stop_sequences: Type.Optional(Type.Array(Type.String({ minLength: 1 }))),
  temperature: Type.Optional(Type.Number({ minimum: 0, maximum: 1 })),
  ...pick(SentRequest.properties, ["stream", "top_p", "top_k"] as const),
  metadata: Type.Optional(Type.Object({ user_id: Type.Optional(Type.String()) })),
  service_tier: Type.Optional(Type.Enum(["auto", "standard_only"])),
});

export type MessagesRequest = Static<typeof MessagesRequest>;
export type CountTokensRequest = Static<typeof CountTokensRequest>;
export type InputMessage = Static<typeof Message>;
export type MessageBlock = Exclude<InputMessage["content"], string>[number];
export type BlockOf<T extends MessageBlock["type"]> = Extract<MessageBlock, { type: T }>;
export type MessageTool = Static<typeof MessageTool>;
