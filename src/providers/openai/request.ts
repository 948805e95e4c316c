import type { RequestMessage } from "../../api/request.ts";
import type { Dialect } from "../dialect.ts";
import type { UpstreamRequest } from "../provider.ts";
import type { JsonObject } from "./json.ts";
import { detailsOf } from "./reasoning-details.ts";

/** The body of a request, in an API's own words. Usage is asked for always, because it is what is charged. */
export function toRequestBody(request: UpstreamRequest, dialect: Dialect): string {
  const { max_tokens, stream_options: _asked, messages, reasoning_effort: effort, ...rest } = request;
  const body: Record<string, unknown> = rest;
  body.messages = messages.map((message) => toMessage(message, dialect));
  body[dialect.maxTokens] = max_tokens;
  if (effort === "none" && dialect.withoutReasoning !== null) Object.assign(body, dialect.withoutReasoning);
  else if (effort !== undefined) body.reasoning_effort = effort;
  if (request.stream) body.stream_options = { include_usage: true };
  return JSON.stringify(body);
}

/** Hints of a request that an API refuses. */
export function refusedHints({ messages }: UpstreamRequest, { takesNames }: Dialect): string[] | undefined {
  if (takesNames || messages.every(({ name }) => name === undefined)) return undefined;
  return ["messages.name"];
}

type ToldMessage = Omit<RequestMessage, "content"> & {
  content?: RequestMessage["content"] | null;
  reasoning?: string;
  reasoning_details?: JsonObject[];
};

function toMessage(message: RequestMessage, dialect: Dialect): ToldMessage {
  const { role, content, name, refusal, reasoning_content: reasoning, tool_calls: calls } = message;
  const others = [name, refusal, reasoning, calls];
  const isPlain = content !== undefined && others.every((field) => field === undefined);
  if (isPlain && (role !== "developer" || dialect.takesDeveloper)) return message;
  // OpenAI's clients send the key also where there is no text, and some upstreams need it.
  const told: ToldMessage = { ...message, content: content ?? null };
  if (role === "developer" && !dialect.takesDeveloper) told.role = "system";
  if (!dialect.takesNames) delete told.name;
  if (refusal !== undefined && !dialect.takesRefusals) {
    delete told.refusal;
    told.content = withRefusal(content, refusal);
  }
  if (reasoning !== undefined && dialect.reasoning !== "reasoning_content") {
    delete told.reasoning_content;
    if (dialect.reasoning !== null) told[dialect.reasoning] = reasoning;
  }
  const details = dialect.takesReasoningDetails ? detailsOf(calls) : undefined;
  if (details !== undefined) told.reasoning_details = details;
  if (calls !== undefined && !dialect.takesExtraContent) {
    told.tool_calls = calls.map(({ id, type, function: called }) => ({ id, type, function: called }));
  }
  return told;
}

function withRefusal(content: RequestMessage["content"], refusal: string): RequestMessage["content"] {
  return Array.isArray(content) ? [...content, { type: "text", text: refusal }] : `${content ?? ""}${refusal}`;
}
