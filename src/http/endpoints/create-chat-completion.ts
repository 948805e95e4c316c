import type { OutgoingHttpHeaders } from "node:http";
import type { FastifyReply } from "fastify";
import { checkRequest } from "../../contract/check-request.ts";
import { ChatCompletion, ChatCompletionChunk } from "../../contract/completion.ts";
import { ChatCompletionRequest } from "../../contract/request.ts";
import { ApiError } from "../../errors.ts";
import { complete } from "../../gateway/complete.ts";
import type { CompletionCall } from "../../gateway/gateway.ts";
import { EventStreamSink } from "../event-stream-sink.ts";
import { FoldingSink } from "../folding-sink.ts";
import { callerOf } from "../principal-of.ts";
import type { Endpoint, EndpointServices } from "./endpoint.ts";

export const createChatCompletion: Endpoint = {
  method: "POST",
  path: "/v1/chat/completions",
  scope: "chat.completions:write",
  operationId: "createChatCompletion",
  summary: "Create a chat completion",
  description:
    "Answers a conversation, charged to the token's organization. `null` counts as an absent field; unknown fields are ignored.",
  body: ChatCompletionRequest,
  response: { description: "The answer, or its events.", schema: ChatCompletion, eventSchema: ChatCompletionChunk },
  async handle(services, request, reply) {
    const checked = checkRequest(request.body);
    if ("issue" in checked) {
      const { code, message, param } = checked.issue;
      throw new ApiError(code, message, { param: param ?? undefined });
    }
    const call = { ...callerOf(request), request: checked.request, requestId: request.id, ...departure(reply) };
    return checked.request.stream === true ? stream(services, call, reply) : answer(services, call, reply);
  },
};

interface Departure {
  signal: AbortSignal;
  /** Takes the client to have left. */
  abort: () => void;
}

/** Watches for the client to leave before its answer is complete. */
function departure(reply: FastifyReply): Departure {
  const controller = new AbortController();
  const abort = () => controller.abort(new Error("The client left"));
  reply.raw.once("close", () => {
    if (!reply.raw.writableFinished) abort();
  });
  return { signal: controller.signal, abort };
}

async function answer(services: EndpointServices, call: CompletionCall, reply: FastifyReply) {
  const { messages } = call.request;
  const sink = new FoldingSink(services.completionMessages === "conversation" ? messages : []);
  await services.running.follow(complete(services.gateway, call, sink));
  if (sink.answer === undefined) return reply.hijack();
  return reply.headers(sink.answer.headers).send(sink.answer.body);
}

async function stream(services: EndpointServices, call: CompletionCall & Departure, reply: FastifyReply) {
  const sink = new EventStreamSink({
    response: reply.raw,
    headers: reply.getHeaders() as OutgoingHttpHeaders,
    includeUsage: call.request.stream_options?.include_usage === true,
    onStalled: () => {
      call.abort();
      reply.raw.destroy();
    },
  });
  await services.running.follow(complete(services.gateway, call, sink));
  return reply.hijack();
}
