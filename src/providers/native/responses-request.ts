import type { ContentPart, ReasoningDetail, RequestMessage, Tool, ToolCall } from "../../api/chat/request.ts";
import { pick } from "../../api/json.ts";
import { RESPONSES_FORMAT } from "../../api/responses/reasoning.ts";
import { type FieldSupport, fitFields, passing, translating } from "../fields.ts";
import { type UpstreamRequest, unsupportedField } from "../provider.ts";

type Item = Record<string, unknown>;

/** Fields that change the answer and that the Responses API does not have in this form. */
const UNSUPPORTED = ["stop", "logprobs", "top_logprobs"] as const;

const SAME = [
  ...(["temperature", "top_p", "user", "parallel_tool_calls"] as const),
  ...(["safety_identifier", "prompt_cache_key", "prompt_cache_retention", "service_tier"] as const),
];

const FIELDS: FieldSupport = {
  ...passing("safety_identifier", "prompt_cache_key", "prompt_cache_retention", "service_tier"),
  ...translating("verbosity", "tools.custom", "content.file", "content.file.file_url"),
};

/** Converts a chat completion to the Responses API. Returns the hints that it leaves out. Throws UpstreamError. */
export function toResponsesBody(given: UpstreamRequest): { body: Item; ignored: string[] } {
  const { request, ignored: left } = fitFields(given, FIELDS);
  const unsupported = UNSUPPORTED.find((field) => request[field] !== undefined && request[field] !== false);
  if (unsupported !== undefined) throw unsupportedField(unsupported, "this model does not take it");
  const { model, instructions, messages, max_tokens, stream, tools = [], tool_choice, ...others } = request;
  const { response_format, reasoning_effort: effort, verbosity, stream_options: _events, ...further } = others;
  const body: Item = {
    ...pick(further, SAME),
    model,
    input: [
      ...(instructions === undefined ? [] : [{ type: "message", role: "developer", content: instructions }]),
      ...toItems(messages),
    ],
    max_output_tokens: max_tokens,
    stream,
    store: false,
    // Without it the reasoning is lost, because the upstream stores nothing.
    include: ["reasoning.encrypted_content"],
    tools: tools.length === 0 ? undefined : tools.map(toTool),
    tool_choice: toChoice(tool_choice, tools),
    text: toText(response_format, verbosity),
    // Without a summary, which OpenAI refuses to organizations that it has not verified.
    reasoning: effort === undefined ? undefined : { effort },
  };
  const converted: readonly string[] = [...SAME, ...UNSUPPORTED];
  const unknown = Object.entries(further).filter(([field, value]) => value !== undefined && !converted.includes(field));
  const ignored = [...left, ...unknown.map(([field]) => field)];
  for (const field of ["name", "audio"] as const) {
    if (messages.some((message) => message[field] !== undefined)) ignored.push(`messages.${field}`);
  }
  if (messages.some(({ reasoning_details: own = [] }) => own.some(isForeign)))
    ignored.push("messages.reasoning_details");
  return { body, ignored };
}

function toTool({ custom, function: { name, description, parameters, strict } }: Tool): Item {
  if (custom !== undefined) return { type: "custom", name, description, format: toGrammar(custom.format) };
  return {
    type: "function",
    name,
    description,
    parameters: parameters ?? { type: "object", properties: {} },
    strict: strict ?? false,
  };
}

/** Chat completions have the fields of a grammar one level deeper. */
function toGrammar(format: Item | undefined): Item | undefined {
  const { grammar, ...others } = format ?? {};
  return typeof grammar === "object" ? { ...others, ...grammar } : format;
}

function toChoice(choice: UpstreamRequest["tool_choice"], tools: readonly Tool[]): unknown {
  if (typeof choice !== "object") return choice;
  const { name } = choice.function;
  const isCustom = tools.some((tool) => tool.custom !== undefined && tool.function.name === name);
  return { type: isCustom ? "custom" : "function", name };
}

function toText(format: UpstreamRequest["response_format"], verbosity: UpstreamRequest["verbosity"]): Item | undefined {
  if (format === undefined && verbosity === undefined) return undefined;
  if (format?.type !== "json_schema") return { format, verbosity };
  const { name, description, schema, strict } = format.json_schema;
  return { format: { type: "json_schema", name, description, schema, strict: strict ?? false }, verbosity };
}

function toItems(messages: readonly RequestMessage[]): Item[] {
  const calls = messages.flatMap(({ tool_calls = [] }) => tool_calls);
  const custom = new Set(calls.filter(({ isCustom }) => isCustom === true).map(({ id }) => id));
  return messages.flatMap((message, index) => toMessageItems(message, `messages[${index}].content`, custom));
}

function toMessageItems(message: RequestMessage, at: string, custom: ReadonlySet<string>): Item[] {
  const { role, content, refusal: refused, tool_calls: calls = [], tool_call_id: callId = "" } = message;
  switch (role) {
    case "tool": {
      const type = custom.has(callId) ? "custom_tool_call_output" : "function_call_output";
      return [{ type, call_id: callId, output: toOutput(content, at) }];
    }
    case "assistant": {
      const parts = toOutputParts(content, at);
      if (refused !== undefined) parts.push({ type: "refusal", refusal: refused });
      return [
        ...toReasoning(message),
        ...(parts.length === 0 ? [] : [{ type: "message", role, content: parts }]),
        ...calls.map(toCall),
      ];
    }
    case "user":
      return [{ type: "message", role, content: toParts(content, at) }];
    default:
      return [{ type: "message", role: "developer", content: textOf(content, at) }];
  }
}

function toCall({ id, isCustom, function: { name, arguments: given } }: ToolCall): Item {
  if (isCustom === true) return { type: "custom_tool_call", call_id: id, name, input: given };
  return { type: "function_call", call_id: id, name, arguments: given };
}

const isForeign = ({ format }: ReasoningDetail) => format !== RESPONSES_FORMAT;

/** Sends back only reasoning that this API wrote: its items must come back with the results of tool calls. */
function toReasoning({ reasoning_details: details = [] }: RequestMessage): Item[] {
  const own = details.filter((detail) => !isForeign(detail));
  return own
    .filter(({ type }) => type === "reasoning.encrypted")
    .map(({ id, data }) => {
      const summaries = own.filter((detail) => detail.type === "reasoning.summary" && detail.id === id);
      const summary = summaries.map(({ summary: text }) => ({ type: "summary_text", text }));
      return { type: "reasoning", id, encrypted_content: data, summary };
    });
}

function toOutputParts(content: RequestMessage["content"], at: string): Item[] {
  const parts = typeof content === "string" ? [{ type: "text" as const, text: content }] : (content ?? []);
  return parts.flatMap((part, index): Item[] => {
    if (part.type === "text") return part.text === "" ? [] : [{ type: "output_text", text: part.text }];
    if (part.type === "refusal") return [{ type: "refusal", refusal: part.refusal }];
    throw unsupportedField(`${at}[${index}].type`, "an answer of the model contains text and refusals");
  });
}

function toOutput(content: RequestMessage["content"], at: string): unknown {
  return Array.isArray(content) && content.some(({ type }) => type !== "text")
    ? toParts(content, at)
    : textOf(content, at);
}

function toParts(content: RequestMessage["content"], at: string): Item[] {
  if (!Array.isArray(content)) return [{ type: "input_text", text: content ?? "" }];
  return content.map((part, index) => toPart(part, `${at}[${index}]`));
}

function toPart(part: ContentPart, at: string): Item {
  switch (part.type) {
    case "text":
      return { type: "input_text", text: part.text };
    case "image_url":
      return { type: "input_image", image_url: part.image_url.url, detail: part.image_url.detail ?? "auto" };
    case "file": {
      const { filename, file_data, file_url, file_id } = part.file;
      // The id could be that of any file in the operator's account.
      if (file_id !== undefined) throw unsupportedField(`${at}.file.file_id`, "send the file itself as file_data");
      return { type: "input_file", filename, file_data, file_url };
    }
    default:
      throw unsupportedField(`${at}.type`, "this model takes text, images and files");
  }
}

function textOf(content: RequestMessage["content"], at: string): string {
  if (!Array.isArray(content)) return content ?? "";
  return content
    .map((part, index) => {
      if (part.type === "text") return part.text;
      throw unsupportedField(
        `${at}[${index}].type`,
        "only messages of the user and results of tools may contain more than text",
      );
    })
    .join("");
}
