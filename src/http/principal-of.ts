import type { FastifyRequest } from "fastify";
import type { Principal } from "../api/principal.ts";
import type { Standing } from "../gateway/limits.ts";

/** What is known of a request once its token and its requests a minute were checked. */
export interface Caller {
  principal: Principal;
  requestStanding: Standing;
  /** Whether answers tell where the limits stand: those of completions. */
  isToldLimits: boolean;
}

declare module "fastify" {
  interface FastifyRequest {
    caller: Caller | null;
  }
}

/** Who is calling; only behind authentication. */
export function callerOf(request: FastifyRequest): Caller {
  if (request.caller === null) throw new Error("An operation was reached without a principal");
  return request.caller;
}

export function principalOf(request: FastifyRequest): Principal {
  return callerOf(request).principal;
}
