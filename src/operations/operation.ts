import type { Static, TSchema } from "typebox";
import type { AuditLog } from "../admin/audit.ts";
import type { PageRequest } from "../admin/directory.ts";
import type { Identities } from "../admin/identities.ts";
import type { OpenIdSignIn } from "../admin/openid-sign-in.ts";
import type { Administrator, Origin, Sessions } from "../admin/sessions.ts";
import type { ShortTokens } from "../admin/short-tokens.ts";
import type { Limits } from "../api/admin/common.ts";
import type { Permission } from "../api/admin/roles.ts";
import type * as schemas from "../api/admin/schemas.ts";
import type { ServiceFacts } from "../api/admin/session.ts";
import { inCamelCase } from "../api/names.ts";
import type { LimitSettings } from "../api/principal.ts";
import { parseTime } from "../api/time.ts";
import { parseCredits } from "../credits/amount.ts";
import { ApiError } from "../errors.ts";
import type { Gateway } from "../gateway/gateway.ts";
import type { ResponseItems } from "../ledger/response-items.ts";
import type { Overviews } from "../reports/overview.ts";
import type { Conversations, Requests } from "../reports/requests.ts";
import type { Statements } from "../reports/statement.ts";
import { type CommandCall, type CommandMaker, commandMaker, type OperationCommand } from "./command.ts";
import { type Core, notFound } from "./core.ts";

export interface OperationServices extends Core {
  gateway: Pick<Gateway, "catalog" | "circuits" | "limits">;
  sessions: Sessions;
  openIdSignIn: OpenIdSignIn;
  identities: Pick<Identities, "administratorOf" | "tokenOf">;
  audit: AuditLog;
  requests: Requests;
  conversations: Conversations;
  responseItems: ResponseItems;
  overviews: Overviews;
  statements: Statements;
  shortTokens: ShortTokens;
  /** Applies resumed routes that the audit log has. */
  resumptions: { apply(): Promise<void> };
  facts: ServiceFacts;
}

/** One request, after the checks of its caller and its input. */
export interface OperationCall<Query = unknown, Body = unknown> {
  /** Null for a guest, and for a command. */
  who: Administrator | null;
  /** Returns whether the caller's role has a further permission, which decides what the answer shows. */
  may(permission: Permission): boolean;
  params: { id: string; allowance_id?: string; budget_id?: string };
  query: Query;
  page: PageRequest;
  body: Body;
  connection: CallConnection;
}

export interface CallConnection {
  origin: Origin;
  /** Address of the service as the client knows it, without a trailing slash. */
  publicUrl: string;
  /** Secret of a cookie: of the session, or of a sign-in that has begun. */
  secretOf(cookie: "session" | "signIn"): string | undefined;
  /** Sets a cookie; without a secret it is cleared. */
  setCookie(cookie: "session" | "signIn", secret?: string, lifeMs?: number): void;
  /** Counts a failed sign-in of this address. Rejects with rate_limit_exceeded. */
  countFailedSignIn(): Promise<void>;
  /** Streams a text as the answer, and resolves when it has been sent. */
  stream(headers: Record<string, string>, text: Iterable<string> | AsyncIterable<string>): Promise<unknown>;
}

/** Makes a schema from those of the admin API. It is a function, because commands load no schemas. */
type SchemaMaker<Schema> = (schemas: Schemas) => Schema;
type Schemas = typeof schemas;

/** An operation of the admin API. Its route, its documentation and its commands derive from this declaration. */
export interface Operation {
  /** Method, and path under `/admin/v1` in Fastify's notation. */
  route: `${"GET" | "POST" | "PATCH" | "DELETE"} /${string}`;
  /** The permission that the caller's role must have. A role of an organization has it there only. */
  permission: Permission;
  summary: string;
  query?: SchemaMaker<TSchema>;
  body?: SchemaMaker<TSchema>;
  answer: {
    /** 201 becomes 200 where the answer has `repeated`: an earlier request made the change. */
    status: 200 | 201 | 204;
    description: string;
    schema?: SchemaMaker<TSchema>;
    contentType?: string;
    /** The field that contains a secret once. A replay under an Idempotency-Key has null in its place, and a hint. */
    secret?: { field: string; hint(answer: Record<string, unknown>): string };
  };
  /** False for a POST that sets a cookie, which a replay could not set again. It takes no Idempotency-Key. Default true. */
  isRepeatable?: boolean;
  /** Maximum requests per minute of an organization's members; such an operation bypasses the fair queue of the others. */
  requestsAMinute?: number;
  /** Runs before the body is read, and throws where a guest has made too many attempts. */
  countGuest?(services: Pick<OperationServices, "gateway" | "facts">, clientKey: string): Promise<void>;
  handle(services: OperationServices, call: OperationCall): Promise<unknown>;
  commands?: readonly OperationCommand[];
}

type InputOf<Schema extends TSchema | undefined> = Schema extends TSchema ? Static<Schema> : undefined;

/** Declares an operation; its schemas are the types of its handler's input. */
export function operation<Query extends TSchema | undefined = undefined, Body extends TSchema | undefined = undefined>(
  declaration: Omit<Operation, "handle" | "query" | "body"> & {
    query?: SchemaMaker<Query>;
    body?: SchemaMaker<Body>;
    handle(services: OperationServices, call: OperationCall<InputOf<Query>, InputOf<Body>>): Promise<unknown>;
  },
): Operation {
  return declaration as Operation;
}

/** Declares an operation that commands call too: it uses only the services that both have, and no connection. */
export function sharedOperation<
  Answer,
  Query extends TSchema | undefined = undefined,
  Body extends TSchema | undefined = undefined,
>(
  declaration: Omit<Operation, "handle" | "query" | "body" | "commands"> & {
    query?: SchemaMaker<Query>;
    body?: SchemaMaker<Body>;
    handle(core: Core, call: SharedCall<InputOf<Query>, InputOf<Body>>): Promise<Answer>;
    commands(make: CommandMaker<Answer>): readonly OperationCommand[];
  },
): Operation {
  const { handle } = declaration;
  const call = (core: Core, input: CommandCall) => handle(core, { ...NO_INPUT, ...input } as never);
  return { ...declaration, commands: declaration.commands(commandMaker(declaration, call)) } as Operation;
}

type SharedCall<Query, Body> = Pick<OperationCall<Query, Body>, "who" | "params" | "query" | "page" | "body">;
const NO_INPUT = { who: null, params: {}, query: {}, body: {} };

/** Throws not_found where the caller's role is limited to another organization. */
export function requireOwn(who: Administrator | null, organizationId: string): void {
  if (who === null || (who.organizationId ?? organizationId) !== organizationId) throw notFound();
}

/** Returns the organization to list: the one that the caller's role is limited to, or the one that they or a command name; null for all. */
export function organizationIn(who: Administrator | null, named: string | undefined): string | null {
  if (who !== null && named !== undefined) requireOwn(who, named);
  return who?.organizationId ?? named ?? null;
}

/** Number of exports with one key that may run at once in this process. */
const EXPORTS_AT_ONCE_MAX = 2;

/** Streams a file as the answer; it is read once its turn has come. Rejects with rate_limit_exceeded. */
export async function sendFile(
  { gateway }: Pick<OperationServices, "gateway">,
  { connection }: Pick<OperationCall, "connection">,
  key: string,
  read: () => Promise<{ name: string; text: Iterable<string> | AsyncIterable<string> }>,
): Promise<unknown> {
  const leave = gateway.limits.enterExport({ key, limit: EXPORTS_AT_ONCE_MAX });
  try {
    const { name, text } = await read();
    const type = name.endsWith(".csv") ? "text/csv" : "application/jsonl";
    const headers = {
      "content-type": `${type}; charset=utf-8`,
      "content-disposition": `attachment; filename="${name}"`,
    };
    return await connection.stream(headers, text);
  } finally {
    leave();
  }
}

/** Converts the limits of a body to settings; null if it states none. */
export function limitSettingsOf(limits: Limits | null | undefined): Partial<LimitSettings> | null {
  return limits && Object.keys(limits).length > 0 ? inCamelCase(limits) : null;
}

/** Converts an amount of a body to micro-credits. Throws invalid_value for more than 6 decimals. */
export function amountOf(param: string, credits: number): bigint {
  const amount = parseCredits(String(credits));
  if (amount !== undefined) return amount;
  throw new ApiError("invalid_value", `Invalid '${param}': at most 6 decimals are allowed.`, { param });
}

/** Converts a time of a body to milliseconds since 1970; null where there is none. Throws invalid_value. */
export function timeOf(param: string, text: string | null | undefined): number | null {
  if (text === null || text === undefined) return null;
  const timeMs = parseTime(text);
  if (timeMs !== undefined) return timeMs;
  throw new ApiError("invalid_value", `Invalid '${param}': there is no such time.`, { param });
}

/** Converts the times of a filter. Throws invalid_value for one that ends before it begins. */
export function timesOf({ from, to }: { from?: string | undefined; to?: string | undefined }) {
  const [fromMs, toMs] = [timeOf("from", from), timeOf("to", to)];
  if (fromMs === null || toMs === null || fromMs <= toMs) return { fromMs, toMs };
  throw new ApiError("invalid_value", "Invalid 'from': expected a time at or before 'to'.", { param: "from" });
}

/** Converts a time of a body that has to be in the future. Throws invalid_value for another one. */
export function futureTimeOf({ clock }: Pick<Core, "clock">, param: string, text: string | null | undefined) {
  const timeMs = timeOf(param, text);
  if (timeMs === null || timeMs > clock()) return timeMs;
  throw new ApiError("invalid_value", `Invalid '${param}': expected a time in the future.`, { param });
}
