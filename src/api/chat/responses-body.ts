import { isObject, type JsonObject, objectsIn, textOf } from "../json.ts";
import { decodeResponses } from "../responses/decode.ts";
import { customInputOf } from "../responses/tools.ts";
import { refuseIf, type ValidationIssue } from "../validation.ts";
import type { DecodedCompletion } from "../wire.ts";
import { type ChatSettings, chatAnswer, temperatureIssue } from "./decode.ts";
import type { ChatCompletionRequest, Tool } from "./request.ts";

/** Tells whether the body of a chat completion is one of the Responses API, as Cursor sends it for some models. */
export function isResponsesBody(body: unknown): body is JsonObject {
  return isObject(body) && body.messages === undefined && body.input !== undefined;
}

/** Reads a body of the Responses API whose answer is a chat completion. Throws InvalidRequestError. */
export function decodeResponsesBody(body: JsonObject, settings: ChatSettings): DecodedCompletion {
  const decoded = decodeResponses(body);
  refuseIf(toolIssue(body) ?? temperatureIssue(decoded.request.temperature, settings));
  const { native: _native, ...others } = decoded;
  const request = withCustomTools(decoded.request, body);
  const includeUsage = isObject(body.stream_options) && body.stream_options.include_usage === true;
  return { ...others, request, ...chatAnswer(request, settings, { includeUsage, isLegacy: false }) };
}

/** Refuses the tools whose calls have no form in a chat completion. */
function toolIssue(body: JsonObject): ValidationIssue | undefined {
  const index = objectsIn(body.tools).findIndex(({ type }) => type === "namespace" || type === "tool_search");
  if (index < 0) return undefined;
  const param = `tools[${index}].type`;
  const message = `Unsupported value: '${param}' must be 'function' or 'custom' on chat completions. Send the request to /v1/responses.`;
  return { code: "unsupported_value", param, message };
}

/** Marks custom tools and their calls: Responses has functions in their place, whose calls would come back as those of functions. */
function withCustomTools(request: ChatCompletionRequest, body: JsonObject): ChatCompletionRequest {
  const customs = new Map(objectsIn(body.tools).flatMap((tool) => (tool.type === "custom" ? [[tool.name, tool]] : [])));
  if (customs.size === 0) return request;
  const toCustom = (tool: Tool): Tool => {
    const { name } = tool.function;
    const sent = customs.get(name);
    if (sent === undefined) return tool;
    const format = isObject(sent.format) ? sent.format : undefined;
    return { type: "function", function: { name, description: textOf(sent.description) }, custom: { format } };
  };
  const messages = request.messages.map((message) => ({
    ...message,
    ...(message.tool_calls && {
      tool_calls: message.tool_calls.map((call) => {
        const { name, arguments: text } = call.function;
        if (!customs.has(name)) return call;
        return { ...call, function: { name, arguments: customInputOf(text) }, isCustom: true as const };
      }),
    }),
  }));
  return { ...request, messages, ...(request.tools && { tools: request.tools.map(toCustom) }) };
}
