import type {
  LanguageModelV4CallOptions,
  LanguageModelV4FunctionTool,
  LanguageModelV4Prompt,
  SharedV4ProviderMetadata,
  SharedV4Warning,
} from "@ai-sdk/provider";
import type { CacheControl, Tool } from "../../api/chat/request.ts";
import { fitFields, hasMarks, LOWERED_EFFORT, USUAL_HINTS } from "../fields.ts";
import { UpstreamError, type UpstreamRequest } from "../provider.ts";
import { fitSchemas } from "../schemas.ts";
import type { PromptCaching } from "../settings.ts";
import { AiSdkPrompt } from "./prompt.ts";
import type { Wire } from "./wire.ts";

/** A request in the form that the packages take, and the names of the hints that this wire does not support. */
export interface Call {
  options: LanguageModelV4CallOptions;
  ignored: Set<string>;
  conversation: AiSdkPrompt;
}

/** Converts a request to a call, with its conversation if converted already. Throws UpstreamError `unsupported`. */
export function toCall(wire: Wire, given: UpstreamRequest, caching: PromptCaching, converted?: AiSdkPrompt): Call {
  const support = caching === "off" ? { ...wire.fields, cache_control: "ignored" as const } : wire.fields;
  const { request: fitted, ignored: left } = fitFields(given, support);
  const { request, ignored: keywords } = fitSchemas(fitted, wire.schemas);
  if (request.logprobs === true) throw unsupportedField("logprobs");
  const absent = USUAL_HINTS.filter((field) => request[field] !== undefined && wire.fields[field] === undefined);
  const conversation = converted ?? new AiSdkPrompt(wire, request);
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

/** Returns the hints of a call that a package left out or lowered. Throws UpstreamError for a field that changes the answer. */
export function leftOut(warnings: readonly SharedV4Warning[], { reasoning }: LanguageModelV4CallOptions): string[] {
  return warnings.flatMap((warning) => {
    if (warning.type === "compatibility") {
      return warning.feature === "reasoning" && reasoning === "max" ? [LOWERED_EFFORT] : [];
    }
    const feature =
      warning.type === "unsupported"
        ? warning.feature
        : (/^\w+/.exec("message" in warning ? warning.message : "")?.[0] ?? "");
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

/** Bytes of a prompt below which no upstream caches it: 1,024 tokens are the least of any Claude. */
const PROMPT_BYTES_MIN = 4 * 1024;
/** An image or a file counts as half of that, so that a small question about one image is not written to a cache. */
const IMAGE_BYTES = PROMPT_BYTES_MIN / 2;
const BREAKPOINT: CacheControl = { type: "ephemeral" };

type Cached = Pick<LanguageModelV4CallOptions, "prompt" | "tools">;

/**
 * Marks what the upstream caches, on a wire that needs marks. Where the caller marks nothing: the last tool, the last
 * system message and the last two turns that are not the model's, so that the next turn finds what this one has written. At
 * most four marks, the limit of Anthropic and Bedrock. A caller's mark of the whole request is set on its last message.
 */
function markCached(
  { prompt: rules }: Pick<Wire, "prompt">,
  request: UpstreamRequest,
  caching: PromptCaching,
  { prompt, tools }: Cached,
): Cached {
  const { cacheMark } = rules;
  if (cacheMark === undefined || caching === "off") return { prompt, tools };
  if (request.cache_control !== undefined) {
    return { prompt: marked(prompt, [prompt.length - 1], cacheMark(request.cache_control, request.model)), tools };
  }
  const options = caching === "auto" ? cacheMark(BREAKPOINT, request.model) : undefined;
  if (options === undefined || hasMarks(request) || isShort(request)) return { prompt, tools };
  const system = prompt.findLastIndex(({ role }) => role === "system");
  const turns = [...prompt.keys()].filter((index) => ["user", "tool"].includes(prompt[index]?.role ?? "")).slice(-2);
  const lastTool = tools?.at(-1);
  const isToolMarked = rules.takesToolMarks === true && lastTool?.type === "function";
  return {
    prompt: marked(prompt, system < 0 ? turns : [system, ...turns], options),
    tools: isToolMarked ? [...(tools ?? []).slice(0, -1), { ...lastTool, providerOptions: options }] : tools,
  };
}

/** Returns the prompt with marks on these messages. The conversation itself is kept, because another call may need it. */
function marked(
  prompt: LanguageModelV4Prompt,
  places: readonly number[],
  options: SharedV4ProviderMetadata | undefined,
): LanguageModelV4Prompt {
  if (options === undefined) return prompt;
  return prompt.map((message, index) =>
    places.includes(index) ? { ...message, providerOptions: { ...message.providerOptions, ...options } } : message,
  );
}

function isShort({ instructions = "", messages, tools }: UpstreamRequest): boolean {
  let length = instructions.length + (tools === undefined ? 0 : JSON.stringify(tools).length);
  for (const { content } of messages) {
    if (typeof content === "string") length += content.length;
    else for (const part of content ?? []) length += part.type === "text" ? part.text.length : IMAGE_BYTES;
    if (length >= PROMPT_BYTES_MIN) return false;
  }
  return true;
}
