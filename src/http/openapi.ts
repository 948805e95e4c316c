import type { FastifySchema } from "fastify";
import { type TSchema, Type } from "typebox";
import { ErrorEnvelope } from "../contract/error.ts";
import { errorCatalog } from "../errors.ts";
import { createChatCompletion } from "./endpoints/create-chat-completion.ts";
import type { Endpoint } from "./endpoints/endpoint.ts";

/** The parts of the OpenAPI document that no endpoint says. */
export function documentBase(version: string) {
  return {
    openapi: "3.1.0",
    info: {
      title: "Tollgate",
      version,
      description: "A self-hosted chat completion service: every model through one API, charged to prepaid credits.",
      license: { name: "Apache-2.0", identifier: "Apache-2.0" },
    },
    servers: [{ url: "/" }],
    components: {
      securitySchemes: {
        token: { type: "http" as const, scheme: "bearer", description: "An access token of an organization." },
      },
    },
    security: [{ token: [] }],
  };
}

/** An endpoint's schemas as Fastify's documentation plugin reads them. They document; nothing is validated by them. */
export function documentationOf(endpoint: Endpoint): FastifySchema {
  const { operationId, summary, description, body, wildcard, response } = endpoint;
  return {
    operationId,
    summary,
    description: `${description} Needs the scope \`${endpoint.scope}\`.`,
    ...(body !== undefined && { body: withNulls(body) }),
    ...(wildcard !== undefined && {
      params: Type.Object({ [wildcard.name]: Type.String({ description: wildcard.description }) }),
    }),
    response: { 200: contentOf(response), ...errorResponses(endpoint) },
  } as FastifySchema;
}

function contentOf({ description, schema, eventSchema }: Endpoint["response"]) {
  return {
    description,
    content: {
      "application/json": { schema },
      ...(eventSchema !== undefined && { "text/event-stream": { schema: eventSchema } }),
    },
  };
}

const EVERY_OPERATION_STATUSES = new Set([400, 401, 403, 404, 405, 429, 500, 503]);

function errorResponses(endpoint: Endpoint): Record<number, unknown> {
  const isCompletion = endpoint === createChatCompletion;
  const responses: Record<number, unknown> = {};
  for (const [code, { status }] of Object.entries(errorCatalog)) {
    if (!isCompletion && !EVERY_OPERATION_STATUSES.has(status)) continue;
    const before = responses[status] as { description: string } | undefined;
    const description = before === undefined ? `\`${code}\`` : `${before.description}, \`${code}\``;
    responses[status] = { description, content: { "application/json": { schema: ErrorEnvelope } } };
  }
  return responses;
}

/** A request's schema as callers may send it: optional fields also as null, which counts as absent. */
function withNulls(schema: TSchema): TSchema {
  const { properties, required = [] } = schema as TSchema & {
    properties: Record<string, TSchema>;
    required?: string[];
  };
  const shown: Record<string, unknown> = {};
  for (const [name, property] of Object.entries(properties)) {
    shown[name] = required.includes(name) ? property : { anyOf: [property, { type: "null" }] };
  }
  return { ...schema, properties: shown } as TSchema;
}
