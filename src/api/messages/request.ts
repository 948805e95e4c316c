import { type Static, type TSchema, Type } from "typebox";
import { CacheControl, MESSAGES_MAX, SentRequest, TOOLS_MAX } from "../chat/request.ts";
import { pick } from "../json.ts";
import { Json, OptionalFlag, OptionalKeys, OptionalText, PartialObject, TaggedUnion, Typed } from "../schema.ts";

/** Versions of the wire that clients may name in `anthropic-version`. */
export const MESSAGES_VERSIONS = ["2026-10-21", "2023-06-01", "2023-01-01"] as const;

const cacheControl = Type.Optional(CacheControl);
const Citations = PartialObject({ enabled: Type.Boolean() });

const TextBlock = Typed("text", {
  text: Type.String(),
  citations: Type.Optional(Type.Array(Json)),
  cache_control: cacheControl,
});
const ImageBlock = Typed("image", {
  source: TaggedUnion([
    Typed("base64", {
      media_type: Type.Enum(["image/jpeg", "image/png", "image/gif", "image/webp"]),
      data: Type.String({ minLength: 1 }),
    }),
    Typed("url", { url: Type.String({ minLength: 1 }) }),
  ]),
  cache_control: cacheControl,
});
const DocumentBlock = Typed("document", {
  source: TaggedUnion([
    Typed("base64", { media_type: Type.Literal("application/pdf"), data: Type.String({ minLength: 1 }) }),
    Typed("url", { url: Type.String({ minLength: 1 }) }),
    Typed("text", { media_type: Type.Literal("text/plain"), data: Type.String() }),
    Typed("content", { content: Type.Union([Type.String(), Type.Array(TaggedUnion([TextBlock, ImageBlock]))]) }),
  ]),
  title: OptionalText,
  context: OptionalText,
  citations: Type.Optional(Citations),
  cache_control: cacheControl,
});
const SearchResultBlock = Typed("search_result", {
  source: Type.String(),
  title: Type.String(),
  content: Type.Array(TextBlock),
  citations: Type.Optional(Citations),
  cache_control: cacheControl,
});
const ThinkingBlock = Typed("thinking", { thinking: Type.String(), signature: OptionalText });
const RedactedThinkingBlock = Typed("redacted_thinking", { data: Type.String() });
const ToolUseBlock = Typed("tool_use", {
  id: Type.String({ minLength: 1 }),
  name: Type.String({ minLength: 1 }),
  input: Json,
  caller: Type.Optional(Typed("direct", {})),
  toolset_name: OptionalText,
  cache_control: cacheControl,
});
/** A search that Anthropic has run, and its results, in the form in which they came. */
const ServerToolUseBlock = Typed("server_tool_use", {
  id: Type.String({ minLength: 1 }),
  name: Type.Literal("web_search"),
  input: Json,
  cache_control: cacheControl,
});
const SearchToolResultBlock = Typed("web_search_tool_result", {
  tool_use_id: Type.String({ minLength: 1 }),
  content: Type.Union([Type.Array(Json), Json]),
  cache_control: cacheControl,
});
const resultBlocks = [TextBlock, ImageBlock, DocumentBlock, SearchResultBlock] as const;
const ToolResultBlock = Typed("tool_result", {
  tool_use_id: Type.String({ minLength: 1 }),
  content: Type.Optional(Type.Union([Type.String(), Type.Array(TaggedUnion(resultBlocks))])),
  is_error: OptionalFlag,
  cache_control: cacheControl,
});

/** A message with the blocks that its role can have. Of the tools that a provider runs, only searches have some. */
function messageOf<Role extends string, Blocks extends TSchema[]>(role: Role, blocks: [...Blocks]) {
  const content = Type.Union([Type.String(), Type.Array(TaggedUnion(blocks))]);
  return Type.Object({ role: Type.Literal(role), content });
}
const calls = [ToolUseBlock, ServerToolUseBlock, SearchToolResultBlock] as const;
const Message = TaggedUnion(
  [
    messageOf("user", [...resultBlocks, ToolResultBlock]),
    messageOf("assistant", [TextBlock, ThinkingBlock, RedactedThinkingBlock, ...calls]),
    messageOf("system", [TextBlock]),
  ],
  "role",
);

/** A custom tool, or one that Anthropic defines, such as `bash_20250124`. */
const MessageTool = PartialObject({
  type: Type.String(),
  name: Type.String({ minLength: 1, description: "Required, except for a toolset." }),
  description: Type.String(),
  input_schema: Type.Unsafe<Record<string, unknown>>({ ...Json, description: "Required for a custom tool." }),
  input_examples: Type.Array(Json),
  strict: Type.Boolean(),
  eager_input_streaming: Type.Boolean(),
  cache_control: CacheControl,
  max_characters: Type.Integer({ minimum: 1 }),
  display_width_px: Type.Integer({ minimum: 1 }),
  display_height_px: Type.Integer({ minimum: 1 }),
  display_number: Type.Integer(),
  enable_zoom: Type.Boolean(),
  configs: Json,
  max_uses: Type.Integer({ minimum: 1 }),
  allowed_domains: Type.Array(Type.String()),
  blocked_domains: Type.Array(Type.String()),
  user_location: Json,
  response_inclusion: Type.String(),
});

const isSequential = { disable_parallel_tool_use: OptionalFlag };
const MessageToolChoice = TaggedUnion([
  Typed("auto", isSequential),
  Typed("any", isSequential),
  Typed("tool", { name: Type.String({ minLength: 1 }), ...isSequential }),
  Typed("none", {}),
]);

const display = Type.Optional(Type.Enum(["summarized", "omitted"]));
const Thinking = TaggedUnion([
  Typed("enabled", { budget_tokens: Type.Integer({ minimum: 1024 }), display }),
  Typed("adaptive", { display }),
  Typed("disabled", {}),
]);

const OutputFormat = Typed("json_schema", { schema: Json });

const EditType = Type.String({
  pattern: "^clear_",
  description: "an edit that clears content, such as 'clear_thinking_20251015'.",
});

/** Fields of a request whose tokens are counted. `null` counts as absent. */
const promptFields = {
  model: SentRequest.properties.model,
  messages: Type.Array(Message, { minItems: 1, maxItems: MESSAGES_MAX }),
  ...OptionalKeys({
    system: Type.Union([Type.String(), Type.Array(TaggedUnion([TextBlock]))]),
    tools: Type.Array(MessageTool, { maxItems: TOOLS_MAX }),
    tool_choice: MessageToolChoice,
    thinking: Thinking,
    output_config: PartialObject({
      effort: Type.Enum(["low", "medium", "high", "xhigh", "max"]),
      format: OutputFormat,
    }),
    output_format: OutputFormat,
    cache_control: CacheControl,
    context_management: PartialObject({ edits: Type.Array(Type.Object({ type: EditType })) }),
  }),
};

/** Body of POST /v1/messages/count_tokens. */
export const CountTokensRequest = Type.Object(promptFields);

/** Body of POST /v1/messages. */
export const MessagesRequest = Type.Object({
  ...promptFields,
  max_tokens: Type.Integer({ minimum: 1, description: "Maximum tokens to generate; at most the model's own maximum." }),
  stop_sequences: Type.Optional(Type.Array(Type.String({ minLength: 1 }))),
  temperature: Type.Optional(Type.Number({ minimum: 0, maximum: 1 })),
  ...pick(SentRequest.properties, ["stream", "top_p", "top_k"] as const),
  metadata: Type.Optional(PartialObject({ user_id: Type.String() })),
  service_tier: Type.Optional(Type.Enum(["auto", "standard_only"])),
});

export type MessagesRequest = Static<typeof MessagesRequest>;
export type CountTokensRequest = Static<typeof CountTokensRequest>;
export type InputMessage = Static<typeof Message>;
export type MessageBlock = Exclude<InputMessage["content"], string>[number];
export type BlockOf<T extends MessageBlock["type"]> = Extract<MessageBlock, { type: T }>;
export type MessageTool = Static<typeof MessageTool>;
