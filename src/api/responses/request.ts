import { type Static, Type } from "typebox";
import { Metadata, taggedUnion } from "../chat/request.ts";

const ITEM_ID = { id: Type.Optional(Type.String()) };

const InputText = Type.Object({ type: Type.Literal("input_text"), text: Type.String() });
const InputImage = Type.Object({
  type: Type.Literal("input_image"),
  image_url: Type.Optional(Type.String()),
  file_id: Type.Optional(Type.String()),
  detail: Type.Optional(Type.Enum(["auto", "low", "high", "original"])),
});
const InputFile = Type.Object({
  type: Type.Literal("input_file"),
  filename: Type.Optional(Type.String()),
  file_data: Type.Optional(Type.String({ description: "A data URL." })),
  file_url: Type.Optional(Type.String()),
  file_id: Type.Optional(Type.String()),
});
const OutputText = Type.Object({ type: Type.Literal("output_text"), text: Type.String() });
const Refusal = Type.Object({ type: Type.Literal("refusal"), refusal: Type.String() });
const MessagePart = taggedUnion("type", [InputText, InputImage, InputFile, OutputText, Refusal]);
const ToolOutput = Type.Union([Type.String(), Type.Array(taggedUnion("type", [InputText, InputImage, InputFile]))]);

const Message = Type.Object({
  type: Type.Literal("message"),
  ...ITEM_ID,
  role: Type.Enum(["user", "assistant", "system", "developer"]),
  content: Type.Union([Type.String(), Type.Array(MessagePart)]),
  status: Type.Optional(Type.String()),
  phase: Type.Optional(Type.String()),
});
const FunctionCall = Type.Object({
  type: Type.Literal("function_call"),
  ...ITEM_ID,
  call_id: Type.String(),
  name: Type.String(),
  arguments: Type.String(),
  status: Type.Optional(Type.String()),
});
const FunctionCallOutput = Type.Object({
  type: Type.Literal("function_call_output"),
  ...ITEM_ID,
  call_id: Type.String(),
  output: ToolOutput,
  status: Type.Optional(Type.String()),
});
const CustomToolCall = Type.Object({
  type: Type.Literal("custom_tool_call"),
  ...ITEM_ID,
  call_id: Type.String(),
  name: Type.String(),
  input: Type.String(),
});
const CustomToolCallOutput = Type.Object({
  type: Type.Literal("custom_tool_call_output"),
  ...ITEM_ID,
  call_id: Type.String(),
  output: ToolOutput,
});
const Reasoning = Type.Object({
  type: Type.Literal("reasoning"),
  ...ITEM_ID,
  summary: Type.Optional(Type.Array(Type.Object({ type: Type.Literal("summary_text"), text: Type.String() }))),
  content: Type.Optional(Type.Array(Type.Object({ type: Type.Literal("reasoning_text"), text: Type.String() }))),
  encrypted_content: Type.Optional(Type.String()),
  status: Type.Optional(Type.String()),
});
const ItemReference = Type.Object({ type: Type.Literal("item_reference"), id: Type.String() });
/** Item of `input`. A message may omit its `type`; decodeResponses adds it before it validates. */
const InputItem = taggedUnion("type", [
  Message,
  FunctionCall,
  FunctionCallOutput,
  CustomToolCall,
  CustomToolCallOutput,
  Reasoning,
  ItemReference,
]);

const FunctionTool = Type.Object({
  type: Type.Literal("function"),
  name: Type.String({ minLength: 1 }),
  description: Type.Optional(Type.String()),
  parameters: Type.Optional(Type.Record(Type.String(), Type.Unknown())),
  strict: Type.Optional(Type.Boolean()),
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
const ResponsesTool = taggedUnion("type", [FunctionTool, CustomTool]);

const ToolName = { name: Type.String() };
const ResponsesToolChoice = Type.Union([
  Type.Enum(["none", "auto", "required"]),
  taggedUnion("type", [
    Type.Object({ type: Type.Literal("function"), ...ToolName }),
    Type.Object({ type: Type.Literal("custom"), ...ToolName }),
    Type.Object({
      type: Type.Literal("allowed_tools"),
      mode: Type.Enum(["auto", "required"]),
      tools: Type.Array(Type.Object({ type: Type.Enum(["function", "custom"]), ...ToolName })),
    }),
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

/** Body of POST /v1/responses. `null` counts as absent. */
export const ResponsesRequest = Type.Object({
  model: Type.String({ minLength: 1, description: "A model's id, as in GET /v1/models." }),
  input: Type.Union([Type.String(), Type.Array(InputItem, { minItems: 1 })]),
  instructions: Type.Optional(Type.String({ description: "Placed before the input as a system message." })),
  tools: Type.Optional(Type.Array(ResponsesTool)),
  tool_choice: Type.Optional(ResponsesToolChoice),
  parallel_tool_calls: Type.Optional(Type.Boolean()),
  text: Type.Optional(
    Type.Object({
      format: Type.Optional(TextFormat),
      verbosity: Type.Optional(Type.Enum(["low", "medium", "high"])),
    }),
  ),
  reasoning: Type.Optional(
    Type.Object({
      effort: Type.Optional(Type.Enum(["none", "minimal", "low", "medium", "high", "xhigh"])),
      summary: Summary,
      generate_summary: Summary,
    }),
  ),
  max_output_tokens: Type.Optional(
    Type.Integer({ minimum: 1, description: "Maximum tokens to generate; at most the model's own maximum." }),
  ),
  temperature: Type.Optional(Type.Number({ minimum: 0, maximum: 2 })),
  top_p: Type.Optional(Type.Number({ minimum: 0, maximum: 1 })),
  top_logprobs: Type.Optional(Type.Integer({ minimum: 0, maximum: 20 })),
  include: Type.Optional(Type.Array(Type.String())),
  stream: Type.Optional(Type.Boolean()),
  stream_options: Type.Optional(Type.Object({ include_obfuscation: Type.Optional(Type.Boolean()) })),
  store: Type.Optional(Type.Boolean()),
  previous_response_id: Type.Optional(Type.String()),
  truncation: Type.Optional(Type.Enum(["auto", "disabled"])),
  metadata: Type.Optional(Metadata),
  user: Type.Optional(Type.String()),
  safety_identifier: Type.Optional(Type.String()),
  prompt_cache_key: Type.Optional(Type.String()),
  service_tier: Type.Optional(Type.String()),
  max_tool_calls: Type.Optional(Type.Integer({ minimum: 1 })),
  background: Type.Optional(Type.Boolean({ description: "Only false." })),
});

export type ResponsesRequest = Static<typeof ResponsesRequest>;
export type InputItem = Static<typeof InputItem>;
export type MessagePart = Static<typeof MessagePart>;
export type ResponsesTool = Static<typeof ResponsesTool>;
