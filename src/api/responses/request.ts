import { type Static, Type } from "typebox";
import { FunctionDefinition, SentRequest, taggedUnion } from "../chat/request.ts";
import { pick } from "../json.ts";
import { TYPED_TOOLS, typedItems, typedTools } from "./typed-tools.ts";

const ITEM = { id: Type.Optional(Type.String()), status: Type.Optional(Type.String()) };

const InputText = Type.Object({ type: Type.Literal("input_text"), text: Type.String() });
const InputImage = Type.Object({
  type: Type.Literal("input_image"),
  image_url: Type.String(),
  detail: Type.Optional(Type.Enum(["auto", "low", "high", "original"])),
});
const InputFile = Type.Object({
  type: Type.Literal("input_file"),
  filename: Type.Optional(Type.String()),
  file_data: Type.Optional(Type.String({ description: "A data URL." })),
  file_url: Type.Optional(Type.String()),
});
/** The answers of this service have the optional fields; clients send them back. */
const OutputText = Type.Object({
  type: Type.Literal("output_text"),
  text: Type.String(),
  annotations: Type.Optional(Type.Array(Type.Unknown())),
  logprobs: Type.Optional(Type.Array(Type.Unknown())),
});
const Refusal = Type.Object({ type: Type.Literal("refusal"), refusal: Type.String() });
const messageParts = [InputText, InputImage, InputFile, OutputText, Refusal] as const;
const MessagePart = taggedUnion("type", [...messageParts]);
const ToolOutput = Type.Union([Type.String(), Type.Array(taggedUnion("type", [InputText, InputImage, InputFile]))]);

const Message = Type.Object({
  type: Type.Literal("message"),
  ...ITEM,
  role: Type.Enum(["user", "assistant", "system", "developer"]),
  content: Type.Union([Type.String(), Type.Array(MessagePart)]),
  phase: Type.Optional(Type.String()),
});
/** The tool that a call names. */
const CALLED = { call_id: Type.String(), name: Type.String(), namespace: Type.Optional(Type.String()) };
export const FunctionCall = Type.Object({
  type: Type.Literal("function_call"),
  ...ITEM,
  ...CALLED,
  arguments: Type.String(),
});
export const CustomToolCall = Type.Object({
  type: Type.Literal("custom_tool_call"),
  ...ITEM,
  ...CALLED,
  input: Type.String(),
});
const CallOutput = <T extends string>(type: T) =>
  Type.Object({ type: Type.Literal(type), ...ITEM, call_id: Type.String(), output: ToolOutput });
const FunctionTool = Type.Object({
  type: Type.Literal("function"),
  ...FunctionDefinition.properties,
  defer_loading: Type.Optional(Type.Boolean({ description: "True only in the result of a `tool_search`." })),
});
const CustomTool = Type.Object({
  type: Type.Literal("custom"),
  name: Type.String({ minLength: 1 }),
  description: Type.Optional(Type.String()),
  format: Type.Optional(
    taggedUnion("type", [
      Type.Object({ type: Type.Literal("text") }),
      Type.Object({
        type: Type.Literal("grammar"),
        syntax: Type.Enum(["lark", "regex"]),
        definition: Type.String(),
      }),
    ]),
  ),
});
/** Tools under a common name, as Codex sends them: their calls have the name in `namespace`. */
const NamespaceTool = Type.Object({
  type: Type.Literal("namespace"),
  name: Type.String({ minLength: 1 }),
  description: Type.Optional(Type.String()),
  tools: Type.Array(taggedUnion("type", [FunctionTool, CustomTool])),
});
/** A search of the client's for further tools, which the result of a call makes available. */
const ToolSearchTool = Type.Object({
  type: Type.Literal("tool_search"),
  execution: Type.Literal("client"),
  ...pick(FunctionDefinition.properties, ["description", "parameters"] as const),
});
const Json = Type.Record(Type.String(), Type.Unknown());
const searchTools = (["web_search", "web_search_2025_08_26", "web_search_preview"] as const).map((type) =>
  Type.Object({
    type: Type.Literal(type),
    external_web_access: Type.Optional(Type.Boolean()),
    filters: Type.Optional(Json),
    search_context_size: Type.Optional(Type.Enum(["low", "medium", "high"])),
    search_content_types: Type.Optional(Type.Array(Type.String())),
    user_location: Type.Optional(Json),
  }),
);
/** The types of searches that OpenAI runs. */
export const WEB_SEARCHES = searchTools.map(({ properties }) => properties.type.const);
const clientTools = [FunctionTool, CustomTool, NamespaceTool, ToolSearchTool, ...typedTools] as const;
/** The types of the tools that the client runs. */
export const CLIENT_TOOLS: readonly string[] = clientTools.map(({ properties }) => properties.type.const);
const ResponsesTool = taggedUnion("type", [...clientTools, ...searchTools]);

export const ToolSearchCall = Type.Object({
  type: Type.Literal("tool_search_call"),
  ...ITEM,
  call_id: Type.String(),
  execution: Type.Optional(Type.Literal("client")),
  arguments: Type.Unknown(),
});
const ToolSearchOutput = Type.Object({
  type: Type.Literal("tool_search_output"),
  ...ITEM,
  call_id: Type.String(),
  execution: Type.Optional(Type.Literal("client")),
  tools: Type.Array(ResponsesTool),
});
/** Tools of the request in its input, as Codex sends them to some models. */
const AdditionalTools = Type.Object({
  type: Type.Literal("additional_tools"),
  ...ITEM,
  role: Type.Optional(Type.String()),
  tools: Type.Array(ResponsesTool),
});
const Reasoning = Type.Object({
  type: Type.Literal("reasoning"),
  ...ITEM,
  summary: Type.Optional(Type.Array(Type.Object({ type: Type.Literal("summary_text"), text: Type.String() }))),
  content: Type.Optional(Type.Array(Type.Object({ type: Type.Literal("reasoning_text"), text: Type.String() }))),
  encrypted_content: Type.Optional(Type.String()),
});
const ItemReference = Type.Object({ type: Type.Literal("item_reference"), id: Type.String() });
const WebSearchCall = Type.Object({ type: Type.Literal("web_search_call"), ...ITEM, action: Type.Optional(Json) });
const inputItems = [
  Message,
  FunctionCall,
  CallOutput("function_call_output"),
  CustomToolCall,
  CallOutput("custom_tool_call_output"),
  ToolSearchCall,
  ToolSearchOutput,
  AdditionalTools,
  Reasoning,
  ItemReference,
  WebSearchCall,
  ...typedItems,
] as const;
/** Item of `input`. A message may omit its `type`; decodeResponses adds it before it validates. */
export const InputItem = taggedUnion("type", [...inputItems]);

const ToolName = { name: Type.String() };
const ResponsesToolChoice = Type.Union([
  Type.Enum(["none", "auto", "required"]),
  taggedUnion("type", [
    Type.Object({ type: Type.Literal("function"), ...ToolName }),
    Type.Object({ type: Type.Literal("custom"), ...ToolName }),
    Type.Object({
      type: Type.Literal("allowed_tools"),
      mode: Type.Enum(["auto", "required"]),
      tools: Type.Array(Type.Object({ type: Type.String(), name: Type.Optional(Type.String()) })),
    }),
    Type.Object({ type: Type.Enum([...TYPED_TOOLS, ...WEB_SEARCHES]) }),
  ]),
]);

const TextFormat = taggedUnion("type", [
  Type.Object({ type: Type.Literal("text") }),
  Type.Object({ type: Type.Literal("json_object") }),
  Type.Object({
    type: Type.Literal("json_schema"),
    name: Type.String(),
    description: Type.Optional(Type.String()),
    schema: Type.Record(Type.String(), Type.Unknown()),
    strict: Type.Optional(Type.Boolean()),
  }),
]);

const Summary = Type.Optional(Type.Enum(["auto", "concise", "detailed"]));

const TextSettings = Type.Object({
  format: Type.Optional(TextFormat),
  verbosity: Type.Optional(Type.Enum(["low", "medium", "high"])),
});
const ReasoningSettings = Type.Object({
  effort: Type.Optional(Type.Enum(["none", "minimal", "low", "medium", "high", "xhigh"])),
  summary: Summary,
  generate_summary: Summary,
  mode: Type.Optional(Type.Literal("standard")),
});
const StreamSettings = Type.Object({ include_obfuscation: Type.Optional(Type.Boolean()) });

/** Fields that chat completions have in the same form. */
export const SAME_FIELDS = [
  ...(["model", "temperature", "top_p", "stream", "parallel_tool_calls"] as const),
  ...(["user", "metadata", "prompt_cache_key", "safety_identifier"] as const),
];

/** Body of POST /v1/responses. `null` counts as absent. */
export const ResponsesRequest = Type.Object({
  ...pick(SentRequest.properties, [...SAME_FIELDS, "top_logprobs"] as const),
  input: Type.Union([Type.String(), Type.Array(InputItem, { minItems: 1 })]),
  instructions: Type.Optional(Type.String({ description: "Placed before the input as a system message." })),
  tools: Type.Optional(Type.Array(ResponsesTool)),
  tool_choice: Type.Optional(ResponsesToolChoice),
  text: Type.Optional(TextSettings),
  reasoning: Type.Optional(ReasoningSettings),
  max_output_tokens: Type.Optional(
    Type.Integer({ minimum: 1, description: "Maximum tokens to generate; at most the model's own maximum." }),
  ),
  include: Type.Optional(Type.Array(Type.String())),
  stream_options: Type.Optional(StreamSettings),
  store: Type.Optional(Type.Boolean()),
  previous_response_id: Type.Optional(Type.String()),
  truncation: Type.Optional(Type.Enum(["auto", "disabled"])),
  service_tier: Type.Optional(Type.String()),
  max_tool_calls: Type.Optional(Type.Integer({ minimum: 1 })),
  background: Type.Optional(Type.Boolean({ description: "Only false." })),
});

export type ResponsesRequest = Static<typeof ResponsesRequest>;
export type InputItem = Static<typeof InputItem>;
export type MessagePart = Static<typeof MessagePart>;
export type ResponsesTool = Static<typeof ResponsesTool>;
