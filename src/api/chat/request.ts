import { type Static, type TSchema, Type } from "typebox";

/** Limits of a request body: they limit the time for which one request can occupy the event loop. */
export const MESSAGES_MAX = 10_000;
export const TOOLS_MAX = 1_024;
/** Nested arrays and objects in a body. */
export const JSON_DEPTH_MAX = 128;
/** Values in a body: strings, numbers, booleans, nulls, arrays and objects. */
export const JSON_VALUES_MAX = 100_000;
/** Default of the operator's limit of `max_tokens`. */
export const MAX_TOKENS_DEFAULT = 4096;
/** Highest temperature that the setting `completions.maxTemperature` can allow. */
export const TEMPERATURE_MAX = 2;
export const MESSAGE_ROLES = ["system", "developer", "user", "assistant", "tool"] as const;

/** Union of object schemas with a discriminator, in the form that validators and code generators understand. */
export function taggedUnion<T extends TSchema[]>(tag: string, schemas: [...T]) {
  return Type.Unsafe<Static<T[number]>>({
    type: "object",
    required: [tag],
    discriminator: { propertyName: tag },
    oneOf: schemas,
  });
}

/** Marks the end of a prompt's part that the upstream may cache (Anthropic's documentation, "Prompt caching"). */
export const CacheControl = Type.Object({
  type: Type.Literal("ephemeral"),
  ttl: Type.Optional(Type.Enum(["5m", "1h"])),
});
const cacheControl = Type.Optional(CacheControl);

const TextPart = Type.Object({ type: Type.Literal("text"), text: Type.String(), cache_control: cacheControl });
const ImagePart = Type.Object({
  type: Type.Literal("image_url"),
  image_url: Type.Object({
    url: Type.String({ minLength: 1 }),
    detail: Type.Optional(Type.Enum(["auto", "low", "high"])),
  }),
  cache_control: cacheControl,
});
/** `file_data` is a data URL, `file_url` an https address. */
const FilePart = Type.Object({
  type: Type.Literal("file"),
  file: Type.Object({
    filename: Type.Optional(Type.String()),
    file_data: Type.Optional(Type.String()),
    file_url: Type.Optional(Type.String()),
    file_id: Type.Optional(Type.String()),
  }),
  cache_control: cacheControl,
});
const AudioPart = Type.Object({
  type: Type.Literal("input_audio"),
  input_audio: Type.Object({ data: Type.String({ minLength: 1 }), format: Type.String({ minLength: 1 }) }),
});
const VideoPart = Type.Object({
  type: Type.Literal("video_url"),
  video_url: Type.Object({ url: Type.String({ minLength: 1 }) }),
});
const RefusalPart = Type.Object({ type: Type.Literal("refusal"), refusal: Type.String() });
export const ContentPart = taggedUnion("type", [TextPart, ImagePart, FilePart, AudioPart, VideoPart, RefusalPart]);

const FunctionCall = Type.Object({ name: Type.String(), arguments: Type.String() });
const FunctionToolCall = Type.Object({
  id: Type.String(),
  type: Type.Literal("function"),
  function: FunctionCall,
  extra_content: Type.Optional(Type.Unknown()),
});
const CustomToolCall = Type.Object({
  id: Type.String(),
  type: Type.Literal("custom"),
  custom: Type.Object({ name: Type.String(), input: Type.String() }),
});
/**
 * A call of a function, or of a custom tool. Internally a custom tool's call is a function's call with its input as the
 * arguments, and is marked; `translate.ts` converts the calls of a request, `encode.ts` those of an answer.
 */
export const ToolCall = Type.Unsafe<Static<typeof FunctionToolCall> & { isCustom?: true }>(
  taggedUnion("type", [FunctionToolCall, CustomToolCall]),
);

/**
 * A block of a model's reasoning, as its provider wants it back: text with a signature, a summary, or encrypted data.
 * `format` names the providers that can read it (OpenRouter's documentation, "Reasoning Tokens": `reasoning_details`).
 */
export const ReasoningDetail = Type.Object({
  type: Type.Enum(["reasoning.text", "reasoning.summary", "reasoning.encrypted"]),
  format: Type.Optional(Type.String()),
  id: Type.Optional(Type.String()),
  index: Type.Optional(Type.Integer({ minimum: 0 })),
  text: Type.Optional(Type.String()),
  summary: Type.Optional(Type.String()),
  data: Type.Optional(Type.String()),
  signature: Type.Optional(Type.String()),
});

/** A message as callers send it: with the role and the field of the time before `tools`. */
export const SentMessage = Type.Object({
  role: Type.Enum([...MESSAGE_ROLES, "function"]),
  content: Type.Optional(
    Type.Union([Type.String(), Type.Array(ContentPart)], {
      description: "Required, except on an assistant message with tool_calls or a refusal.",
    }),
  ),
  name: Type.Optional(Type.String()),
  tool_calls: Type.Optional(Type.Array(ToolCall)),
  tool_call_id: Type.Optional(Type.String()),
  refusal: Type.Optional(Type.String()),
  reasoning_content: Type.Optional(Type.String()),
  reasoning_details: Type.Optional(Type.Array(ReasoningDetail)),
  function_call: Type.Optional(FunctionCall),
});
export const RequestMessage = Type.Unsafe<
  Omit<Static<typeof SentMessage>, "role" | "function_call"> & { role: (typeof MESSAGE_ROLES)[number] }
>(SentMessage);

export const FunctionDefinition = Type.Object({
  name: Type.String({ minLength: 1 }),
  description: Type.Optional(Type.String()),
  parameters: Type.Optional(Type.Record(Type.String(), Type.Unknown())),
  strict: Type.Optional(Type.Boolean()),
});
const FunctionTool = Type.Object({
  type: Type.Literal("function"),
  function: FunctionDefinition,
  cache_control: cacheControl,
});
const ToolFormat = Type.Record(Type.String(), Type.Unknown());
const CustomTool = Type.Object({
  type: Type.Literal("custom"),
  custom: Type.Object({
    name: Type.String({ minLength: 1 }),
    description: Type.Optional(Type.String()),
    format: Type.Optional(ToolFormat),
  }),
  cache_control: cacheControl,
});
/** A function, or a custom tool. Internally a custom tool is a function without parameters that has `custom`. */
export const Tool = Type.Unsafe<Static<typeof FunctionTool> & { custom?: { format?: Static<typeof ToolFormat> } }>(
  taggedUnion("type", [FunctionTool, CustomTool]),
);

const Named = Type.Object({ name: Type.String() });
const NamedTool = taggedUnion("type", [
  Type.Object({ type: Type.Literal("function"), function: Named }),
  Type.Object({ type: Type.Literal("custom"), custom: Named }),
]);
/** Choice that the model has among the tools. `translate.ts` converts the other two forms to these. */
type ToolChoice = "none" | "auto" | "required" | { type: "function"; function: { name: string } };
const SentToolChoice = Type.Union([
  Type.Enum(["none", "auto", "required"]),
  taggedUnion("type", [
    Type.Object({ type: Type.Literal("function"), function: Named }),
    Type.Object({ type: Type.Literal("custom"), custom: Named }),
    Type.Object({
      type: Type.Literal("allowed_tools"),
      allowed_tools: Type.Object({
        mode: Type.Enum(["auto", "required"]),
        tools: Type.Array(NamedTool, { minItems: 1, maxItems: TOOLS_MAX }),
      }),
    }),
  ]),
]);

const ResponseFormat = taggedUnion("type", [
  Type.Object({ type: Type.Literal("text") }),
  Type.Object({ type: Type.Literal("json_object") }),
  Type.Object({
    type: Type.Literal("json_schema"),
    json_schema: Type.Object({
      name: Type.String(),
      description: Type.Optional(Type.String()),
      schema: Type.Optional(Type.Record(Type.String(), Type.Unknown())),
      strict: Type.Optional(Type.Boolean()),
    }),
  }),
]);

/** Uses additionalProperties, because the pattern of a TypeBox record does not match names with line breaks. */
const LogitBias = Type.Unsafe<Record<string, number>>({
  type: "object",
  additionalProperties: { type: "number", minimum: -100, maximum: 100 },
});

/** Characters of a label's value. */
export const LABEL_CHARACTERS_MAX = 512;

/** Labels of a request. They are stored with the charge, so they have OpenAI's limits. */
export const Metadata = Type.Unsafe<Record<string, string>>({
  type: "object",
  maxProperties: 16,
  propertyNames: { maxLength: 64 },
  additionalProperties: { type: "string", maxLength: LABEL_CHARACTERS_MAX },
});

const Json = Type.Record(Type.String(), Type.Unknown());

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
const RARE_FIELDS = {
  modalities: Type.Optional(Type.Array(Type.Enum(["text", "audio", "image"]), { minItems: 1, maxItems: 3 })),
  audio: Type.Optional(Audio),
  web_search_options: Type.Optional(Json),
  service_tier: Type.Optional(Type.Enum(["auto", "default", "flex", "scale", "priority"])),
  prediction: Type.Optional(Json),
  verbosity: Type.Optional(Type.Enum(["low", "medium", "high"])),
  store: Type.Optional(Type.Boolean()),
  safety_identifier: Type.Optional(Type.String({ maxLength: 128 })),
  prompt_cache_key: Type.Optional(Type.String({ maxLength: 1024 })),
  prompt_cache_retention: Type.Optional(Type.Enum(["in_memory", "in-memory", "24h"])),
  top_k: Type.Optional(Type.Integer({ minimum: 0 })),
  thinking: Type.Optional(Thinking),
  min_p: Type.Optional(Type.Number({ minimum: 0, maximum: 1 })),
  repetition_penalty: Type.Optional(Type.Number({ exclusiveMinimum: 0 })),
  chat_template_kwargs: Type.Optional(Json),
  enable_thinking: Type.Optional(Type.Boolean()),
  guided_json: Type.Optional(Type.Union([Type.String(), Json])),
  guided_regex: Type.Optional(Type.String()),
  guided_choice: Type.Optional(Type.Array(Type.String(), { minItems: 1 })),
  guided_grammar: Type.Optional(Type.String()),
  cache_control: cacheControl,
};

/** Body of POST /v1/chat/completions. `null` counts as absent. */
export const SentRequest = Type.Object({
  model: Type.String({ minLength: 1, description: "A model's id, as in GET /v1/models." }),
  messages: Type.Array(RequestMessage, { minItems: 1, maxItems: MESSAGES_MAX }),
  instructions: Type.Optional(Type.String({ description: "Placed before all messages as a system message." })),
  temperature: Type.Optional(Type.Number({ minimum: 0, maximum: TEMPERATURE_MAX })),
  max_tokens: Type.Optional(
    Type.Integer({
      minimum: 1,
      description:
        "Maximum tokens to generate; at most the model's own maximum and `completions.maxTokens` of the configuration. -1 counts as absent.",
    }),
  ),
  max_completion_tokens: Type.Optional(
    Type.Integer({
      minimum: 1,
      description: "Maximum tokens to generate; lowered to the model's own maximum. Not together with max_tokens.",
    }),
  ),
  stream: Type.Optional(Type.Boolean()),
  stream_options: Type.Optional(Type.Object({ include_usage: Type.Optional(Type.Boolean()) })),
  n: Type.Optional(Type.Integer({ minimum: 1, description: "Only 1." })),
  top_p: Type.Optional(Type.Number({ minimum: 0, maximum: 1 })),
  stop: Type.Optional(Type.Union([Type.String(), Type.Array(Type.String(), { maxItems: 4 })])),
  seed: Type.Optional(Type.Integer()),
  presence_penalty: Type.Optional(Type.Number({ minimum: -2, maximum: 2 })),
  frequency_penalty: Type.Optional(Type.Number({ minimum: -2, maximum: 2 })),
  tools: Type.Optional(Type.Array(Tool, { maxItems: TOOLS_MAX })),
  tool_choice: Type.Optional(Type.Unsafe<ToolChoice>(SentToolChoice)),
  functions: Type.Optional(
    Type.Array(FunctionDefinition, { maxItems: TOOLS_MAX, description: "Deprecated: use `tools`." }),
  ),
  function_call: Type.Optional(
    Type.Union([Type.Enum(["none", "auto"]), Named], { description: "Deprecated: use `tool_choice`." }),
  ),
  parallel_tool_calls: Type.Optional(Type.Boolean()),
  response_format: Type.Optional(ResponseFormat),
  reasoning_effort: Type.Optional(Type.Enum(["none", "minimal", "low", "medium", "high", "xhigh"])),
  logit_bias: Type.Optional(LogitBias),
  logprobs: Type.Optional(Type.Boolean()),
  top_logprobs: Type.Optional(Type.Integer({ minimum: 0, maximum: 20 })),
  user: Type.Optional(Type.String()),
  metadata: Type.Optional(Metadata),
  ...RARE_FIELDS,
});

/** A request in the internal form. */
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
