import { choiceWithoutTools, effortOfBudget } from "../chat/decode.ts";
import { checkParts } from "../chat/image-address.ts";
import { type ChatCompletionRequest, LABEL_CHARACTERS_MAX, type Tool } from "../chat/request.ts";
import { pick } from "../json.ts";
import { compileReader } from "../known-fields.ts";
import { invalid, missing, refused, refuseIf, together, type ValidationIssue } from "../validation.ts";
import type { DecodedCompletion, NativeRequest } from "../wire.ts";
import { MessageConversation } from "./conversation.ts";
import { messageEvents, toMessage } from "./encode.ts";
import { isClaudes } from "./reasoning.ts";
import { CountTokensRequest, MESSAGES_VERSIONS, MessagesRequest, type MessageTool } from "./request.ts";
import { definitionOf, isToolset, isWebSearch, TYPED_TOOL, WEB_SEARCH } from "./typed-tools.ts";

type Headers = Readonly<Record<string, string | string[] | undefined>>;

/** Reads the body of a message request. Throws InvalidRequestError. */
export const decodeMessages = (body: unknown, headers: Headers) => decode(body, headers, readMessages);
/** Reads the body of a request to count the tokens of a prompt. Throws InvalidRequestError. */
export const decodeCountTokens = (body: unknown, headers: Headers) => decode(body, headers, readCountTokens);

function decode(
  body: unknown,
  headers: Headers,
  readRequest: typeof readMessages | typeof readCountTokens,
): DecodedCompletion {
  refuseIf(messagesVersionIssue(headers));
  const { read, unknown } = readRequest(body);
  const request = read as MessagesRequest;
  refuseIf(toolIssue(request) ?? toolChoiceIssue(request) ?? thinkingIssue(request) ?? formatIssue(request));
  const conversation = new MessageConversation(request);
  checkParts(conversation.messages, (param) => conversation.paramOf(param));
  const native = nativeOf(request, headers, conversation);
  const asked = internalRequest(request, conversation);
  return {
    kind: "completion",
    request: asked,
    output: { param: "max_tokens", tokens: asked.max_completion_tokens, isLimitedBySetting: false },
    native,
    ignored: unknown.names(),
    // The needed field is a path of the wire already.
    paramOf: (param) => (param === native.needed ? param : (PARAMS[param] ?? conversation.paramOf(param))),
    events: messageEvents,
    document: toMessage,
  };
}

const PARAMS: Record<string, string> = {
  max_completion_tokens: "max_tokens",
  stop: "stop_sequences",
  user: "metadata.user_id",
  parallel_tool_calls: "tool_choice.disable_parallel_tool_use",
  response_format: "output_config.format",
  "response_format.type": "output_config.format.type",
  reasoning_effort: "thinking",
  "reasoning_effort.max": "output_config.effort.max",
  web_search_options: "tools",
};

/** Returns the issue of an unknown version of the wire. */
export function messagesVersionIssue({ "anthropic-version": version }: Headers): ValidationIssue | undefined {
  if (version === undefined || (MESSAGES_VERSIONS as readonly unknown[]).includes(version)) return undefined;
  const message = `Invalid header 'anthropic-version'. Supported values are: ${MESSAGES_VERSIONS.join(", ")}.`;
  return { code: "invalid_value", param: "anthropic-version", message };
}

const NOT_HERE = refused("this service does not have it. Remove it", []);
const KNOWN_TOOL = {
  pattern: `^custom$|${TYPED_TOOL.source}|${WEB_SEARCH.source}`,
  refusal: "supported tools are custom ones, bash, text_editor, memory, computer and web_search",
};
/** Fields that make an upstream run tools, keep state or charge other prices. */
const ABSENT = ["mcp_servers", "container", "compaction", "thread", "fallbacks", "billing_policy", "inference_geo"];
const REFUSED = {
  ...Object.fromEntries(ABSENT.map((field) => [field, NOT_HERE])),
  speed: refused("must be 'standard'", "standard"),
  tools: { items: { properties: { type: KNOWN_TOOL } } },
};
const readMessages = compileReader(MessagesRequest, { refused: REFUSED });
const readCountTokens = compileReader(CountTokensRequest, { refused: REFUSED });

/** Returns the issue of a tool that lacks what only tools of Anthropic's definition may lack. */
function toolIssue({ tools = [] }: MessagesRequest): ValidationIssue | undefined {
  const search = tools.findIndex(isWebSearch);
  for (const [index, { type = "custom", name, input_schema: schema }] of tools.entries()) {
    if (isWebSearch({ type }) && index > search) {
      return invalid(`tools[${index}].type`, "a request can have one web search, whose 'max_uses' bounds all searches");
    }
    if (name === undefined && !isToolset({ type })) return missing(`tools[${index}].name`);
    if (type === "custom" && schema === undefined) return missing(`tools[${index}].input_schema`);
  }
  return undefined;
}

function toolChoiceIssue({ tool_choice: choice, tools = [] }: MessagesRequest): ValidationIssue | undefined {
  if (choice?.type !== "any" && choice?.type !== "tool") return undefined;
  if (tools.length === 0) return choiceWithoutTools();
  // The names in a toolset are Anthropic's.
  if (choice.type === "any" || tools.some(({ name }) => name === undefined || name === choice.name)) return undefined;
  return invalid("tool_choice.name", "'tools' has no tool with this name");
}

/** Anthropic accepts a budget above `max_tokens` for interleaved thinking, but a hold covers only `max_tokens`. */
function thinkingIssue({ thinking, max_tokens: maxTokens }: MessagesRequest): ValidationIssue | undefined {
  // A request to count tokens has no `max_tokens`.
  if (thinking?.type !== "enabled" || !(thinking.budget_tokens >= maxTokens)) return undefined;
  const rule = "must be less than 'max_tokens', also with interleaved thinking";
  const found = `Expected a value below ${maxTokens}, but got ${thinking.budget_tokens} instead`;
  return invalid("thinking.budget_tokens", `${rule}. ${found}`);
}

function formatIssue({ output_format, output_config }: MessagesRequest): ValidationIssue | undefined {
  if (output_format === undefined || output_config?.format === undefined) return undefined;
  return together("output_format", "output_config.format");
}

/** Thinking that Claude cannot read is left out of the request for upstreams of this wire, because they would refuse it. */
function nativeOf(request: MessagesRequest, headers: Headers, conversation: MessageConversation): NativeRequest {
  const messages = request.messages.flatMap((message) => {
    if (message.role !== "assistant" || typeof message.content === "string") return [message];
    const content = message.content.filter((block) => {
      return (block.type !== "thinking" && block.type !== "redacted_thinking") || isClaudes(block);
    });
    return content.length > 0 || message.content.length === 0 ? [{ ...message, content }] : [];
  });
  // Node joins the values of repeated headers, except for a few, and `set-cookie` alone is a list.
  const passed = pick(headers as Record<string, string>, ["anthropic-version", "anthropic-beta"]);
  const { tools = [] } = request;
  const typedTools = tools.filter(({ type = "custom" }) => type !== "custom");
  const uncounted = [...conversation.uncounted, ...typedTools];
  // Other wires have no toolsets, and no domains of a search.
  const toolset = tools.findIndex(isToolset);
  const ofSearch = tools.findIndex(isWebSearch);
  const domains = DOMAINS.find((field) => (tools[ofSearch]?.[field] ?? []).length > 0);
  const needed = toolset >= 0 ? `tools[${toolset}].type` : domains && `tools[${ofSearch}].${domains}`;
  return {
    wire: "messages",
    body: { ...request, messages },
    headers: passed,
    hints: hintsOf(request, passed["anthropic-beta"]),
    needed: needed ?? conversation.needed,
    search: ofSearch < 0 ? undefined : { param: `tools[${ofSearch}].type` },
    typedTools: typedTools.length,
    uncountedBytes: uncounted.length === 0 ? 0 : Buffer.byteLength(JSON.stringify(uncounted)),
    hasHourCache: conversation.hasHourMark || [request, ...tools].some((one) => one.cache_control?.ttl === "1h"),
    // Elsewhere the budget of thinking becomes an effort.
    prefersNative: request.thinking?.type === "enabled",
  };
}

/** Settings of a search that other wires do not have: those that limit what it may find, and those that can be left out. */
const DOMAINS = ["allowed_domains", "blocked_domains"] as const;
const SEARCH_HINTS = ["max_uses", "user_location", "response_inclusion"] as const;

function hintsOf(request: MessagesRequest, beta: string | undefined): string[] {
  const search = request.tools?.find(isWebSearch);
  return [
    ...(beta === undefined ? [] : ["anthropic-beta"]),
    ...(["service_tier", "context_management"] as const).filter((field) => request[field] !== undefined),
    ...(userOf(request) === request.metadata?.user_id ? [] : ["metadata.user_id"]),
    ...(request.tools?.some((tool) => tool.eager_input_streaming === true) ? ["tools.eager_input_streaming"] : []),
    ...SEARCH_HINTS.filter((field) => search?.[field] !== undefined).map((field) => `tools.${field}`),
  ];
}

/** Upstreams of other wires take user ids up to this length. */
const USER_CHARACTERS_MAX = 64;

function userOf({ metadata }: MessagesRequest): string | undefined {
  const user = metadata?.user_id;
  return user !== undefined && user.length <= USER_CHARACTERS_MAX ? user : undefined;
}

function internalRequest(request: MessagesRequest, { messages }: MessageConversation): ChatCompletionRequest {
  const { stop_sequences: stop, tool_choice: choice, tools = [] } = request;
  const [searches, others] = [tools.filter(isWebSearch), tools.filter((tool) => !isWebSearch(tool))];
  const isChoice = others.length > 0 && !(choice?.type === "tool" && searches.some(({ name }) => name === choice.name));
  const schema = (request.output_config?.format ?? request.output_format)?.schema;
  const label = request.metadata?.user_id;
  const isSequential = choice !== undefined && choice.type !== "none" && choice.disable_parallel_tool_use === true;
  return {
    ...pick(request, ["model", "temperature", "top_p", "top_k", "stream"]),
    messages,
    max_completion_tokens: request.max_tokens,
    stop: stop?.length === 0 ? undefined : stop,
    tools: others.length === 0 ? undefined : others.map(toolOf),
    tool_choice: isChoice && choice ? toolChoiceOf(choice) : undefined,
    parallel_tool_calls: isSequential ? false : undefined,
    response_format: schema && { type: "json_schema", json_schema: { name: "output", schema, strict: true } },
    reasoning_effort: effortOf(request),
    user: userOf(request),
    metadata: label === undefined ? undefined : { user: label.slice(0, LABEL_CHARACTERS_MAX) },
  };
}

function toolOf(tool: MessageTool): Tool {
  const { input_examples = [], strict, cache_control } = tool;
  const { name, description, input_schema } = definitionOf(tool);
  const examples = input_examples.map((example) => `Example input: ${JSON.stringify(example)}`);
  const text = [...(description === "" ? [] : [description]), ...examples].join("\n");
  const called = { name, description: text || undefined, parameters: input_schema, strict };
  return { type: "function", function: called, cache_control };
}

function toolChoiceOf(choice: NonNullable<MessagesRequest["tool_choice"]>): ChatCompletionRequest["tool_choice"] {
  if (choice.type === "any") return "required";
  return choice.type === "tool" ? { type: "function", function: { name: choice.name } } : choice.type;
}

function effortOf({ thinking, output_config }: MessagesRequest): ChatCompletionRequest["reasoning_effort"] {
  if (thinking?.type === "disabled") return "none";
  const effort = output_config?.effort;
  if (effort !== undefined) return effort;
  if (thinking === undefined) return undefined;
  // Without an effort, adaptive thinking has the effort `high` (Anthropic's documentation, "Effort").
  if (thinking.type === "adaptive") return "high";
  return effortOfBudget(thinking.budget_tokens);
}
