import { excessIssue } from "../chat/decode.ts";
import { checkParts } from "../chat/image-address.ts";
import { type ChatCompletionRequest, MESSAGES_MAX, type RequestMessage, TOOLS_MAX } from "../chat/request.ts";
import { detailsOf, isObject, type JsonObject, pick } from "../json.ts";
import { compileReader } from "../known-fields.ts";
import type { PlacedMessages } from "../placed-messages.ts";
import { compileCheck, invalid, refuse, refused, refuseIf } from "../validation.ts";
import type { DecodedCompletion, NativeRequest, NativeSearch } from "../wire.ts";
import { joinedChoices, type UnknownFields } from "../wording.ts";
import { responsesEvents, toResponse } from "./encode.ts";
import { InputMessages, PREVIOUS } from "./input.ts";
import { isSealed } from "./reasoning.ts";
import { itemsToKeep, type KeptItems, keptConversation, withReferredItems } from "./references.ts";
import {
  CLIENT_TOOLS,
  type InputItem,
  ResponsesRequest,
  type ResponsesTool,
  SAME_FIELDS,
  WEB_SEARCHES,
} from "./request.ts";
import { type ResponseObject, settingsOf } from "./response.ts";
import { calledTools, isSearch, namedTools, toChatTools } from "./tools.ts";
import { TYPED_TOOLS } from "./typed-tools.ts";

const readRequest = compileReader(ResponsesRequest);
const LOGPROBS = "message.output_text.logprobs";
/** Values of `include` that have an effect here. */
const INCLUDED = new Set(["reasoning.encrypted_content", LOGPROBS]);

/** Fields without an effect here, even if the upstream speaks this wire: some of them have a price of their own. */
const NEVER_SENT = ["service_tier", "prompt_cache_retention", "prompt_cache_options"];
const CHOICES = ["allowed_tools", "function", "custom", ...TYPED_TOOLS, ...WEB_SEARCHES];
const NO_FILES = refused("this service stores no files. Send the image or the file itself");
/** The parts of an item, or the screenshot that stands in their place. */
const PARTS = { properties: { file_id: NO_FILES }, items: { properties: { file_id: NO_FILES } } };

/** Returns the refusals of tools that the provider would run, and of these fields unless they are false. */
function refusedTools(...flags: string[]): object {
  const refusedFlags = Object.fromEntries(flags.map((flag) => [flag, refused("must be false", false)]));
  const rule = `supported tools are ${joinedChoices([...CLIENT_TOOLS, "web_search"])}`;
  const type = refused(rule, ...CLIENT_TOOLS, ...WEB_SEARCHES);
  const environment = { properties: { type: refused("must be 'local'", "local") } };
  const tools = { items: { properties: refusedFlags } };
  return { items: { properties: { type, environment, tools, ...refusedFlags } } };
}

/** Fields that would change the answer, or make tokens that no hold covers. */
const checkRefused = compileCheck({
  properties: {
    background: refused("responses are not created in the background. Use 'stream' for long responses", false),
    conversation: refused("this service has no conversations. Send the earlier items in 'input'", false),
    prompt: refused("this service stores no prompt templates. Send 'instructions' and 'input'", false),
    context_management: refused("the input is not shortened. Send the items that the model needs", false),
    moderation: refused("responses are not moderated", false),
    reasoning: { properties: { mode: refused("must be 'standard'", "standard") } },
    tools: refusedTools("async", "defer_loading"),
    tool_choice: { properties: { type: refused(`supported choices are ${joinedChoices(CHOICES)}`, ...CHOICES) } },
    input: {
      items: {
        properties: { content: PARTS, output: PARTS },
        anyOf: [
          { properties: { type: { const: "tool_search_output" }, tools: refusedTools("async") } },
          { properties: { tools: refusedTools("async", "defer_loading") } },
        ],
      },
    },
  },
});

/** Reads the body of a request of the Responses API. `kept` is undefined if nothing is kept. Throws InvalidRequestError. */
export function decodeResponses(body: unknown, kept?: KeptItems): DecodedCompletion {
  const { read, ignored } = readBody(kept === undefined ? body : withReferredItems(body, kept));
  const earlier = earlierItems(read.previous_response_id, kept);
  const asked = earlier.length === 0 ? read : { ...read, input: [...earlier, ...itemsOf(read.input)] };
  refuseIf(excessIssue(asked.input, "input", MESSAGES_MAX));
  const input = new InputMessages(asked.input, earlier.length);
  checkParts(input.messages, (param) => paramOf(param, input));
  const named = namedTools(asked);
  const request = toChatRequest(asked, input.messages, toChatTools(named, asked.tool_choice));
  const isKept = kept !== undefined && asked.store !== false;
  const encoder = {
    settings: settingsOf(asked, isKept),
    tools: calledTools(named),
    hasLogprobs: request.logprobs === true,
  };
  return {
    kind: "completion",
    request,
    output: { param: "max_output_tokens", tokens: asked.max_output_tokens, isLimitedBySetting: false },
    native: nativeRequest(asked, encoder.tools, input),
    ...(isKept && {
      keep: (answer) => {
        const response = answer as ResponseObject;
        return kept.keep(response.id, () => itemsToKeep(response, itemsOf(asked.input)));
      },
    }),
    ignored,
    paramOf: (param) => paramOf(param, input),
    events: (head, add) => responsesEvents(encoder, head, add),
    document: (head, answer, end) => toResponse(encoder, head, answer, end),
  };
}

function itemsOf(input: ResponsesRequest["input"]): readonly InputItem[] {
  return typeof input === "string" ? [{ type: "message", role: "user", content: input }] : input;
}

function earlierItems(previousId: string | undefined, kept: KeptItems | undefined): InputItem[] {
  const items = previousId === undefined ? [] : keptConversation(previousId, kept);
  if (items !== undefined) return items;
  const reason =
    kept === undefined
      ? "responses of the organization are not kept, which the operator can change with keeps_responses"
      : "no response with this id is kept";
  const message = `Previous response not found: ${reason}. Send the items of the conversation in 'input' instead.`;
  refuse({ code: "previous_response_not_found", param: "previous_response_id", message });
}

function readBody(body: unknown): { read: ResponsesRequest; ignored: string[] } {
  const given = detailsOf(body);
  refuseIf(
    excessIssue(given.input, "input", MESSAGES_MAX) ??
      excessIssue(given.tools, "tools", TOOLS_MAX) ??
      checkRefused(body),
  );
  const { read, unknown } = readRequest(isObject(body) ? withTypes(body) : body);
  for (const name of ignoredFields(read)) unknown.add("", name);
  return { read: withClientTools(read, unknown), ignored: unknown.names() };
}

/** A message may omit its type. */
function withTypes(body: JsonObject): JsonObject {
  if (!Array.isArray(body.input)) return body;
  const input = body.input.map((item) => {
    return isObject(item) && "role" in item && (item.type ?? null) === null ? { ...item, type: "message" } : item;
  });
  return { ...body, input };
}

/** Leaves out the searches of items, and states that shells are the client's, so that no upstream runs either. */
function withClientTools(asked: ResponsesRequest, unknown: UnknownFields): ResponsesRequest {
  const run = (tools: readonly ResponsesTool[]) => {
    return tools.map((tool) => (tool.type === "shell" ? { environment: { type: "local" as const }, ...tool } : tool));
  };
  const { input, tools } = asked;
  // Once for all items: each of thousands may have hundreds of tools.
  const hasOthers = namedTools(asked).length > 0;
  const ofItem = (item: InputItem, index: number) => {
    if (!("tools" in item)) return item;
    const left = item.tools.filter(({ type }) => !isSearch(type));
    if (left.length < item.tools.length) {
      if (!hasOthers) refuse(invalid(`input[${index}].tools[0].type`, "a search stands in 'tools'"));
      unknown.add("input.tools.", "web_search");
    }
    return { ...item, tools: run(left) };
  };
  return {
    ...asked,
    input: typeof input === "string" ? input : input.map(ofItem),
    ...(tools && { tools: run(tools) }),
  };
}

function ignoredFields({
  service_tier: tier = "auto",
  include = [],
  max_tool_calls: most,
  tools = [],
}: ResponsesRequest): string[] {
  return [
    ...(tier === "auto" || tier === "default" ? [] : ["service_tier"]),
    ...(include.every((one) => INCLUDED.has(one)) ? [] : ["include"]),
    ...(most === undefined || tools.some(({ type }) => isSearch(type)) ? [] : ["max_tool_calls"]),
  ];
}

function toChatRequest(
  asked: ResponsesRequest,
  messages: RequestMessage[],
  tools: Pick<ChatCompletionRequest, "tools" | "tool_choice">,
): ChatCompletionRequest {
  const { max_output_tokens: tokens, text: { format, verbosity } = {}, reasoning, top_logprobs, include } = asked;
  const logprobs = include?.includes(LOGPROBS) || (top_logprobs ?? 0) > 0;
  return {
    ...pick(asked, [...SAME_FIELDS, "instructions"]),
    messages,
    ...tools,
    ...(tokens !== undefined && { max_completion_tokens: tokens }),
    ...(format && { response_format: toResponseFormat(format) }),
    ...(reasoning?.effort && { reasoning_effort: reasoning.effort }),
    ...(logprobs && { logprobs, ...pick(asked, ["top_logprobs"]) }),
    ...(verbosity && { verbosity }),
  };
}

function toResponseFormat(format: NonNullable<NonNullable<ResponsesRequest["text"]>["format"]>) {
  if (format.type !== "json_schema") return format;
  const { type, ...json_schema } = format;
  return { type, json_schema };
}

/** Returns the request for upstreams of this wire, which store nothing: their ids would mean nothing to clients. */
function nativeRequest(
  asked: ResponsesRequest,
  called: ReturnType<typeof calledTools>,
  { hasPhases, hasTypedItems, uncounted }: InputMessages,
): NativeRequest {
  const { input, include = [], previous_response_id: _previous, ...rest } = asked;
  const body: Record<string, unknown> = { ...rest, store: false };
  for (const name of [...NEVER_SENT, "metadata", "background"]) delete body[name];
  const isForeign = (item: InputItem) => item.type === "reasoning" && isSealed(item.encrypted_content);
  body.input = typeof input === "string" ? input : input.filter((item) => !isForeign(item));
  // Without it, clients could not send the reasoning back to an upstream that stores nothing.
  const included = include.filter((one) => INCLUDED.has(one));
  body.include = [...new Set([...included, "reasoning.encrypted_content"])];
  const search = searchIn(asked);
  if (search === undefined) delete body.max_tool_calls;
  const typedTools = [...called.values()].filter(({ type }) => (TYPED_TOOLS as string[]).includes(type)).length;
  return {
    wire: "responses",
    body,
    headers: {},
    hints: [...nativeHints(asked, search), ...(hasPhases ? ["input.phase"] : [])],
    needed: neededBySearch(asked, search),
    search,
    typedTools,
    hasTypedParts: typedTools > 0 || hasTypedItems,
    uncountedBytes: uncounted.length === 0 ? 0 : Buffer.byteLength(JSON.stringify(uncounted)),
  };
}

/** Clients such as Codex offer a search with each request, and the model need not use it: it is left out where it is not run. */
function searchIn({ tools = [], tool_choice: choice }: ResponsesRequest): NativeSearch | undefined {
  const index = tools.findIndex(({ type }) => isSearch(type));
  if (index < 0) return undefined;
  const isDemanded = typeof choice === "object" && isSearch(choice.type);
  const hasOthers = tools.some(({ type }) => !isSearch(type));
  return { param: `tools[${index}].type`, ...(hasOthers && !isDemanded && { ignoredAs: "tools.web_search" }) };
}

/** Returns the path of a search's domains, which other wires do not have, if the request demands the search. */
function neededBySearch({ tools = [] }: ResponsesRequest, search: NativeSearch | undefined): string | undefined {
  if (search === undefined || search.ignoredAs !== undefined) return undefined;
  const index = tools.findIndex((tool) => "filters" in tool);
  return index < 0 ? undefined : `tools[${index}].filters`;
}

/** Settings of a search that only upstreams on this wire take, and that do not limit what it finds. */
const SEARCH_HINTS = ["external_web_access", "search_context_size", "search_content_types", "user_location"];

function nativeHints(
  { truncation, stream_options, max_tool_calls, tools = [] }: ResponsesRequest,
  search: NativeSearch | undefined,
): string[] {
  const stated = SEARCH_HINTS.filter((name) => tools.some((tool) => name in tool)).map((name) => `tools.${name}`);
  return [
    ...(search?.ignoredAs === undefined ? stated : [search.ignoredAs]),
    ...(search === undefined || max_tool_calls === undefined ? [] : ["max_tool_calls"]),
    ...(truncation === "auto" ? ["truncation"] : []),
    ...(stream_options?.include_obfuscation === true ? ["stream_options"] : []),
  ];
}

const PARAMS: Record<string, string> = {
  messages: "input",
  response_format: "text.format",
  "response_format.type": "text.format.type",
  reasoning_effort: "reasoning.effort",
  "reasoning_effort.max": "reasoning.effort.max",
  web_search_options: "tools",
  verbosity: "text.verbosity",
  logprobs: "include",
  max_tokens: "max_output_tokens",
  max_completion_tokens: "max_output_tokens",
};

function paramOf(param: string, input: PlacedMessages): string {
  const place = input.find(param);
  if (place === undefined) return PARAMS[param] ?? param;
  const { path, rest, isPart } = place;
  if (path.startsWith(PREVIOUS)) return PREVIOUS;
  if (isPart) return path + rest.replace(/^\.file(?=\.|$)/, "").replace(".image_url.url", ".image_url");
  return rest === ".content" && path !== "input" ? `${path}.content` : path;
}
