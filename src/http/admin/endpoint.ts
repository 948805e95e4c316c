import type { FastifyReply, FastifyRequest } from "fastify";
import type { Static, TSchema } from "typebox";
import { type Accounts, InvalidValueError } from "../../admin/accounts.ts";
import type { Actor, AuditLog } from "../../admin/audit.ts";
import type { CreditAdjustments } from "../../admin/credit-adjustments.ts";
import type { Directory, Page } from "../../admin/directory.ts";
import type { AdminKeys } from "../../admin/idempotency-keys.ts";
import type { Administrator, Origin, Sessions } from "../../admin/sessions.ts";
import type { ShortTokens } from "../../admin/short-tokens.ts";
import type { Limits } from "../../api/admin/common.ts";
import type { ServiceFacts } from "../../api/admin/session.ts";
import type { LimitSettings } from "../../api/principal.ts";
import { parseTime } from "../../api/time.ts";
import { microCreditsOf } from "../../credits/amount.ts";
import { ApiError } from "../../errors.ts";
import type { Gateway } from "../../gateway/gateway.ts";
import type { Overviews } from "../../reports/overview.ts";
import type { Conversations, Requests } from "../../reports/requests.ts";
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
  /** Applies resumed routes that the audit log has. */
  resumptions: { apply(): Promise<void> };
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
  countAttempt?(services: AdminServices, call: { who: Administrator | null; request: FastifyRequest }): Promise<void>;
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

/** Throws ApiError if there is no such organization. */
export async function requireOrganization({ directory }: AdminServices, id: string): Promise<void> {
  if ((await directory.organization(id)) === undefined) throw notFound();
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

/** Converts a page of a list to its answer. */
export function listOf<Entry>({ data, nextCursor }: Page<Entry>) {
  return { object: "list" as const, data, next_cursor: nextCursor };
}

/** Returns the page that a query asks for. */
export function pageOf({ cursor, limit }: { cursor?: string | undefined; limit?: number | undefined }) {
  return { cursor: cursor ?? null, limit: limit ?? 50 };
}

/** Converts the limits of a body to settings. */
export function limitSettingsOf(limits: Limits | null | undefined): Partial<LimitSettings> | null {
  if (limits === null || limits === undefined) return null;
  const { requests_per_minute, tokens_per_minute, concurrent_requests } = limits;
  return {
    ...(requests_per_minute !== undefined && { requestsPerMinute: requests_per_minute }),
    ...(tokens_per_minute !== undefined && { tokensPerMinute: tokens_per_minute }),
    ...(concurrent_requests !== undefined && { concurrentRequests: concurrent_requests }),
  };
}

/** Converts an amount of a body to micro-credits; null where there is none. Throws invalid_value for more than 6 decimals. */
export function amountOf(param: string, credits: number): bigint;
export function amountOf(param: string, credits: number | null | undefined): bigint | null;
export function amountOf(param: string, credits: number | null | undefined): bigint | null {
  if (credits === null || credits === undefined) return null;
  const amount = microCreditsOf(credits);
  if (amount !== undefined) return amount;
  throw new ApiError("invalid_value", `Invalid '${param}': at most 6 decimals are allowed.`, { param });
}

/** Converts a time of a body to milliseconds since 1970; null where there is none. Throws invalid_value. */
export function timeOf(param: string, text: string | null | undefined): number | null {
  if (text === null || text === undefined) return null;
  const timeMs = parseTime(text);
  if (timeMs === undefined)
    throw new ApiError("invalid_value", `Invalid '${param}': there is no such time.`, { param });
  return timeMs;
}

/** Awaits a use case. Throws invalid_value where it refuses a value or a cursor. */
export async function withApiErrors<T>(useCase: Promise<T>): Promise<T> {
  try {
    return await useCase;
  } catch (error) {
    if (!(error instanceof InvalidValueError)) throw error;
    throw new ApiError("invalid_value", error.message, { param: error.param });
  }
}
