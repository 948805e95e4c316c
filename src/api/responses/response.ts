import { type Static, type TSchema, Type } from "typebox";
import { Metadata } from "../chat/request.ts";
import { pick } from "../json.ts";
import { Nullable, OptionalText, TokenCount, Typed } from "../schema.ts";
import { CustomToolCall, FunctionCall, type ResponsesRequest, ToolSearchCall } from "./request.ts";
import { ComputerCall, LocalShellCall, PatchCall, ShellCall } from "./typed-tools.ts";

const ITEM = { id: Type.String(), status: Type.Enum(["in_progress", "completed", "incomplete"]) };

const OutputTextPart = Typed("output_text", {
  text: Type.String(),
  annotations: Type.Array(Type.Unknown()),
  logprobs: Type.Array(Type.Unknown()),
});
const RefusalPart = Typed("refusal", { refusal: Type.String() });

export const OutputItem = Type.Union([
  Typed("reasoning", {
    ...ITEM,
    summary: Type.Array(Typed("summary_text", { text: Type.String() })),
    encrypted_content: OptionalText,
  }),
  Typed("message", {
    ...ITEM,
    role: Type.Literal("assistant"),
    content: Type.Array(Type.Union([OutputTextPart, RefusalPart])),
  }),
  Type.Object({ ...FunctionCall.properties, ...ITEM }),
  Type.Object({ ...CustomToolCall.properties, ...ITEM }),
  Type.Object({ ...ToolSearchCall.properties, ...ITEM, execution: Type.Literal("client") }),
  Type.Object({ ...ITEM, call_id: Type.String(), ...ShellCall.properties }),
  Type.Object({ ...ITEM, call_id: Type.String(), ...LocalShellCall.properties }),
  Type.Object({ ...ITEM, call_id: Type.String(), ...PatchCall.properties }),
  Type.Object({ ...ITEM, call_id: Type.String(), ...ComputerCall.properties }),
]);
export type OutputItem = Static<typeof OutputItem>;

export const ResponseUsage = Type.Object({
  input_tokens: TokenCount,
  input_tokens_details: Type.Object({ cached_tokens: TokenCount, cache_write_tokens: TokenCount }),
  output_tokens: TokenCount,
  output_tokens_details: Type.Object({ reasoning_tokens: TokenCount }),
  total_tokens: TokenCount,
  cost: Type.Optional(Type.Number({ minimum: 0, description: "Charged credits." })),
});
export type ResponseUsage = Static<typeof ResponseUsage>;

const orNull = <T extends TSchema>(schema: T) => Nullable(schema, { default: null });
/** Settings that a response repeats. The defaults are OpenAI's: clients of Open Responses expect numbers. */
export const ResponseSettings = Type.Object({
  access_programs: Type.Null({ default: null }),
  frequency_penalty: Type.Literal(0, { default: 0 }),
  instructions: orNull(Type.String()),
  max_output_tokens: orNull(Type.Integer()),
  max_tool_calls: orNull(Type.Integer()),
  metadata: Type.Unsafe<Static<typeof Metadata>>({ ...Metadata, default: {} }),
  parallel_tool_calls: Type.Boolean({ default: true }),
  presence_penalty: Type.Literal(0, { default: 0 }),
  previous_response_id: orNull(Type.String()),
  prompt_cache_key: orNull(Type.String()),
  reasoning: Type.Object({ effort: Nullable(Type.String()), summary: Nullable(Type.String()) }),
  safety_identifier: orNull(Type.String()),
  service_tier: Type.Literal("default", { default: "default" }),
  store: Type.Boolean({ description: "True if `previous_response_id` can continue the response." }),
  temperature: Type.Number({ default: 1 }),
  text: Type.Object({ format: Type.Object({ type: Type.String() }), verbosity: OptionalText }),
  tool_choice: Type.Unknown({ default: "auto" }),
  tools: Type.Array(Type.Unknown()),
  top_logprobs: Type.Integer({ default: 0 }),
  top_p: Type.Number({ default: 1 }),
  truncation: Type.Enum(["auto", "disabled"], { default: "disabled" }),
  user: OptionalText,
});
export type ResponseSettings = Static<typeof ResponseSettings>;

const DEFAULTS = Object.fromEntries(
  Object.entries(ResponseSettings.properties).flatMap(([name, schema]) =>
    "default" in schema ? [[name, schema.default]] : [],
  ),
);

/** Returns the settings that a response repeats. */
export function settingsOf(asked: ResponsesRequest, isStored: boolean): ResponseSettings {
  const { reasoning, text, tools = [] } = asked;
  const stated = pick(asked as Partial<ResponseSettings>, Object.keys(DEFAULTS) as (keyof ResponseSettings)[]);
  return {
    ...(DEFAULTS as ResponseSettings),
    ...stated,
    ...pick(asked, ["user"]),
    service_tier: "default",
    reasoning: {
      effort: reasoning?.effort ?? null,
      summary: reasoning?.summary ?? reasoning?.generate_summary ?? null,
    },
    store: isStored,
    text: { format: { type: "text" }, ...text },
    tools: tools.map((tool) =>
      tool.type === "function" ? { description: null, parameters: null, strict: null, ...tool } : tool,
    ),
  };
}

/** Response of POST /v1/responses. */
export const ResponseObject = Type.Object({
  id: Type.String({ pattern: "^resp_" }),
  object: Type.Literal("response"),
  created_at: Type.Integer({ description: "Unix time in seconds." }),
  completed_at: Nullable(Type.Integer({ description: "Unix time in seconds; null unless `status` is `completed`." })),
  status: Type.Enum(["in_progress", "completed", "incomplete", "failed"]),
  background: Type.Literal(false),
  error: Nullable(Type.Object({ code: Type.String(), message: Type.String() })),
  incomplete_details: Nullable(Type.Object({ reason: Type.Enum(["max_output_tokens", "content_filter"]) })),
  model: Type.String(),
  output: Type.Array(OutputItem),
  usage: Nullable(ResponseUsage),
  ...ResponseSettings.properties,
});
export type ResponseObject = Static<typeof ResponseObject>;

/** Event of a streamed response. Further fields depend on its type. */
export const ResponseEvent = Type.Object({ type: Type.String(), sequence_number: Type.Integer({ minimum: 0 }) });
