import type { OutgoingHttpHeaders } from "node:http";
import type { FastifyReply } from "fastify";
import { Type } from "typebox";
import { checkRequest } from "../../api/check-request.ts";
import { ChatCompletion, ChatCompletionChunk } from "../../api/completion.ts";
import { ChatCompletionRequest } from "../../api/request.ts";
import { ApiError, StoppedError } from "../../errors.ts";
import { complete } from "../../gateway/complete.ts";
import type { CompletionCall } from "../../gateway/gateway.ts";
import { modelIn } from "../access.ts";
import { EventStreamSink } from "../event-stream-sink.ts";
import { FoldingSink } from "../folding-sink.ts";
import { IDEMPOTENCY_HEADER, idempotencyOf } from "../idempotency.ts";
import { callerOf } from "../principal-of.ts";
import type { RunningCompletions } from "../running-completions.ts";
import type { Endpoint, EndpointServices } from "./endpoint.ts";

export const createChatCompletion: Endpoint = {
  method: "POST",
  path: "/v1/chat/completions",
  scope: "chat.completions:write",
  operationId: "createChatCompletion",
  summary: "Create a chat completion",
  description:
    "Answers a conversation, charged to the token's organization. `null` counts as an absent field; unknown fields are ignored.",
  headers: Type.Object({
    [IDEMPOTENCY_HEADER]: Type.Optional(
      Type.String({
        minLength: 1,
        maxLength: 255,
        description:
          "Names the request within the organization for 24 hours: sent again with the same body it gets the first answer again, and is charged once.",
      }),
    ),
  }),
  body: ChatCompletionRequest,
  response: { description: "The answer, or its events.", schema: ChatCompletion, eventSchema: ChatCompletionChunk },
  async handle(services, request, reply) {
    request.modelName = modelIn(request.body);
    const checked = checkRequest(request.body);
    if ("issue" in checked) {
      const { code, message, param } = checked.issue;
      throw new ApiError(code, message, { param: param ?? undefined });
    }
    const idempotency = idempotencyOf(request, checked.request);
    const onHeld = () => {
      request.isHeld = true;
    };
    const asked = { request: checked.request, requestId: request.id, idempotency, onHeld };
    const call = { ...callerOf(request), ...asked, ...departure(reply, services.running) };
    return checked.request.stream === true ? stream(services, call, reply) : answer(services, call, reply);
  },
};

interface Departure extends Pick<CompletionCall, "signal" | "cut"> {
  /** Takes the client to have left. */
  abort: () => void;
}

/** Watches for the client to leave, or to be cut off by a stop, before its answer is complete. */
function departure(reply: FastifyReply, running: RunningCompletions): Departure {
  const controller = new AbortController();
  const abort = () => controller.abort(running.isCut ? new StoppedError() : new Error("The client left"));
  reply.raw.once("close", () => {
    if (!reply.raw.writableFinished) abort();
  });
  return { signal: controller.signal, abort, cut: (reason) => controller.abort(reason) };
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
    onFailed: (error) => {
      reply.request.failure = error;
    },
    onStalled: () => {
      call.abort();
      reply.raw.destroy();
    },
  });
  await services.running.follow(complete(services.gateway, call, sink));
  return reply.hijack();
}
