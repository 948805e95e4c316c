import type { FastifyError, FastifyReply, FastifyRequest } from "fastify";
import { ApiError, type ErrorCode, StoreUnavailableError } from "../errors.ts";
import { rateLimitHeaders } from "../gateway/limits.ts";
import type { Log } from "../telemetry/logger.ts";

/** What Fastify itself refuses, by its own codes (https://fastify.dev/docs/latest/Reference/Errors/). */
const FASTIFY_CODES: Record<string, ErrorCode> = {
  FST_ERR_CTP_INVALID_MEDIA_TYPE: "unsupported_media_type",
  FST_ERR_CTP_EMPTY_JSON_BODY: "invalid_json",
  FST_STATIC_FORBIDDEN_PATH: "not_found",
};

/** A client that left before its body had arrived: nobody's fault, and nobody is there to be answered. */
function hasLeft(error: unknown, request: FastifyRequest): boolean {
  return (error as NodeJS.ErrnoException | undefined)?.code === "ECONNRESET" && request.raw.destroyed;
}

/** Any error as the one that the caller is told; what is not meant for callers becomes its cause. */
export function toPublicError(error: unknown): ApiError {
  if (error instanceof ApiError) return error;
  if (error instanceof StoreUnavailableError) return new ApiError("store_unavailable", undefined, { cause: error });
  const code = FASTIFY_CODES[(error as FastifyError | undefined)?.code ?? ""];
  if (code !== undefined) return new ApiError(code);
  return new ApiError("internal_error", undefined, { cause: error });
}

/** Fastify's error handler: the envelope, its headers, and a log line for a defect of the service. */
export function errorHandler(log: Log) {
  return (error: unknown, request: FastifyRequest, reply: FastifyReply) => {
    const publicError = toPublicError(error);
    // A failure that is known is in the access log; one that should not happen also shows where.
    if (!hasLeft(error, request) && publicError.code === "internal_error") {
      const { organizationId, tokenId } = request.principal ?? {};
      const fields = { requestId: request.id, organizationId, tokenId, model: request.modelName };
      log.error({ ...fields, defect: publicError.cause }, "a request failed inside the service");
    }
    if (reply.raw.headersSent) return resetConnection(reply, publicError);
    if (request.caller?.isToldLimits) reply.headers(rateLimitHeaders([request.caller.requestStanding]));
    return sendError(reply, publicError);
  };
}

/**
 * Resets the connection of an answer that has begun and cannot be completed. If it were only closed, an HTTP/1.0 client would
 * take the part that it has for the whole answer.
 */
function resetConnection(reply: FastifyReply, error: ApiError): void {
  const { request, raw } = reply;
  if (raw.destroyed) return;
  request.failure = error;
  request.isReset = true;
  request.raw.socket.resetAndDestroy();
}

/** A client that goes on sending its body after it was refused is cut off after so much. */
const DISCARDED_BYTES_MAX = 32 * 1024 * 1024;

/**
 * A connection that is closed while its client still sends is reset, and the answer lost. So the rest is read and thrown
 * away, up to a bound and for as long as a request may take, also where the client asked for the end of the connection.
 */
function readOn({ raw: request }: FastifyRequest, reply: FastifyReply): void {
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

export function sendError(reply: FastifyReply, error: ApiError) {
  readOn(reply.request, reply);
  reply.request.failure = error;
  return reply.code(error.status).headers(error.headers).send(error.toEnvelope());
}
