import type { FastifyReply, FastifyRequest } from "fastify";
import type { Static, TSchema } from "typebox";
import type { Accounts } from "../../admin/accounts.ts";
import type { Actor, AuditLog } from "../../admin/audit.ts";
import type { CreditAdjustments } from "../../admin/credit-adjustments.ts";
import type { Directory } from "../../admin/directory.ts";
import type { AdminKeys } from "../../admin/idempotency-keys.ts";
import type { Administrator, Sessions } from "../../admin/sessions.ts";
import type { ShortTokens } from "../../admin/short-tokens.ts";
import type { Origin } from "../../admin/sign-in-failures.ts";
import type { ServiceFacts } from "../../api/admin/session.ts";
import { ApiError } from "../../errors.ts";
import type { Gateway } from "../../gateway/gateway.ts";
import type { Conversations } from "../../reports/conversations.ts";
import type { Overviews } from "../../reports/overview.ts";
import type { Requests } from "../../reports/requests.ts";
import type { Statements } from "../../reports/statement.ts";

/** Services that the endpoints of `/admin/v1` call. */
export interface AdminServices {
  gateway: Pick<Gateway, "catalog" | "circuits" | "limits">;
  sessions: Sessions;
  accounts: Accounts;
  keys: AdminKeys;
  directory: Directory;
  audit: AuditLog;
  requests: Requests;
  conversations: Conversations;
  overviews: Overviews;
  creditAdjustments: CreditAdjustments;
  statements: Statements;
  shortTokens: ShortTokens;
  /** Milliseconds since 1970. */
  clock: () => number;
  facts: ServiceFacts;
}

/** Required role. Public: none. Member: members, for their own organization, and operators. */
export type Access = "public" | "member" | "operator";

/** Parameters of the path. */
interface Params {
  id: string;
  allowance_id?: string;
}

/** One request, after the checks of its caller and its input. */
export interface AdminCall<Query = unknown, Body = unknown> {
  /** Null only where the access is public. */
  who: Administrator | null;
  params: Params;
  query: Query;
  body: Body;
  request: FastifyRequest;
  reply: FastifyReply;
}

/** An operation of the admin API. The server checks the caller and documents the operation from this declaration. */
export interface AdminEndpoint {
  method: "GET" | "POST" | "PATCH" | "DELETE";
  /** Runs before the body is read, and throws where the caller has made too many attempts. */
  countAttempt?(services: AdminServices, call: { who: Administrator | null; request: FastifyRequest }): void;
  /** Path under `/admin/v1` in Fastify's notation: `/tokens/:id`. */
  path: string;
  access: Access;
  operationId: string;
  summary: string;
  query?: TSchema;
  body?: TSchema;
  response: { status: 200 | 201 | 204; description: string; schema?: TSchema; contentType?: string };
  /**
   * The field of the response that contains a secret once. A replay under an Idempotency-Key has null in its place, and a
   * hint what to do if the secret was lost.
   */
  secret?: { field: string; hint(answer: Record<string, unknown>): string };
  /** False for a POST that sets a cookie, which a replay could not set again. It takes no Idempotency-Key. Default true. */
  isRepeatable?: boolean;
  handle(services: AdminServices, call: AdminCall): Promise<unknown>;
}

type InputOf<Schema extends TSchema | undefined> = Schema extends TSchema ? Static<Schema> : undefined;

/** Declares an endpoint; its schemas are the types of its handler's input. */
export function adminEndpoint<
  Query extends TSchema | undefined = undefined,
  Body extends TSchema | undefined = undefined,
>(
  endpoint: Omit<AdminEndpoint, "handle" | "query" | "body"> & {
    query?: Query;
    body?: Body;
    handle(services: AdminServices, call: AdminCall<InputOf<Query>, InputOf<Body>>): Promise<unknown>;
  },
): AdminEndpoint {
  return endpoint as AdminEndpoint;
}

/** Returns the origin of a request, for the audit log. */
export function originOf({ ip, id }: FastifyRequest): Origin {
  return { address: ip, requestId: id };
}

/** Returns who makes a change, for the audit log. */
export function actorOf({ who, request }: Pick<AdminCall, "who" | "request">): Actor {
  if (who === null) return { kind: "anonymous", id: null, ...originOf(request) };
  const id = who.role === "operator" ? who.adminToken.id : who.token.id;
  return { kind: who.role, id, ...originOf(request) };
}

/** Returns the error for a resource that does not exist, and for one of another organization. */
export function notFound(): ApiError {
  return new ApiError("not_found", "The resource does not exist or you do not have access to it.");
}

/** Throws not_found where a member names another organization than their own. */
export function requireOwn(who: Administrator | null, organizationId: string): void {
  if (who?.role === "operator") return;
  if (who?.role !== "member" || who.token.organizationId !== organizationId) throw notFound();
}

/** Returns the organization to list: a member's own, or the one that an operator names; null for all. */
export function organizationIn(who: Administrator | null, named: string | null | undefined): string | null {
  if (named !== null && named !== undefined) requireOwn(who, named);
  if (who?.role === "member") return who.token.organizationId;
  return named ?? null;
}
