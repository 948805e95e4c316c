import type { FastifyInstance, FastifyReply, FastifyRequest } from "fastify";
import type { Principal } from "../api/principal.ts";
import { printable } from "../api/wording.ts";
import type { ApiError } from "../errors.ts";
import type { Refusal } from "../reports/refusal-log.ts";
import type { AccessEntry, AccessLog } from "../telemetry/logger.ts";

declare module "fastify" {
  interface FastifyRequest {
    /** Principal of the token, from authentication on, also if the request is rejected later. */
    principal: Principal | null;
    /** The error that the client received. */
    failure: ApiError | null;
    /** True if the service reset the connection in the middle of the response because of `failure`. */
    isReset: boolean;
    /** Model of a completion request. */
    modelName: string | null;
    /** True after credits were held: the request log then has an entry of its own. */
    isHeld: boolean;
  }
}

export interface AccessSources {
  accessLog: AccessLog;
  refusals: { note(refusal: Refusal): void };
  clock: () => number;
  /** True when the shutdown closes connections. */
  isCut(): boolean;
}

const MODEL_CHARACTERS_MAX = 200;
const MESSAGE_CHARACTERS_MAX = 500;

export function decorateForAccess(server: FastifyInstance): void {
  server.decorateRequest("principal", null);
  server.decorateRequest("failure", null);
  server.decorateRequest("isReset", false);
  server.decorateRequest("modelName", null);
  server.decorateRequest("isHeld", false);
}

/**
 * Records a request with a closed response in the access log, and in the refusal log if it was rejected and its
 * organization is known. `startedMs` is the time at which the request began, in milliseconds since 1970.
 */
export function recordAccess(
  sources: AccessSources,
  request: FastifyRequest,
  reply: FastifyReply,
  startedMs: number,
): void {
  const entry = entryOf(request, reply, { isCut: sources.isCut(), durationMs: sources.clock() - startedMs });
  sources.accessLog.record(entry);
  const { failure, principal, isHeld } = request;
  if (failure === null || principal === null || isHeld || entry.status < 400 || entry.status >= 500) return;
  sources.refusals.note({
    organizationId: principal.organizationId,
    tokenId: principal.tokenId,
    requestId: entry.requestId,
    endpoint: `${entry.method} ${entry.route}`,
    model: entry.model,
    status: failure.status,
    code: failure.code,
    message: printable(failure.loggedMessage, MESSAGE_CHARACTERS_MAX),
    durationMs: entry.durationMs,
  });
}

function entryOf(
  request: FastifyRequest,
  { raw }: FastifyReply,
  { isCut, durationMs }: { isCut: boolean; durationMs: number },
): AccessEntry {
  const { failure, isReset, modelName } = request;
  const isComplete = raw.writableFinished || isReset || isCut;
  const caller = request.principal ?? administratorOf(request);
  return {
    requestId: request.id,
    method: request.method,
    route: request.is404 ? null : (request.routeOptions.url ?? null),
    status: isComplete ? raw.statusCode : 499,
    code: isComplete ? (failure?.code ?? null) : "client_disconnected",
    organizationId: caller?.organizationId ?? null,
    tokenId: caller?.tokenId ?? null,
    model: modelName === null ? null : printable(modelName, MODEL_CHARACTERS_MAX),
    durationMs,
  };
}

function administratorOf({ administrator: who }: FastifyRequest) {
  if (who === null || who === undefined) return null;
  if (who.role === "operator") return { organizationId: null, tokenId: who.adminToken.id };
  return { organizationId: who.token.organizationId, tokenId: who.token.id };
}

/** Returns the model of a body before its validation, null if it has none. */
export function modelIn(body: unknown): string | null {
  const model = typeof body === "object" && body !== null && "model" in body ? body.model : null;
  return typeof model === "string" ? model.slice(0, MODEL_CHARACTERS_MAX + 1) : null;
}
