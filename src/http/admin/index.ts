import type { FastifyInstance, FastifyReply, FastifyRequest } from "fastify";
import { type TSchema, Type } from "typebox";
import type { Administrator } from "../../admin/sessions.ts";
import { compileCheck } from "../../api/validation.ts";
import { ApiError } from "../../errors.ts";
import { markAuthenticated } from "../connection.ts";
import { adminDocumentationOf } from "../openapi.ts";
import { administratorOf } from "./authentication.ts";
import { creditEndpoints } from "./credits.ts";
import type { AdminCall, AdminEndpoint, AdminServices } from "./endpoint.ts";
import { handleOnce } from "./idempotency.ts";
import { organizationEndpoints } from "./organizations.ts";
import { playgroundEndpoints } from "./playground.ts";
import { reportEndpoints } from "./reports.ts";
import { requestEndpoints } from "./requests.ts";
import { sessionEndpoints } from "./session.ts";
import { tokenEndpoints } from "./tokens.ts";

declare module "fastify" {
  interface FastifyRequest {
    administrator: Administrator | null;
  }
}

export const ADMIN_PREFIX = "/admin/v1";
const NO_FIELDS = Type.Object({}, { additionalProperties: false });

/** Every operation of the admin API. */
export const adminEndpoints: readonly AdminEndpoint[] = [
  ...sessionEndpoints,
  ...reportEndpoints,
  ...organizationEndpoints,
  ...creditEndpoints,
  ...tokenEndpoints,
  ...requestEndpoints,
  ...playgroundEndpoints,
];

/** Registers the admin API: same origin only, and never cached. */
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

/**
 * Returns a check of an input against its schema, which throws the error of the first violation. The schema is compiled at
 * the first check: a service whose console is not used needs no memory for it.
 */
function checker(schema: TSchema): (value: unknown) => void {
  let check: ReturnType<typeof compileCheck> | undefined;
  return (value) => {
    check ??= compileCheck(schema);
    const issue = check(value);
    if (issue === undefined) return;
    throw new ApiError(issue.code, issue.message, { param: issue.param ?? undefined });
  };
}

const INTEGER = /^\d{1,15}$/;

/** Converts the integers of a query to numbers. The check refuses values that are not integers. */
function queryOf(schema: TSchema, query: Record<string, unknown>): Record<string, unknown> {
  const { properties } = schema as TSchema & { properties: Record<string, { type?: string }> };
  return Object.fromEntries(
    Object.entries(query).map(([name, value]) => {
      const isInteger = Object.hasOwn(properties, name) && properties[name]?.type === "integer";
      return [name, isInteger && typeof value === "string" && INTEGER.test(value) ? Number(value) : value];
    }),
  );
}

/** Throws invalid_value for text with the NUL character, which PostgreSQL cannot store. */
function refuseNul(value: unknown): void {
  if (typeof value === "string" && value.includes("\0")) {
    throw new ApiError("invalid_value", "Text must not contain the NUL character.");
  }
  if (typeof value === "object" && value !== null) for (const member of Object.values(value)) refuseNul(member);
}
