import type { OutgoingHttpHeaders } from "node:http";
import type { FastifyReply } from "fastify";
import { Type } from "typebox";
import { checkRequest } from "../../api/chat/check-request.ts";
import { ChatCompletion, ChatCompletionChunk, type ResultingMessage } from "../../api/chat/completion.ts";
import { ChatCompletionRequest, type RequestMessage } from "../../api/chat/request.ts";
import { ApiError, StoppedError } from "../../errors.ts";
import type { AnswerEnd, AnswerHead, AnswerPiece, AnswerSink } from "../../gateway/answer.ts";
import { AnswerFold } from "../../gateway/answer-fold.ts";
import { complete } from "../../gateway/complete.ts";
import type { CompletionCall } from "../../gateway/gateway.ts";
import { modelIn } from "../access.ts";
import { callerOf } from "../authentication.ts";
import { EventStreamSink } from "../event-stream-sink.ts";
import { IDEMPOTENCY_HEADER, idempotencyOf } from "../idempotency.ts";
import type { RunningCompletions } from "../shutdown.ts";
import type { Endpoint, EndpointServices } from "./endpoint.ts";

export const createChatCompletion: Endpoint = {
  method: "POST",
  path: "/v1/chat/completions",
  scope: "chat.completions:write",
  operationId: "createChatCompletion",
  summary: "Create a chat completion",
  description:
    "Generates a reply to a conversation and charges the token's organization. `null` counts as an absent field; unknown fields are ignored.",
  headers: Type.Object({
    [IDEMPOTENCY_HEADER]: Type.Optional(
      Type.String({
        minLength: 1,
        maxLength: 255,
        description:
          "Identifies the request within the organization for 24 hours. A repeated request with the same body returns the first response again, and is charged once.",
      }),
    ),
  }),
  body: ChatCompletionRequest,
  response: { description: "The completion, or its events.", schema: ChatCompletion, eventSchema: ChatCompletionChunk },
  async handle(services, request, reply) {
    request.modelName = modelIn(request.body);
    const checked = checkRequest(request.body);
    if ("issue" in checked) {
      const { code, message, param, loggedMessage } = checked.issue;
      throw new ApiError(code, message, { param: param ?? undefined, loggedMessage });
    }
    const idempotency = idempotencyOf(request, checked.request);
    const onHeld = () => {
      request.isHeld = true;
    };
    const asked = { request: checked.request, requestId: request.id, idempotency, onHeld };
    const call = { ...callerOf(request), ...asked, ...abortOnClose(reply, services.running) };
    return checked.request.stream === true ? stream(services, call, reply) : respond(services, call, reply);
  },
};

interface Abort extends Pick<CompletionCall, "signal" | "cut"> {
  /** Aborts the completion because the client has disconnected. */
  abort: () => void;
}

/** Aborts the completion when its connection closes before the response is complete. */
function abortOnClose(reply: FastifyReply, running: RunningCompletions): Abort {
  const controller = new AbortController();
  const abort = () => controller.abort(running.isCut ? new StoppedError() : new Error("The client disconnected"));
  reply.raw.once("close", () => {
    if (!reply.raw.writableFinished) abort();
  });
  return { signal: controller.signal, abort, cut: (reason) => controller.abort(reason) };
}

async function respond(services: EndpointServices, call: CompletionCall, reply: FastifyReply) {
  const { messages } = call.request;
  const sink = new FoldingSink(services.completionMessages === "conversation" ? messages : []);
  await services.running.follow(complete(services.gateway, call, sink));
  if (sink.response === undefined) return reply.hijack();
  return reply.headers(sink.response.headers).send(sink.response.body);
}

async function stream(services: EndpointServices, call: CompletionCall & Abort, reply: FastifyReply) {
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

/** Folds the pieces of an answer into one response body. */
export class FoldingSink implements AnswerSink {
  readonly streams = false;
  /** Messages before the reply in `messages`. */
  readonly #conversation: readonly ResultingMessage[];
  readonly #fold = new AnswerFold();
  #head: AnswerHead | undefined;
  /** The response, once the answer is complete and charged. */
  response: { body: ChatCompletion; headers: Record<string, string> } | undefined;

  constructor(conversation: readonly RequestMessage[]) {
    this.#conversation = conversation.map(toResultingMessage);
  }

  open(head: AnswerHead): void {
    this.#head = head;
  }

  push(pieces: readonly AnswerPiece[]): undefined {
    this.#fold.add(pieces);
  }

  close({ finishReason, usage, headers }: AnswerEnd): void {
    const head = this.#head;
    if (head === undefined) throw new Error("An answer was closed before it was opened");
    const message = this.#fold.message();
    this.response = {
      body: {
        id: head.id,
        object: "chat.completion",
        created: head.created,
        model: head.model,
        organization_id: head.organizationId,
        messages: [...this.#conversation, { ...message, content: message.content ?? "" }],
        choices: [{ index: 0, message, logprobs: this.#fold.logprobs, finish_reason: finishReason }],
        usage,
      },
      headers: { ...head.headers, ...headers },
    };
  }

  fail(): void {
    throw new Error("A response that is not streamed fails with its status");
  }
}

/** Converts a message of the request for the response: its content becomes text, and images are left out. */
function toResultingMessage({ role, content, ...rest }: RequestMessage): ResultingMessage {
  if (content === undefined || typeof content === "string") return { role, content: content ?? "", ...rest };
  return { role, content: content.map((part) => (part.type === "text" ? part.text : "")).join(""), ...rest };
}
