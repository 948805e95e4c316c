import type { RequestMessage } from "../../contract/request.ts";
import type { UpstreamRequest } from "../provider.ts";

/** Whether an address is OpenAI's own API, which differs from most that are compatible with it. */
export function isOpenAi(host: string): boolean {
  return host === "api.openai.com" || host.endsWith(".api.openai.com");
}

/**
 * The body of a request. Usage is asked for always, because it is what is charged; OpenAI's own API takes its newer
 * names (`max_completion_tokens`, the role `developer`) and refuses fields of messages that others want back.
 */
export function toRequestBody(request: UpstreamRequest, toOpenAi: boolean): string {
  const { max_tokens, stream_options: _asked, messages, ...rest } = request;
  const body: Record<string, unknown> = { ...rest };
  body.messages = messages.map(toOpenAi ? forOpenAi : forOthers);
  body[toOpenAi ? "max_completion_tokens" : "max_tokens"] = max_tokens;
  if (request.stream) body.stream_options = { include_usage: true };
  return JSON.stringify(body);
}

function forOthers(message: RequestMessage): RequestMessage {
  return message.role === "developer" ? { ...message, role: "system" } : message;
}

function forOpenAi(message: RequestMessage): RequestMessage {
  if (message.reasoning_content === undefined && message.tool_calls === undefined) return message;
  const { reasoning_content: _reasoning, tool_calls, ...rest } = message;
  if (tool_calls === undefined) return rest;
  return { ...rest, tool_calls: tool_calls.map(({ id, type, function: called }) => ({ id, type, function: called })) };
}
