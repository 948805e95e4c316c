import type { FastifyInstance, FastifyReply, FastifyRequest } from "fastify";
import { Type } from "typebox";
import type { Administrator } from "../../admin/sessions.ts";
import { markAuthenticated } from "../connection.ts";
import { adminDocumentationOf } from "../openapi.ts";
import type { AdminCall, AdminEndpoint, AdminServices } from "./endpoint.ts";
import { administratorOf } from "./guard.ts";
import { handleOnce } from "./idempotency.ts";
import { adminEndpoints } from "./index.ts";
import { checker, queryOf, refuseNul } from "./input.ts";

declare module "fastify" {
  interface FastifyRequest {
    administrator: Administrator | null;
  }
}

export const ADMIN_PREFIX = "/admin/v1";
const NO_FIELDS = Type.Object({}, { additionalProperties: false });

/** The admin API: same origin only, and never kept by a cache. */
export async function serveAdmin(api: FastifyInstance, services: AdminServices): Promise<void> {
  api.decorateRequest("administrator", null);
  for (const endpoint of adminEndpoints) {
    api.route({
      method: endpoint.method,
      url: `${ADMIN_PREFIX}${endpoint.path}`,
      schema: adminDocumentationOf(endpoint),
      onRequest: async (request, reply) => {
        reply.headers({ "cache-control": "no-store", "x-content-type-options": "nosniff" });
        const guards = { sessions: services.sessions, limits: services.gateway.limits };
        request.administrator = await administratorOf(guards, request, endpoint.access);
        if (request.administrator !== null) markAuthenticated(request.raw.socket);
        endpoint.countAttempt?.(services, { who: request.administrator, request });
      },
      handler: handlerOf(services, endpoint),
    });
  }
}

function handlerOf(services: AdminServices, endpoint: AdminEndpoint) {
  const { query: querySchema = NO_FIELDS, body: bodySchema, response } = endpoint;
  const checkQuery = checker(querySchema);
  const checkBody = checker(bodySchema ?? NO_FIELDS);
  return async (request: FastifyRequest, reply: FastifyReply) => {
    const query = queryOf(querySchema, request.query as Record<string, unknown>);
    checkQuery(query);
    if (bodySchema !== undefined || request.body !== undefined) checkBody(request.body);
    const params = request.params as AdminCall["params"];
    refuseNul([params, query, request.body]);
    const call = { who: request.administrator, params, query, body: request.body, request, reply };
    reply.code(response.status);
    return handleOnce(services, endpoint, call);
  };
}
