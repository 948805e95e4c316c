import { createHash } from "node:crypto";
import { gzipSync } from "node:zlib";
import type { FastifyInstance, FastifyReply, FastifyRequest, FastifySchema } from "fastify";
import { type TSchema, Type } from "typebox";
import { type Permission, rolesWith } from "../api/admin/roles.ts";
import type { ChatSettings } from "../api/chat/decode.ts";
import { SentRequest } from "../api/chat/request.ts";
import { Nullable, PartialObject } from "../api/schema.ts";
import type { ErrorFormat } from "../api/wire.ts";
import { type ErrorCode, errorCatalog } from "../errors.ts";
import type { Gateway } from "../gateway/gateway.ts";
import type { AdminEndpoint } from "./admin/endpoint.ts";
import { usualErrors } from "./errors.ts";
import { IDEMPOTENCY_HEADER } from "./idempotency.ts";
import { createEmbedding, createImages, createSpeech, createTranscription } from "./routes/completions.ts";
import type { Endpoint } from "./routes/endpoint.ts";

/** Returns the parts of the OpenAPI document that do not come from endpoints. */
export function documentBase(version: string, basePath: string) {
  return {
    openapi: "3.1.0",
    info: {
      title: "Tollgate",
      version,
      description: "A self-hosted chat completion service: every model through one API, charged to prepaid credits.",
      license: { name: "Apache-2.0", identifier: "Apache-2.0" },
    },
    servers: [{ url: basePath || "/" }],
    components: {
      securitySchemes: {
        token: { type: "http" as const, scheme: "bearer", description: "An access token of an organization." },
        adminToken: { type: "http" as const, scheme: "bearer", description: "The token of an operator or an auditor." },
        session: {
          type: "apiKey" as const,
          in: "cookie" as const,
          name: "tollgate_session",
          description:
            "A session of the console; requests that change something also need the header `x-tollgate-console: 1`.",
        },
      },
    },
    security: [{ token: [] }],
  };
}

const DOCUMENT_TYPES = { json: "application/json; charset=utf-8", yaml: "application/x-yaml" };

/** Returns the handler of the OpenAPI document in one format, which is made at the first request, when all routes are known. */
export function documentHandler(server: FastifyInstance, format: keyof typeof DOCUMENT_TYPES) {
  let document: { text: string; compressed: Buffer; etag: string } | undefined;
  const make = () => {
    const text = format === "yaml" ? server.swagger({ yaml: true }) : JSON.stringify(server.swagger());
    // Weak: both encodings have it.
    const etag = `W/"${createHash("sha256").update(text).digest("base64url")}"`;
    return { text, compressed: gzipSync(text), etag };
  };
  return async (request: FastifyRequest, reply: FastifyReply) => {
    document ??= make();
    reply.headers({ etag: document.etag, "cache-control": "no-cache", vary: "Accept-Encoding" });
    if (matchesEtag(request.headers["if-none-match"], document.etag)) return reply.code(304).send();
    reply.type(DOCUMENT_TYPES[format]);
    // The document repeats itself: it has 5 % of its bytes when it is compressed.
    if (!/\bgzip\b(?!\s*;)/.test(String(request.headers["accept-encoding"]))) return reply.send(document.text);
    return reply.header("content-encoding", "gzip").send(document.compressed);
  };
}

function matchesEtag(header: string | undefined, etag: string): boolean {
  if (header === undefined) return false;
  const tagOf = (text: string) => text.trim().replace(/^W\//, "");
  return header.trim() === "*" || header.split(",").some((one) => tagOf(one) === tagOf(etag));
}

/** Returns an endpoint's schemas for the documentation; they validate nothing. */
export function documentationOf(endpoint: Endpoint, bounds: ChatBounds): FastifySchema {
  const { operationId, summary, description, headers, body, wildcard, response } = endpoint;
  return {
    operationId,
    summary,
    description: `${description} Requires the scope \`${endpoint.scope}\`.`,
    ...(headers !== undefined && { headers }),
    ...(body !== undefined && {
      body: endpoint.isForm ? body : withNulls(body === SentRequest ? withBounds(bounds) : body),
      ...(endpoint.isForm && { consumes: ["multipart/form-data"] }),
    }),
    ...(wildcard !== undefined && {
      params: Type.Object({ [wildcard.name]: Type.String({ description: wildcard.description }) }),
    }),
    response: {
      200: {
        description: response.description,
        content: {
          [response.contentType ?? "application/json"]: { schema: response.schema },
          ...(response.eventSchema !== undefined && { "text/event-stream": { schema: response.eventSchema } }),
        },
      },
      ...errorResponses(endpoint),
    },
  } as FastifySchema;
}

function accessOf(permission: Permission): string {
  const roles = rolesWith(permission);
  if (roles.includes("guest")) return `Permission \`${permission}\`. No authentication required.`;
  return `Permission \`${permission}\`, which these roles have: ${roles.join(", ")}.`;
}

/** Returns the same for an endpoint of the admin API. */
export function adminDocumentationOf(endpoint: AdminEndpoint): FastifySchema {
  const { operationId, summary, permission, path, query, body, answer } = endpoint;
  const { status, description, contentType = "application/json" } = answer;
  const schema = answerSchemaOf(endpoint);
  const names = [...path.matchAll(/:(\w+)/g)].map(([, name = ""]) => name);
  return {
    tags: ["admin"],
    operationId,
    summary,
    description: accessOf(permission),
    security: rolesWith(permission).includes("guest") ? [] : [{ adminToken: [] }, { session: [] }],
    ...(names.length > 0 && { params: Type.Object(Object.fromEntries(names.map((name) => [name, Type.String()]))) }),
    ...(query !== undefined && { querystring: query }),
    ...(body !== undefined && { body }),
    ...(endpoint.method === "POST" && endpoint.isRepeatable !== false && { headers: ADMIN_IDEMPOTENCY }),
    response: {
      [status]: { description, ...(schema !== undefined && { content: { [contentType]: { schema } } }) },
      ...responsesOf((code, codeStatus) => ADMIN_STATUSES.has(codeStatus) && !CODES_OF_COMPLETIONS.has(code)),
    },
  } as FastifySchema;
}

const ADMIN_IDEMPOTENCY = PartialObject({
  [IDEMPOTENCY_HEADER]: Type.String({
    minLength: 1,
    maxLength: 255,
    description:
      "Identifies the request for 24 hours. A repeated request with the same body returns the first response again, without its secret, and changes nothing.",
  }),
});

/** Returns the response schema. Its secret is nullable, because a repeated request does not get it. */
function answerSchemaOf({ answer: { schema, secret } }: AdminEndpoint): TSchema | undefined {
  if (schema === undefined || secret === undefined) return schema;
  const { properties } = schema as TSchema & { properties: Record<string, TSchema> };
  const shown = properties[secret.field];
  if (shown === undefined) throw new Error(`The response has no field ${secret.field}`);
  const hint = Type.Optional(
    Type.String({ description: "Only in the response to a repeated request: why the secret is null, and what to do." }),
  );
  return Type.Object({ ...properties, [secret.field]: Nullable(shown), hint });
}

const EVERY_OPERATION_STATUSES = new Set([400, 401, 403, 404, 405, 429, 500, 503]);
const ADMIN_STATUSES = new Set([...EVERY_OPERATION_STATUSES, 409, 413, 415, 422]);
const CODES_OF_ADMIN = new Set<ErrorCode>([
  "unknown_parameter",
  "insufficient_role",
  "csrf_check_failed",
  "token_ended",
  "reference_mismatch",
  "erasure_not_due",
]);
/** Codes that no documented operation of the public API responds with: 426 is for attempts to open a WebSocket. */
const CODES_OF_OTHERS = new Set<ErrorCode>([...CODES_OF_ADMIN, "upgrade_required"]);
/** Codes that do not occur in the admin API. */
const CODES_OF_COMPLETIONS = new Set<ErrorCode>([
  "unsupported_value",
  "context_length_exceeded",
  "max_cost_exceeded",
  "content_filter",
  "upstream_rejected",
  "model_not_allowed",
  "model_not_found",
  "organization_paused",
  "credits_held",
  "upstream_unavailable",
]);

/** The operations with a charge that are not streamed. */
const IS_CHARGED: ReadonlySet<Endpoint> = new Set([createEmbedding, createImages, createSpeech, createTranscription]);

function errorResponses(endpoint: Endpoint): Record<number, unknown> {
  const isCompletion = endpoint.response.eventSchema !== undefined || IS_CHARGED.has(endpoint);
  return responsesOf(
    (code, status) => !CODES_OF_OTHERS.has(code) && (isCompletion || EVERY_OPERATION_STATUSES.has(status)),
    endpoint.errors,
  );
}

function responsesOf(
  isOf: (code: ErrorCode, status: number) => boolean,
  { schema, status: statusOf }: ErrorFormat = usualErrors,
): Record<number, unknown> {
  const responses: Record<number, unknown> = {};
  for (const [code, row] of Object.entries(errorCatalog)) {
    if (!isOf(code as ErrorCode, row.status)) continue;
    const status = statusOf({ status: row.status, code });
    const before = responses[status] as { description: string } | undefined;
    const description = before === undefined ? `\`${code}\`` : `${before.description}, \`${code}\``;
    responses[status] = { description, content: { "application/json": { schema } } };
  }
  return responses;
}

interface ChatBounds extends Pick<ChatSettings, "maxTemperature"> {
  maxTokens: Gateway["completionMaxTokens"];
}

function withBounds({ maxTokens, maxTemperature }: ChatBounds): TSchema {
  const { max_tokens, temperature } = SentRequest.properties;
  const bounded = {
    temperature: { ...temperature, maximum: maxTemperature },
    ...(typeof maxTokens === "number" && { max_tokens: { ...max_tokens, maximum: maxTokens } }),
  };
  return { ...SentRequest, properties: { ...SentRequest.properties, ...bounded } };
}

/** Allows null for the optional fields of a request schema, because null counts as absent. */
function withNulls(schema: TSchema): TSchema {
  const { properties, required = [] } = schema as TSchema & {
    properties: Record<string, TSchema>;
    required?: string[];
  };
  const shown = Object.entries(properties).map(([name, property]) => {
    return [name, required.includes(name) ? property : { anyOf: [property, { type: "null" }] }];
  });
  return { ...schema, properties: Object.fromEntries(shown) } as TSchema;
}
