import { type Static, Type } from "typebox";
import { FunctionDefinition, SentRequest } from "../chat/request.ts";
import { pick } from "../json.ts";
import { Json, OptionalFlag, OptionalKeys, OptionalText, PartialObject, TaggedUnion, Typed } from "../schema.ts";
import { TYPED_TOOLS, typedItems, typedTools } from "./typed-tools.ts";

const ITEM = { id: OptionalText, status: OptionalText };

const InputText = Typed("input_text", { text: Type.String() });
const InputImage = Typed("input_image", {
  image_url: Type.String(),
  detail: Type.Optional(Type.Enum(["auto", "low", "high", "original"])),
});
const InputFile = Typed("input_file", {
  filename: OptionalText,
  file_data: Type.Optional(Type.String({ description: "A data URL." })),
  file_url: OptionalText,
});
/** The answers of this service have the optional fields; clients send them back. */
const OutputText = Typed("output_text", {
  text: Type.String(),
  annotations: Type.Optional(Type.Array(Type.Unknown())),
  logprobs: Type.Optional(Type.Array(Type.Unknown())),
});
const Refusal = Typed("refusal", { refusal: Type.String() });
const messageParts = [InputText, InputImage, InputFile, OutputText, Refusal] as const;
const MessagePart = TaggedUnion(messageParts);
const ToolOutput = Type.Union([Type.String(), Type.Array(TaggedUnion([InputText, InputImage, InputFile]))]);

const Message = Typed("message", {
  ...ITEM,
  role: Type.Enum(["user", "assistant", "system", "developer"]),
  content: Type.Union([Type.String(), Type.Array(MessagePart)]),
  phase: OptionalText,
});
const CALLED = { call_id: Type.String(), name: Type.String(), namespace: OptionalText };
export const FunctionCall = Typed("function_call", { ...ITEM, ...CALLED, arguments: Type.String() });
export const CustomToolCall = Typed("custom_tool_call", { ...ITEM, ...CALLED, input: Type.String() });
const CallOutput = <T extends string>(type: T) => Typed(type, { ...ITEM, call_id: Type.String(), output: ToolOutput });
const FunctionTool = Typed("function", {
  ...FunctionDefinition.properties,
  defer_loading: Type.Optional(Type.Boolean({ description: "True only in the result of a `tool_search`." })),
});
const CustomTool = Typed("custom", {
  name: Type.String({ minLength: 1 }),
  description: OptionalText,
  format: Type.Optional(
    TaggedUnion([
      Typed("text", {}),
      Typed("grammar", { syntax: Type.Enum(["lark", "regex"]), definition: Type.String() }),
    ]),
  ),
});
/** Tools under a common name, as Codex sends them: their calls have the name in `namespace`. */
const NamespaceTool = Typed("namespace", {
  name: Type.String({ minLength: 1 }),
  description: OptionalText,
  tools: Type.Array(TaggedUnion([FunctionTool, CustomTool])),
});
/** A search of the client's for further tools, which the result of a call makes available. */
const ToolSearchTool = Typed("tool_search", {
  execution: Type.Literal("client"),
  ...pick(FunctionDefinition.properties, ["description", "parameters"] as const),
});
const searchTools = (["web_search", "web_search_2025_08_26", "web_search_preview"] as const).map((type) =>
  Typed(type, {
    external_web_access: OptionalFlag,
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
const ResponsesTool = TaggedUnion([...clientTools, ...searchTools]);

export const ToolSearchCall = Typed("tool_search_call", {
  ...ITEM,
  call_id: Type.String(),
  execution: Type.Optional(Type.Literal("client")),
  arguments: Type.Unknown(),
});
const ToolSearchOutput = Typed("tool_search_output", {
  ...ITEM,
  call_id: Type.String(),
  execution: Type.Optional(Type.Literal("client")),
  tools: Type.Array(ResponsesTool),
});
/** Tools of the request in its input, as Codex sends them to some models. */
const AdditionalTools = Typed("additional_tools", {
  ...ITEM,
  role: OptionalText,
  tools: Type.Array(ResponsesTool),
});
const Reasoning = Typed("reasoning", {
  ...ITEM,
  summary: Type.Optional(Type.Array(Typed("summary_text", { text: Type.String() }))),
  content: Type.Optional(Type.Array(Typed("reasoning_text", { text: Type.String() }))),
  encrypted_content: OptionalText,
});
const ItemReference = Typed("item_reference", { id: Type.String() });
const WebSearchCall = Typed("web_search_call", { ...ITEM, action: Type.Optional(Json) });
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
export const InputItem = TaggedUnion(inputItems);

const ToolName = { name: Type.String() };
const ResponsesToolChoice = Type.Union([
  Type.Enum(["none", "auto", "required"]),
  TaggedUnion([
    Typed("function", ToolName),
    Typed("custom", ToolName),
    Typed("allowed_tools", {
      mode: Type.Enum(["auto", "required"]),
      tools: Type.Array(Type.Object({ type: Type.String(), name: OptionalText })),
    }),
    Type.Object({ type: Type.Enum([...TYPED_TOOLS, ...WEB_SEARCHES]) }),
  ]),
]);

const TextFormat = TaggedUnion([
  Typed("text", {}),
  Typed("json_object", {}),
  Typed("json_schema", {
    name: Type.String(),
    description: OptionalText,
    schema: Json,
    strict: OptionalFlag,
  }),
]);

const Summary = Type.Enum(["auto", "concise", "detailed"]);
const TextSettings = PartialObject({ format: TextFormat, verbosity: Type.Enum(["low", "medium", "high"]) });
const ReasoningSettings = PartialObject({
  effort: Type.Enum(["none", "minimal", "low", "medium", "high", "xhigh", "max"]),
  summary: Summary,
  generate_summary: Summary,
  mode: Type.Literal("standard"),
});

/** Fields that chat completions have in the same form. */
export const SAME_FIELDS = [
  ...(["model", "temperature", "top_p", "stream", "parallel_tool_calls"] as const),
  ...(["user", "metadata", "prompt_cache_key", "safety_identifier"] as const),
];

/** Body of POST /v1/responses. `null` counts as absent. */
export const ResponsesRequest = Type.Object({
  ...pick(SentRequest.properties, [...SAME_FIELDS, "top_logprobs"] as const),
  input: Type.Union([Type.String(), Type.Array(InputItem, { minItems: 1 })]),
  ...OptionalKeys({
    instructions: Type.String({ description: "Placed before the input as a system message." }),
    tools: Type.Array(ResponsesTool),
    tool_choice: ResponsesToolChoice,
    text: TextSettings,
    reasoning: ReasoningSettings,
    max_output_tokens: Type.Integer({
      minimum: 1,
      description: "Maximum tokens to generate; at most the model's own maximum.",
    }),
    include: Type.Array(Type.String()),
    stream_options: PartialObject({ include_obfuscation: Type.Boolean() }),
    store: Type.Boolean(),
    previous_response_id: Type.String(),
    truncation: Type.Enum(["auto", "disabled"]),
    service_tier: Type.String(),
    max_tool_calls: Type.Integer({ minimum: 1 }),
    background: Type.Boolean({ description: "Only false." }),
  }),
});

export type ResponsesRequest = Static<typeof ResponsesRequest>;
export type InputItem = Static<typeof InputItem>;
export type MessagePart = Static<typeof MessagePart>;
export type ResponsesTool = Static<typeof ResponsesTool>;
