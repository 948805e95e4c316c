import { type Static, Type } from "typebox";
import { Json, OptionalFlag, OptionalKeys, OptionalText, PartialObject, TaggedUnion, Typed } from "../schema.ts";

/** Limits of a request body: they limit the time for which one request can occupy the event loop. */
export const MESSAGES_MAX = 10_000;
export const TOOLS_MAX = 1_024;
export const CHOICES_MAX = 8;
/** Nested arrays and objects in a body. */
export const JSON_DEPTH_MAX = 128;
/** Values in a body: strings, numbers, booleans, nulls, arrays and objects. */
export const JSON_VALUES_MAX = 100_000;
/** Default of the operator's limit of `max_tokens`. */
export const MAX_TOKENS_DEFAULT = 4096;
/** Highest temperature that the setting `completions.maxTemperature` can allow. */
export const TEMPERATURE_MAX = 2;
export const MESSAGE_ROLES = ["system", "developer", "user", "assistant", "tool"] as const;

/** Marks the end of a prompt's part that the upstream may cache (Anthropic's documentation, "Prompt caching"). */
export const CacheControl = Typed("ephemeral", { ttl: Type.Optional(Type.Enum(["5m", "1h"])) });
const cacheControl = Type.Optional(CacheControl);

const TextPart = Typed("text", { text: Type.String(), cache_control: cacheControl });
const ImagePart = Typed("image_url", {
  image_url: Type.Object({
    url: Type.String({ minLength: 1 }),
    detail: Type.Optional(Type.Enum(["auto", "low", "high"])),
  }),
  cache_control: cacheControl,
});
/** `file_data` is a data URL, `file_url` an https address. */
const FilePart = Typed("file", {
  file: PartialObject({
    filename: Type.String(),
    file_data: Type.String(),
    file_url: Type.String(),
    file_id: Type.String(),
  }),
  cache_control: cacheControl,
});
const AudioPart = Typed("input_audio", {
  input_audio: Type.Object({ data: Type.String({ minLength: 1 }), format: Type.String({ minLength: 1 }) }),
});
const VideoPart = Typed("video_url", {
  video_url: Type.Object({ url: Type.String({ minLength: 1 }) }),
});
const RefusalPart = Typed("refusal", { refusal: Type.String() });
export const ContentPart = TaggedUnion([TextPart, ImagePart, FilePart, AudioPart, VideoPart, RefusalPart]);

const FunctionCall = Type.Object({ name: Type.String(), arguments: Type.String() });
const FunctionToolCall = Typed("function", {
  id: Type.String(),
  function: FunctionCall,
  extra_content: Type.Optional(Type.Unknown()),
});
const CustomToolCall = Typed("custom", {
  id: Type.String(),
  custom: Type.Object({ name: Type.String(), input: Type.String() }),
});
/** A call of a function or a custom tool. Internally that of a custom tool is a function's, and is marked. */
export const ToolCall = Type.Unsafe<Static<typeof FunctionToolCall> & { isCustom?: true }>(
  TaggedUnion([FunctionToolCall, CustomToolCall]),
);

/**
 * A block of a model's reasoning, as its provider wants it back: text with a signature, a summary, or encrypted data.
 * `format` names the providers that can read it (OpenRouter's documentation, "Reasoning Tokens": `reasoning_details`).
 */
export const ReasoningDetail = Type.Object({
  type: Type.Enum(["reasoning.text", "reasoning.summary", "reasoning.encrypted"]),
  format: OptionalText,
  id: OptionalText,
  index: Type.Optional(Type.Integer({ minimum: 0 })),
  text: OptionalText,
  summary: OptionalText,
  data: OptionalText,
  signature: OptionalText,
});

/** A message as callers send it: with the role and the field of the time before `tools`. */
export const SentMessage = Type.Object({
  role: Type.Enum([...MESSAGE_ROLES, "function"]),
  content: Type.Optional(
    Type.Union([Type.String(), Type.Array(ContentPart)], {
      description: "Required, except on an assistant message with tool_calls, audio or a refusal.",
    }),
  ),
  name: OptionalText,
  tool_calls: Type.Optional(Type.Array(ToolCall)),
  tool_call_id: OptionalText,
  refusal: OptionalText,
  audio: Type.Optional(Type.Object({ id: Type.String() }, { description: "Audio that the model made before." })),
  reasoning_content: OptionalText,
  reasoning_details: Type.Optional(Type.Array(ReasoningDetail)),
  function_call: Type.Optional(FunctionCall),
});
export const RequestMessage = Type.Unsafe<
  Omit<Static<typeof SentMessage>, "role" | "function_call"> & { role: (typeof MESSAGE_ROLES)[number] }
>(SentMessage);

export const FunctionDefinition = Type.Object({
  name: Type.String({ minLength: 1 }),
  description: OptionalText,
  parameters: Type.Optional(Json),
  strict: OptionalFlag,
});
const FunctionTool = Typed("function", { function: FunctionDefinition, cache_control: cacheControl });
const CustomTool = Typed("custom", {
  custom: Type.Object({
    name: Type.String({ minLength: 1 }),
    description: OptionalText,
    format: Type.Optional(Json),
  }),
  cache_control: cacheControl,
});
/** A function, or a custom tool. Internally a custom tool is a function without parameters that has `custom`. */
export const Tool = Type.Unsafe<Static<typeof FunctionTool> & { custom?: { format?: Static<typeof Json> } }>(
  TaggedUnion([FunctionTool, CustomTool]),
);

const Named = Type.Object({ name: Type.String() });
const namedTools = [Typed("function", { function: Named }), Typed("custom", { custom: Named })] as const;
/** Choice that the model has among the tools. `translate.ts` converts the other two forms to these. */
type ToolChoice = "none" | "auto" | "required" | { type: "function"; function: { name: string } };
const SentToolChoice = Type.Union([
  Type.Enum(["none", "auto", "required"]),
  TaggedUnion([
    ...namedTools,
    Typed("allowed_tools", {
      allowed_tools: Type.Object({
        mode: Type.Enum(["auto", "required"]),
        tools: Type.Array(TaggedUnion(namedTools), { minItems: 1, maxItems: TOOLS_MAX }),
      }),
    }),
  ]),
]);

const ResponseFormat = TaggedUnion([
  Typed("text", {}),
  Typed("json_object", {}),
  Typed("json_schema", {
    json_schema: Type.Object({
      name: Type.String(),
      description: OptionalText,
      schema: Type.Optional(Json),
      strict: OptionalFlag,
    }),
  }),
]);

/** Uses additionalProperties, because the pattern of a TypeBox record does not match names with line breaks. */
const LogitBias = Type.Unsafe<Record<string, number>>({
  type: "object",
  additionalProperties: { type: "number", minimum: -100, maximum: 100 },
});

export const LABEL_CHARACTERS_MAX = 512;

/** Labels of a request. They are stored with the charge, so they have OpenAI's limits. */
export const Metadata = Type.Unsafe<Record<string, string>>({
  type: "object",
  maxProperties: 16,
  propertyNames: { maxLength: 64 },
  additionalProperties: { type: "string", maxLength: LABEL_CHARACTERS_MAX },
});

/** The output of audio: a voice of the provider, or one that its customer made. */
const Audio = Type.Object({
  voice: Type.Union([Type.String({ minLength: 1 }), Type.Object({ id: Type.String({ minLength: 1 }) })]),
  format: Type.String({ minLength: 1 }),
});

/** Anthropic's form; `budget_tokens` is a part of the bound of the answer. */
const Thinking = Type.Object({
  type: Type.Enum(["enabled", "disabled", "adaptive"]),
  budget_tokens: Type.Optional(Type.Integer({ minimum: 1 })),
});

/** Fields that few providers take. `src/providers/fields.ts` says which. */
export const RARE_FIELDS = OptionalKeys({
  modalities: Type.Array(Type.Enum(["text", "audio", "image"]), { minItems: 1, maxItems: 3 }),
  audio: Audio,
  web_search_options: Json,
  service_tier: Type.Enum(["auto", "default", "flex", "scale", "priority"]),
  // OpenAI refuses it together with a bound of the answer, which a hold needs.
  prediction: Json,
  verbosity: Type.Enum(["low", "medium", "high"]),
  store: Type.Boolean(),
  safety_identifier: Type.String({ maxLength: 128 }),
  prompt_cache_key: Type.String({ maxLength: 1024 }),
  prompt_cache_retention: Type.Enum(["in_memory", "in-memory", "24h"]),
  top_k: Type.Integer({ minimum: 0 }),
  thinking: Thinking,
  min_p: Type.Number({ minimum: 0, maximum: 1 }),
  repetition_penalty: Type.Number({ exclusiveMinimum: 0 }),
  chat_template_kwargs: Json,
  enable_thinking: Type.Boolean(),
  guided_json: Type.Union([Type.String(), Json]),
  guided_regex: Type.String(),
  guided_choice: Type.Array(Type.String(), { minItems: 1 }),
  guided_grammar: Type.String(),
  cache_control: CacheControl,
});

/** Body of POST /v1/chat/completions. `null` counts as absent. */
export const SentRequest = Type.Object({
  model: Type.String({ minLength: 1, description: "A model's id, as in GET /v1/models." }),
  messages: Type.Array(RequestMessage, { minItems: 1, maxItems: MESSAGES_MAX }),
  ...OptionalKeys({
    instructions: Type.String({ description: "Placed before all messages as a system message." }),
    temperature: Type.Number({ minimum: 0, maximum: TEMPERATURE_MAX }),
    max_tokens: Type.Integer({
      minimum: 1,
      description:
        "Maximum tokens to generate; at most the model's own maximum and `completions.maxTokens` of the configuration. -1 counts as absent.",
    }),
    max_completion_tokens: Type.Integer({
      minimum: 1,
      description: "Maximum tokens to generate; lowered to the model's own maximum. Not together with max_tokens.",
    }),
    stream: Type.Boolean(),
    stream_options: PartialObject({ include_usage: Type.Boolean() }),
    n: Type.Integer({ minimum: 1, maximum: CHOICES_MAX, description: "Number of choices; `max_tokens` bounds each." }),
    top_p: Type.Number({ minimum: 0, maximum: 1 }),
    stop: Type.Union([Type.String(), Type.Array(Type.String(), { maxItems: 4 })]),
    seed: Type.Integer(),
    presence_penalty: Type.Number({ minimum: -2, maximum: 2 }),
    frequency_penalty: Type.Number({ minimum: -2, maximum: 2 }),
    tools: Type.Array(Tool, { maxItems: TOOLS_MAX }),
    tool_choice: Type.Unsafe<ToolChoice>(SentToolChoice),
    functions: Type.Array(FunctionDefinition, { maxItems: TOOLS_MAX, description: "Deprecated: use `tools`." }),
    function_call: Type.Union([Type.Enum(["none", "auto"]), Named], { description: "Deprecated: use `tool_choice`." }),
    parallel_tool_calls: Type.Boolean(),
    response_format: ResponseFormat,
    reasoning_effort: Type.Enum(["none", "minimal", "low", "medium", "high", "xhigh", "max"]),
    logit_bias: LogitBias,
    logprobs: Type.Boolean(),
    top_logprobs: Type.Integer({ minimum: 0, maximum: 20 }),
    user: Type.String(),
    metadata: Metadata,
  }),
  ...RARE_FIELDS,
});

export type ChatCompletionRequest = Omit<Static<typeof SentRequest>, "functions" | "function_call">;
export type SentRequest = Static<typeof SentRequest>;
export type SentMessage = Static<typeof SentMessage>;
export type SentTool = Static<typeof FunctionTool> | Static<typeof CustomTool>;
export type SentToolCall = Static<typeof FunctionToolCall> | Static<typeof CustomToolCall>;
export type SentToolChoice = Static<typeof SentToolChoice>;
export type RequestMessage = Static<typeof RequestMessage>;
export type CacheControl = Static<typeof CacheControl>;
export type ReasoningDetail = Static<typeof ReasoningDetail>;
export type ContentPart = Static<typeof ContentPart>;
export type ToolCall = Static<typeof ToolCall>;
export type Tool = Static<typeof Tool>;
