import type { LanguageModelV4CallOptions, LanguageModelV4FunctionTool, SharedV4Warning } from "@ai-sdk/provider";
import type { Tool } from "../../api/chat/request.ts";
import { fitFields } from "../fields.ts";
import { UpstreamError, type UpstreamRequest } from "../provider.ts";
import { fitSchemas } from "../schemas.ts";
import type { PromptCaching } from "../settings.ts";
import { markCached } from "./caching.ts";
import { type AiSdkPrompt, toPrompt } from "./prompt.ts";
import { OWN_HINTS, type Wire } from "./wire.ts";

/** A request in the form that the packages take, and the names of the hints that this wire does not support. */
export interface Call {
  options: LanguageModelV4CallOptions;
  ignored: Set<string>;
  conversation: AiSdkPrompt;
}

/**
 * Converts a request of OpenAI's shape to a call. `converted` is its conversation, if that has already been converted.
 * Throws UpstreamError `unsupported` if the wire cannot express the request.
 */
export function toCall(wire: Wire, given: UpstreamRequest, caching: PromptCaching, converted?: AiSdkPrompt): Call {
  const support = caching === "off" ? { ...wire.fields, cache_control: "ignored" as const } : wire.fields;
  const { request: fitted, ignored: left } = fitFields(given, support);
  const { request, ignored: keywords } = fitSchemas(fitted, wire.schemas);
  if (request.logprobs === true) throw unsupportedField("logprobs");
  const absent = OWN_HINTS.filter((field) => request[field] !== undefined && !wire.takes.includes(field));
  const conversation = converted ?? toPrompt(wire, request);
  const fit = wire.fit(request);
  const { response_format: format, stop, tool_choice: choice } = request;
  const offered = fit.options?.tools ?? request.tools?.map((tool) => toTool(tool, wire, request.model));
  const { prompt, tools } = markCached(wire, request, caching, { prompt: conversation.prompt, tools: offered });
  const unmarked = request.tools?.some((tool) => tool.cache_control) && !wire.prompt.takesToolMarks;
  const options: LanguageModelV4CallOptions = {
    prompt,
    maxOutputTokens: request.max_tokens,
    temperature: request.temperature,
    topP: request.top_p,
    topK: request.top_k,
    presencePenalty: request.presence_penalty,
    frequencyPenalty: request.frequency_penalty,
    seed: request.seed,
    stopSequences: typeof stop === "string" ? [stop] : stop,
    toolChoice: request.tools && toChoice(choice),
    responseFormat: toFormat(format),
    reasoning: request.reasoning_effort,
    ...fit.options,
    tools,
    ...(fit.own && { providerOptions: { ...fit.options?.providerOptions, [wire.metadataKey]: fit.own } }),
  };
  const ignored = new Set([
    ...left,
    ...keywords,
    ...conversation.ignored,
    ...(fit.ignored ?? []),
    ...absent,
    ...(unmarked ? ["tools.cache_control"] : []),
  ]);
  return { options, ignored, conversation };
}

function toTool({ function: named, cache_control }: Tool, wire: Wire, model: string): LanguageModelV4FunctionTool {
  const { name, description, parameters, strict } = named;
  const { cacheMark, takesToolMarks } = wire.prompt;
  const isMarked = takesToolMarks === true && cache_control !== undefined;
  return {
    type: "function",
    name,
    inputSchema: parameters ?? { type: "object", properties: {} },
    description,
    // Every wire is not strict by default, and some packages warn about an explicit false.
    ...(strict === true && { strict }),
    ...(isMarked && { providerOptions: cacheMark?.(cache_control, model) }),
  };
}

function toChoice(choice: UpstreamRequest["tool_choice"]): LanguageModelV4CallOptions["toolChoice"] {
  if (choice === undefined) return undefined;
  return typeof choice === "string" ? { type: choice } : { type: "tool", toolName: choice.function.name };
}

function toFormat(format: UpstreamRequest["response_format"]): LanguageModelV4CallOptions["responseFormat"] {
  if (format === undefined || format.type === "text") return undefined;
  if (format.type === "json_object") return { type: "json" };
  const { name, description, schema } = format.json_schema;
  return { type: "json", name, description, schema };
}

/** Hints of a request, by their names in the packages' warnings. */
const HINTS: Readonly<Record<string, string>> = {
  "cacheControl breakpoint limit": "cache_control",
  frequencyPenalty: "frequency_penalty",
  presencePenalty: "presence_penalty",
  reasoning: "reasoning_effort",
  reasoningEffort: "reasoning_effort",
  seed: "seed",
  strict: "tools.function.strict",
  temperature: "temperature",
  serviceTier: "service_tier",
  topK: "top_k",
  topP: "top_p",
};
/** Fields that change the answer, by their names in warnings. A request is refused if the package leaves one of them out. */
const REQUIRED: Readonly<Record<string, string>> = {
  "provider-defined tool google.google_search": "web_search_options",
  responseFormat: "response_format",
  stopSequences: "stop",
  toolChoice: "tool_choice",
  toolContent: "messages",
};

/**
 * Returns the hints that a package left out, according to its warnings. Throws UpstreamError `unsupported` if it left out
 * a field that changes the answer.
 */
export function leftOut(warnings: readonly SharedV4Warning[]): string[] {
  return warnings.flatMap((warning) => {
    if (warning.type === "compatibility") return [];
    const feature = warning.type === "unsupported" ? warning.feature : (/^\w+/.exec(textOf(warning))?.[0] ?? "");
    const required = REQUIRED[feature];
    if (required !== undefined) throw unsupportedField(required);
    const hint = HINTS[feature];
    return hint === undefined ? [] : [hint];
  });
}

function unsupportedField(field: string): UpstreamError {
  const publicReason = `This model does not support the value of '${field}' in this request.`;
  return new UpstreamError("unsupported", `The wire has no '${field}'`, { publicReason });
}

function textOf(warning: SharedV4Warning): string {
  return "message" in warning ? warning.message : "";
}
