import type { FastifyError, FastifyReply, FastifyRequest } from "fastify";
import { toErrorEnvelope } from "../api/chat/encode.ts";
import { geminiErrors } from "../api/gemini/errors.ts";
import { messagesErrors } from "../api/messages/errors.ts";
import { ErrorEnvelope, InvalidRequestError } from "../api/validation.ts";
import type { ErrorFormat } from "../api/wire.ts";
import { ApiError } from "../errors.ts";
import { publicError } from "../gateway/failures.ts";
import { type LimitState, rateLimitHeaders } from "../gateway/limits.ts";
import type { Log } from "../telemetry/logger.ts";
import { callerNamesOf, GOOGLE_KEY_HEADER } from "./authentication.ts";
import { wrongMediaType } from "./body.ts";

/** Converts any error to the public error of the response. Internal errors become its cause. */
export function toPublicError(error: unknown): ApiError {
  if (error instanceof InvalidRequestError) {
    const { code, message, param, loggedMessage } = error.issue;
    return new ApiError(code, message, { ...(param !== null && { param }), loggedMessage });
  }
  const isForbiddenPath = (error as FastifyError | undefined)?.code === "FST_STATIC_FORBIDDEN_PATH";
  return isForbiddenPath ? new ApiError("not_found") : publicError(error);
}

/** Returns Fastify's error handler: it sends the error envelope, and logs defects of the service. */
export function errorHandler(log: Log) {
  return (error: unknown, request: FastifyRequest, reply: FastifyReply) => {
    const isWrongType = (error as FastifyError).code === "FST_ERR_CTP_INVALID_MEDIA_TYPE";
    const shown = isWrongType ? wrongMediaType(request) : toPublicError(error);
    const hasDisconnected = (error as NodeJS.ErrnoException).code === "ECONNRESET" && request.raw.destroyed;
    // The access log has the known errors. A defect is logged with its stack.
    if (!hasDisconnected && shown.code === "internal_error") {
      const fields = { requestId: request.id, ...callerNamesOf(request.caller), model: request.modelName };
      log.error({ ...fields, defect: shown.cause }, "a request failed with an internal error");
    }
    const { status, message, loggedMessage: reason } = shown;
    if (status >= 500 && reason !== message) log.warn({ requestId: request.id, reason }, message);
    if (reply.raw.headersSent) return resetConnection(reply, shown);
    const counted = request.caller?.limited?.counted();
    if (counted === undefined) return sendError(reply, shown);
    const send = (state: LimitState) => sendError(reply.headers(rateLimitHeaders([state])), shown);
    if (!(counted instanceof Promise)) return send(counted);
    // A request above its limit gets 429, also if it is invalid.
    return counted.then(send, (refusal) => sendError(reply, toPublicError(refusal)));
  };
}

/** Resets the connection of an unfinished response, because an HTTP/1.0 client would take a close for its end. */
function resetConnection(reply: FastifyReply, error: ApiError): void {
  const { request, raw } = reply;
  if (raw.destroyed) return;
  request.failure = { error, isReset: true };
  request.raw.socket.resetAndDestroy();
}

const DISCARDED_BYTES_MAX = 32 * 1024 * 1024;

/**
 * Reads and discards the rest of a request's body, up to a limit. Closing the connection while the client still sends
 * would reset it, and the client would lose the response; so `Connection: close` of the client is ignored here.
 */
function discardBody({ raw: request }: FastifyRequest, reply: FastifyReply): void {
  if (request.complete || request.destroyed) return;
  reply.removeHeader("connection");
  reply.raw.shouldKeepAlive = true;
  let discardedBytes = 0;
  request.on("data", (chunk: Buffer) => {
    discardedBytes += chunk.length;
    if (discardedBytes > DISCARDED_BYTES_MAX) request.destroy();
  });
  request.resume();
}

declare module "fastify" {
  interface FastifyContextConfig {
    isForm?: boolean | undefined;
    /** Set where the body is taken as bytes: its size limit. */
    rawLimitBytes?: number;
    errors?: ErrorFormat | undefined;
  }
}

/** With `elsewhere`, a proxy repeats a request after status 421 at another node: see docs/examples/nginx-nodes.conf. */
const RETRY_HEADER = "x-tollgate-retry";
const MISDIRECTED = 421;

/**
 * Tells whether a request that the store failed can be repeated without a second charge: it reads, or is a completion without a
 * confirmed hold. A change by an administrator may be committed in spite of its failure.
 */
function mayRepeat({ method, settlement, routeOptions }: FastifyRequest, { code }: ApiError): boolean {
  if (code !== "store_unavailable") return false;
  const isCompletion = method === "POST" && /^\/v1(?:beta)?\//.test(routeOptions.url ?? "");
  return method === "GET" || method === "HEAD" || (isCompletion && settlement === null);
}

/** Sends an error with its status, its headers and the body of its route's format. */
export function sendError(reply: FastifyReply, error: ApiError) {
  const { request } = reply;
  discardBody(request, reply);
  request.failure = { error };
  const format = errorFormatOf(request);
  const isRepeatable = mayRepeat(request, error);
  const isRepeated = isRepeatable && request.headers[RETRY_HEADER] === "elsewhere";
  return reply
    .code(isRepeated ? MISDIRECTED : format.status(error))
    .headers(isRepeatable ? { "retry-after": "1", ...error.headers } : error.headers)
    .send(format.body(error, request.id));
}

export const usualErrors: ErrorFormat = {
  schema: ErrorEnvelope,
  status: ({ status }) => status,
  body: toErrorEnvelope,
};

/** Returns the format of a request's errors: that of its route, or of the wire whose path, version or key it names. */
function errorFormatOf(request: FastifyRequest): ErrorFormat {
  const { errors } = request.routeOptions.config;
  if (errors !== undefined) return errors;
  if (namesMessagesVersion(request)) return messagesErrors;
  return isOfGemini(request) ? geminiErrors : usualErrors;
}

/** True for a request of a client that speaks Gemini's API. */
export function isOfGemini({ headers, url }: Pick<FastifyRequest, "headers" | "url">): boolean {
  return headers[GOOGLE_KEY_HEADER] !== undefined || url.startsWith("/v1beta/");
}

/** True for a request of a client that speaks Anthropic's API: all its requests name their version. */
export function namesMessagesVersion({ headers }: Pick<FastifyRequest, "headers">): boolean {
  return headers["anthropic-version"] !== undefined;
}
