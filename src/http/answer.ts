import type { FastifyReply, FastifyRequest } from "fastify";
import { type TProperties, Type } from "typebox";
import type { AnswerEnd, AnswerHead, AnswerPiece } from "../api/answer.ts";
import { AnswerFold } from "../api/answer-fold.ts";
import { keptResponse } from "../api/responses/references.ts";
import type { ResponseObject } from "../api/responses/response.ts";
import { OptionalKeys } from "../api/schema.ts";
import type { DecodedCompletion, DecodedRequest } from "../api/wire.ts";
import { type MicroCredits, parseCredits } from "../credits/amount.ts";
import { ApiError, isOwnCut } from "../errors.ts";
import { type AnswerSink, REPLAY_HEADER } from "../gateway/answer.ts";
import { complete } from "../gateway/complete.ts";
import type { CompletionReport, GatewayCall } from "../gateway/gateway.ts";
import { planPrompt } from "../gateway/kinds/completion.ts";
import { rateLimitHeaders, wantedLimits } from "../gateway/limits.ts";
import { modelIn, traceparentOf } from "./access.ts";
import { limitedOf, principalOf } from "./authentication.ts";
import { holdBody, reserveBytes } from "./body.ts";
import { onClosed } from "./connection.ts";
import { EventStreamSink } from "./event-stream-sink.ts";
import { IDEMPOTENCY_HEADER, idempotencyOf, RETRY_COUNT_HEADER, repetitionOf } from "./idempotency.ts";
import type { Endpoint, EndpointServices } from "./routes/endpoint.ts";

const MAX_COST = "x-tollgate-max-cost";

const CHARGED_HEADERS = OptionalKeys({
  [IDEMPOTENCY_HEADER]: Type.String({
    minLength: 1,
    maxLength: 255,
    description:
      "Identifies the request among those of the token, and of those that a rotation made of it, for 24 hours. A repeated request with the same body to the same endpoint returns the first response again, and is charged once.",
  }),
  [RETRY_COUNT_HEADER]: Type.String({
    description:
      "Number of times that an SDK has sent the request before. A request with 1 or more is charged less what an attempt was charged that broke at most 120 seconds before, if it has the same token, endpoint and body. Not together with an Idempotency-Key; another value than a number is ignored.",
  }),
  [MAX_COST]: Type.String({
    pattern: "^\\d+(\\.\\d{1,6})?$",
    description:
      "The most that the request may cost, in credits, such as 0.05. No more is held or charged. A route that could cost more is not taken; if none is left, the response is 400 with the code max_cost_exceeded. A request without a bound of its output gets a shorter answer instead.",
  }),
});

type Decode<Decoded = DecodedRequest> = (
  request: FastifyRequest,
  services: EndpointServices,
) => Decoded | Promise<Decoded>;

/** Declares an operation that a model answers, with a charge. `decode` reads the body of a request on its wire. */
export function answered({
  decode,
  headers,
  ...declaration
}: Omit<Endpoint, "method" | "scope" | "headers" | "handle"> & {
  headers?: TProperties;
  decode: Decode;
}): Endpoint {
  return {
    ...declaration,
    method: "POST",
    scope: "chat.completions:write",
    headers: Type.Object({ ...headers, ...CHARGED_HEADERS }),
    // Nothing is awaited here: what it has read would stay in memory while a stream is open.
    handle: (services, request, reply) => {
      request.modelName ??= modelIn(request.body);
      const decoded = decode(request, services);
      if (decoded instanceof Promise) return decoded.then((one) => run(services, reply, one));
      return run(services, reply, decoded);
    },
  };
}

async function run(
  { gateway, running, responseItems }: EndpointServices,
  reply: FastifyReply,
  decoded: DecodedRequest,
) {
  const { request } = reply;
  // The decoded request has what is needed of the body, which would stay in memory as well.
  request.body = undefined;
  const { request: asked, native, ignored = [], paramOf } = decoded;
  const idempotency = idempotencyOf(request, native?.body ?? asked);
  const repetition = repetitionOf(request, native?.body ?? asked);
  const isStream = decoded.kind === "speech" || (decoded.kind === "completion" && decoded.request.stream === true);
  const isStored = !isStream && "keep" in decoded;
  const stored = isStored && repetition !== null ? redelivery(responseItems, repetition, reply) : null;
  if (repetition?.isRetry && (await stored?.sendAgain())) return reply;
  const settlement = Promise.withResolvers<CompletionReport | undefined>();
  const maxCost = maxCostOf(request);
  const isLarge = request.bodyReservation?.isLarge === true;
  const releaseBody = holdBody(request);
  const { signal, abort, cut } = abortOnClose(reply);
  const principal = principalOf(request);
  const room = gateway.answerMemory.roomFor(principal.organizationId, (release) => {
    onClosed(reply.raw, release);
    if (signal.aborted) release();
    else signal.addEventListener("abort", release);
  });
  const call = {
    ...decoded,
    principal,
    ignored,
    requestId: request.id,
    traceparent: traceparentOf(request),
    isLarge,
    limited: limitedOf(request),
    idempotency,
    repetition,
    maxCost,
    onHeld: () => {
      request.settlement = settlement.promise;
    },
    onSettled: settlement.resolve,
    signal,
    room,
    cut,
  } as GatewayCall;
  const sink = isStream ? new EventStreamSink(reply, decoded, { signal, abort }) : new DocumentSink(decoded);
  try {
    await running.follow(complete(gateway, call, sink), cut);
  } catch (error) {
    // Fastify would send an error to a client that has disconnected, and log it as a failure of the service.
    if (error === signal.reason && !isOwnCut(error)) return reply.hijack();
    throw error instanceof ApiError ? renamed(error, paramOf) : error;
  } finally {
    releaseBody();
    // A defect can end a completion before its report.
    settlement.resolve(undefined);
  }
  if (sink instanceof EventStreamSink || sink.response === undefined) return reply.hijack();
  const { headers, body } = sink.response;
  const type = ("contentType" in decoded && decoded.contentType) || "application/json; charset=utf-8";
  stored?.offer((body as ResponseObject).id);
  return reply.headers(headers).type(type).send(body);
}

/** Sends a stored answer whose delivery broke to a retry of its request. */
function redelivery(
  responseItems: EndpointServices["responseItems"],
  { fingerprint }: NonNullable<GatewayCall["repetition"]>,
  reply: FastifyReply,
) {
  const { request, raw } = reply;
  const { organizationId, callerId } = principalOf(request);
  const owner = { organizationId, callerId };
  /** Offers a stored answer to a retry if the connection closes before all of it was sent. */
  const offer = (id: string) =>
    onClosed(raw, () => {
      if (!raw.writableFinished) void responseItems.offer(owner, id, fingerprint());
    });
  /** Returns false if no answer is offered to this request. */
  const sendAgain = async () => {
    // Before the answer is taken: a retry that is refused can be repeated.
    await limitedOf(request).counted();
    const content = await responseItems.take(owner, fingerprint(), (bytes) => reserveBytes(request, bytes));
    const answer = keptResponse(content);
    if (answer === undefined) return false;
    offer(answer.response.id);
    reply.header(REPLAY_HEADER, "true").send(answer.response);
    return true;
  };
  return { offer, sendAgain };
}

/** Returns the handler that estimates the tokens of a prompt, within the limits of the caller. `encode` makes the response. */
export function countHandler(
  decode: Decode<DecodedCompletion>,
  encode: (tokens: number) => object,
): Endpoint["handle"] {
  return async (services, request, reply) => {
    const { gateway } = services;
    request.modelName ??= modelIn(request.body);
    const decoded = await decode(request, services);
    const principal = principalOf(request);
    const { signal } = abortOnClose(reply);
    try {
      const { estimate, promptTexts } = planPrompt(gateway, { native: undefined, ...decoded, principal, signal });
      const { likely, likelyBesideText } = estimate;
      const wanted = wantedLimits(gateway, principal, likely);
      const { requestLimit, tokenLimit, leave } = await limitedOf(request).admit(wanted);
      reply.headers(rateLimitHeaders([requestLimit, tokenLimit]));
      const counted = await gateway.tokenCounter.countPrompt(principal.organizationId, promptTexts(), signal);
      const tokens = counted === undefined ? likely : counted.tokens + likelyBesideText;
      leave(tokens);
      return encode(tokens);
    } catch (error) {
      throw error instanceof ApiError ? renamed(error, decoded.paramOf) : error;
    }
  };
}

/** Returns the most that a request may cost; null where it does not state it. Throws invalid_value. */
function maxCostOf({ headers }: FastifyRequest): MicroCredits | null {
  const text = headers[MAX_COST];
  if (text === undefined) return null;
  const amount = typeof text === "string" ? parseCredits(text.trim()) : undefined;
  if (amount !== undefined) return amount;
  throw new ApiError(
    "invalid_value",
    `Invalid '${MAX_COST}': expected credits as a decimal number with at most 6 decimals, such as 0.05.`,
    { param: MAX_COST },
  );
}

/** Returns an error whose `param`, and the message that quotes it, have the wire's own name of the field. */
function renamed(error: ApiError, paramOf: (param: string) => string): ApiError {
  const { code, message, param, loggedMessage, fields, headers, cause } = error;
  if (param === null) return error;
  const name = paramOf(param);
  if (name === param) return error;
  const rename = (text: string) => text.replaceAll(`'${param}'`, `'${name}'`);
  const options = { param: name, loggedMessage: rename(loggedMessage), fields, headers, cause };
  return new ApiError(code, rename(message), options);
}

/** Aborts the completion when its connection closes before the response is complete, or by calling `abort` or `cut`. */
function abortOnClose(reply: FastifyReply): Pick<GatewayCall, "signal" | "cut"> & { abort: () => void } {
  const controller = new AbortController();
  const abort = () => controller.abort(new Error("The client disconnected"));
  onClosed(reply.raw, () => {
    if (!reply.raw.writableFinished) abort();
  });
  return { signal: controller.signal, abort, cut: (reason) => controller.abort(reason) };
}

class DocumentSink implements AnswerSink {
  readonly streams = false;
  readonly #wire: Pick<DecodedCompletion, "document" | "keep">;
  readonly #fold = new AnswerFold();
  #head: AnswerHead | undefined;
  response: { body: object | string; headers: Record<string, string> } | undefined;

  constructor(wire: Pick<DecodedCompletion, "document" | "keep">) {
    this.#wire = wire;
  }

  open(head: AnswerHead): void {
    this.#head = head;
  }

  push(pieces: readonly AnswerPiece[]): undefined {
    this.#fold.add(pieces);
  }

  close(end: AnswerEnd): Promise<void> | undefined {
    const head = this.#head;
    if (head === undefined) throw new Error("An answer was closed before it was opened");
    const body = this.#wire.document(head, this.#fold, end);
    this.response = { body, headers: { ...head.headers, ...end.headers } };
    return this.#wire.keep?.(body);
  }

  fail(): void {
    throw new Error("A response that is not streamed fails with its status");
  }
}
