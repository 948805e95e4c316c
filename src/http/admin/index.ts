import type { FastifyInstance, FastifyReply, FastifyRequest } from "fastify";
import { type TSchema, Type } from "typebox";
import type { Actor } from "../../admin/audit.ts";
import type { AdminKeys } from "../../admin/idempotency-keys.ts";
import { shareOwnerOf } from "../../admin/sessions.ts";
import { type Permission, permits } from "../../api/admin/roles.ts";
import { compileCheck, refuseIf } from "../../api/validation.ts";
import { isStorable, printable } from "../../api/wording.ts";
import { ApiError } from "../../errors.ts";
import { FairTurns } from "../../ledger/fair-queue.ts";
import { knownOrganization } from "../../operations/core.ts";
import { type OperationCall, type OperationServices, requireOwn } from "../../operations/operation.ts";
import { clientAddressKey, ownConnection, streamText } from "../connection.ts";
import { fingerprintOf, IDEMPOTENCY_HEADER, idempotencyKeyOf } from "../idempotency.ts";
import { adminDocumentationOf } from "../openapi.ts";
import { publicUrlOf } from "../routing.ts";
import { administratorOf, cookieSecret, countFailedSignIn, setCookie } from "./authentication.ts";
import { ADMIN_PREFIX, type AdminEndpoint, adminEndpoints } from "./endpoint.ts";

/** Services that the admin API uses. The actor of its operations is the caller of each request. */
export interface AdminServices extends Omit<OperationServices, "actor"> {
  keys: AdminKeys;
}

interface AdminCall extends OperationCall {
  request: FastifyRequest;
  reply: FastifyReply;
}

const NO_FIELDS = Type.Object({}, { additionalProperties: false });
/** Far more than the pages of a console request. */
const MEMBER_REQUESTS_A_MINUTE = 1_200;
/** Fewer than the connections for reports, so that operators find a free one. */
const ORGANIZATIONS_AT_ONCE = 3;

/** Registers the admin API: same origin only, and never cached. Each organization's members are served one at a time. */
export async function serveAdmin(api: FastifyInstance, services: AdminServices): Promise<void> {
  const turns = new FairTurns(ORGANIZATIONS_AT_ONCE);
  for (const endpoint of adminEndpoints) {
    api.route({
      method: endpoint.method,
      url: `${ADMIN_PREFIX}${endpoint.path}`,
      schema: adminDocumentationOf(endpoint),
      onRequest: async (request, reply) => {
        reply.headers({ "cache-control": "no-store", "x-content-type-options": "nosniff" });
        const who = await administratorOf(services, request, endpoint.permission);
        if (who !== null) {
          request.caller = { administrator: who };
          ownConnection(request.raw.socket, shareOwnerOf(who));
          if (who.organizationId !== null) {
            const { operationId, requestsAMinute } = endpoint;
            const own = requestsAMinute && { key: `${operationId}:${who.organizationId}`, limit: requestsAMinute };
            const all = { key: `console:${who.organizationId}`, limit: MEMBER_REQUESTS_A_MINUTE };
            await services.gateway.limits.countRequest(own ? [all, own] : [all]);
          }
        } else {
          await endpoint.countGuest?.(services, clientAddressKey(request.ip));
        }
      },
      handler: handlerOf(services, endpoint, turns),
    });
  }
}

function handlerOf(services: AdminServices, endpoint: AdminEndpoint, turns: FairTurns) {
  const { path, query: querySchema = NO_FIELDS, body: bodySchema, answer } = endpoint;
  const checkQuery = checker(querySchema);
  const checkBody = checker(bodySchema ?? NO_FIELDS);
  return async (request: FastifyRequest, reply: FastifyReply) => {
    const query = queryOf(querySchema, request.query as Record<string, unknown>);
    checkQuery(query);
    if (bodySchema !== undefined || request.body !== undefined) checkBody(request.body);
    const params = request.params as OperationCall["params"];
    for (const input of [params, query, request.body]) refuseUnstorable(input);
    const who = request.caller?.administrator ?? null;
    const may = (permission: Permission) => permits(who?.role ?? null, permission);
    const isOfOrganization = path.startsWith("/organizations/:id");
    if (isOfOrganization) requireOwn(who, params.id);
    const { cursor = null, limit = 50 } = query as { cursor?: string; limit?: number };
    const connection = connectionOf(services, reply);
    const page = { cursor, limit };
    const call = { who, may, params, query, page, body: request.body, connection, request, reply };
    reply.code(answer.status);
    // An export takes as long as its client reads, and has limits of its own, which come first.
    const isExport = answer.contentType !== undefined;
    const handle = async () => {
      if (isOfOrganization && !isExport) await knownOrganization(services, params.id);
      return handleOnce(services, endpoint, call);
    };
    const isLimited = who !== null && who.organizationId !== null && !isExport && !endpoint.requestsAMinute;
    return isLimited ? turns.run(shareOwnerOf(who), handle) : handle();
  };
}

function originOf({ ip, id }: FastifyRequest) {
  return { address: ip, requestId: id };
}

function actorOf(request: FastifyRequest): Actor {
  const who = request.caller?.administrator;
  if (who === undefined) return { kind: "anonymous", id: null, name: null, ...originOf(request) };
  return { kind: who.role, id: who.id, name: who.name, ...originOf(request) };
}

function connectionOf({ gateway }: AdminServices, reply: FastifyReply): OperationCall["connection"] {
  const { request } = reply;
  return {
    origin: originOf(request),
    publicUrl: publicUrlOf(request),
    secretOf: (cookie) => cookieSecret(request, cookie),
    setCookie: (cookie, secret = "", lifeMs = 0) => setCookie(reply, cookie, secret, lifeMs),
    countFailedSignIn: () => countFailedSignIn(gateway.limits, request),
    async stream(headers, text) {
      await streamText(reply, headers, text);
      return reply.hijack();
    },
  };
}

function checker(schema: TSchema): (value: unknown) => void {
  const check = compileCheck(schema);
  return (value) => refuseIf(check(value));
}

const NUMBERS: Record<string, RegExp> = { integer: /^\d{1,15}$/, number: /^\d{1,15}(\.\d{1,15})?$/ };

/** Converts the integers of a query to numbers. The check refuses values that are not integers. */
function queryOf(schema: TSchema, query: Record<string, unknown>): Record<string, unknown> {
  const { properties } = schema as TSchema & { properties: Record<string, { type?: string }> };
  return Object.fromEntries(
    Object.entries(query).map(([name, value]) => {
      const pattern = Object.hasOwn(properties, name) && NUMBERS[properties[name]?.type ?? ""];
      return [name, pattern && typeof value === "string" && pattern.test(value) ? Number(value) : value];
    }),
  );
}

/** Throws invalid_value, with the field's path, for text that would come back from a store as another one. */
function refuseUnstorable(value: unknown, path = ""): void {
  if (typeof value === "string" && !isStorable(value)) {
    const param = printable(path, 128);
    const message = `Invalid '${param}': text must contain neither the NUL character nor half of a surrogate pair.`;
    throw new ApiError("invalid_value", message, { param });
  }
  if (typeof value !== "object" || value === null) return;
  for (const [name, member] of Object.entries(value)) {
    const place = path === "" ? name : `${path}.${name}`;
    refuseUnstorable(name, place);
    refuseUnstorable(member, place);
  }
}

/** Runs an operation; a POST with an Idempotency-Key once: repetitions get the first response again, without its secret. */
export async function handleOnce(services: AdminServices, endpoint: AdminEndpoint, call: AdminCall): Promise<unknown> {
  const handle = async () => {
    const answer = await endpoint.handle({ ...services, actor: actorOf(call.request) }, call);
    if ((answer as { repeated?: boolean } | undefined)?.repeated === true) call.reply.code(200);
    return answer;
  };
  const key = endpoint.method === "POST" ? idempotencyKeyOf(call.request) : null;
  if (key === null) return handle();
  const { keys } = services;
  const name = { scope: scopeOf(endpoint, call), key };
  const { operationId } = endpoint;
  const { params, query, body = {} } = call;
  const first = await keys.claim(name, fingerprintOf({ operationId, params, query, body }));
  if (first !== undefined) {
    call.reply.code(first.status).header("x-tollgate-idempotent-replay", "true");
    return first.answer;
  }
  try {
    const answer = await handle();
    await keys.answer(name, call.reply.statusCode, withoutSecret(endpoint, answer));
    return answer;
  } catch (error) {
    // A refusal changed nothing. Any other failure may have come after the change.
    const isRefusal = error instanceof ApiError && error.status < 500;
    await (isRefusal ? keys.free(name) : keys.interrupt(name));
    throw error;
  }
}

/** Returns the scope of a key: an operator, the caller of a member's token, or a person in their organization. */
function scopeOf({ isRepeatable = true }: AdminEndpoint, { who }: AdminCall): string {
  if (!isRepeatable) refuseHeader("this operation takes none; send the request without it.");
  if (who === null) refuseHeader("sign in first; keys belong to operators or to a member.");
  const { id, token, person } = who;
  if (person !== null && person.organizationId !== null) return `${id} ${person.organizationId}`;
  return token?.callerId ?? id;
}

function refuseHeader(reason: string): never {
  const message = `Invalid header '${IDEMPOTENCY_HEADER}': ${reason}`;
  throw new ApiError("invalid_value", message, { param: IDEMPOTENCY_HEADER });
}

function withoutSecret({ answer: { secret } }: AdminEndpoint, answer: unknown): unknown {
  if (secret === undefined) return answer;
  const shown = answer as Record<string, unknown>;
  return { ...shown, [secret.field]: null, hint: secret.hint(shown) };
}
