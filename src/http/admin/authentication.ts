import type { FastifyReply, FastifyRequest } from "fastify";
import { isJwt } from "../../admin/jwt.ts";
import { type Permission, permits } from "../../api/admin/roles.ts";
import { ApiError } from "../../errors.ts";
import type { Gateway } from "../../gateway/gateway.ts";
import type { RateLimiter } from "../../gateway/limits.ts";
import type { OperationServices } from "../../operations/operation.ts";
import { bearerToken, withChallenge } from "../authentication.ts";
import { clientAddressKey } from "../connection.ts";

/** A page of another site cannot send this header: that takes a CORS preflight, which `/admin/v1` does not answer. */
const CONSOLE_HEADER = "x-tollgate-console";
const SAFE_METHODS = new Set(["GET", "HEAD"]);
const FAILED_SIGN_INS_PER_MINUTE_MAX = 10;

const COOKIE_NAMES = { session: "tollgate_session", signIn: "tollgate_sign_in" } as const;
export type CookieKind = keyof typeof COOKIE_NAMES;
/** With these prefixes a browser accepts the cookie over TLS only, with `__Host-` only for the path `/` (RFC 6265bis, 4.1.3). */
const HOST_PREFIX = "__Host-";
const SECURE_PREFIX = "__Secure-";
const COOKIE_VALUE = /^[0-9A-Za-z]{43}$/;

type Services = Pick<OperationServices, "sessions" | "identities"> & { gateway: Pick<Gateway, "limits"> };

/** Authenticates the caller by token or cookie; null for a guest. Rejects if the role lacks the permission. */
export async function administratorOf(services: Services, request: FastifyRequest, permission: Permission) {
  const who = await callerOf(services, request);
  if (permits(who?.role ?? null, permission)) return who;
  if (who === null) throw new ApiError("missing_token", "Sign in first: there is no session, or it has ended.");
  const message = `This operation requires the permission \`${permission}\`, which the role \`${who.role}\` does not have.`;
  throw new ApiError("insufficient_role", message);
}

async function callerOf(services: Services, request: FastifyRequest) {
  const { sessions } = services;
  if (request.headers.authorization !== undefined) return callerOfToken(services, request, bearerToken(request));
  refuseOtherSites(request);
  const secret = cookieSecret(request, "session");
  return secret === undefined ? null : ((await sessions.find(secret)) ?? null);
}

async function callerOfToken({ sessions, identities, gateway }: Services, request: FastifyRequest, token: string) {
  let error = new ApiError("invalid_token", "The token is not valid: send that of an operator or an auditor.");
  let known: Parameters<typeof sessions.recordRefused>[2];
  try {
    if (isJwt(token)) return await identities.administratorOf(token);
    const { holder, refusal } = await sessions.operatorOf(token);
    if (refusal === null) return { ...holder, session: null };
    known = { holder, refusal };
  } catch (thrown) {
    if (!(thrown instanceof ApiError) || thrown.status !== 401) throw thrown;
    error = thrown;
  }
  await countFailedSignIn(gateway.limits, request);
  await sessions.recordRefused(token, { address: request.ip, requestId: request.id }, known);
  throw withChallenge(error);
}

/** Counts a failed sign-in; rejects with rate_limit_exceeded after too many from one address (of IPv6: one /64). */
export async function countFailedSignIn(limits: RateLimiter, { ip }: FastifyRequest): Promise<void> {
  await limits.countRequest([{ key: `sign-in:${clientAddressKey(ip)}`, limit: FAILED_SIGN_INS_PER_MINUTE_MAX }]);
}

/**
 * Refuses requests with a cookie from other pages than the console's, also for browsers that ignore SameSite (OWASP: CSRF
 * Prevention, "Custom Request Headers" and "Fetch Metadata").
 */
function refuseOtherSites(request: FastifyRequest): void {
  const { origin } = request.headers;
  const site = request.headers["sec-fetch-site"];
  const isSafe = SAFE_METHODS.has(request.method);
  const isOwnSite = site === undefined || site === "same-origin" || (isSafe && site === "none");
  const isOwnOrigin = origin === undefined || URL.parse(origin)?.host === request.host.toLowerCase();
  const isMarked = isSafe || request.headers[CONSOLE_HEADER] === "1";
  if (isOwnSite && isOwnOrigin && isMarked) return;
  const message = `The request did not come from the console's own pages. Programs send the header Authorization with their token, or the cookie with the header \`${CONSOLE_HEADER}: 1\`.`;
  throw new ApiError("csrf_check_failed", message);
}

/** Returns the secret of a cookie; undefined if there is none or more than one. */
export function cookieSecret(request: FastifyRequest, kind: CookieKind): string | undefined {
  const prefix = `${nameFor(request, kind)}=`;
  const pairs = (request.headers.cookie ?? "").split(";").map((pair) => pair.trim());
  const values = pairs.filter((pair) => pair.startsWith(prefix)).map((pair) => pair.slice(prefix.length));
  const [value] = values;
  return values.length === 1 && value !== undefined && COOKIE_VALUE.test(value) ? value : undefined;
}

/** Sets a cookie, which neither scripts, nor other sites, nor other services below the same host can use. A life of 0 clears it. */
export function setCookie(reply: FastifyReply, kind: CookieKind, secret: string, lifeMs: number): void {
  const { request } = reply;
  const path = request.server.basePath || "/";
  const terms = `Path=${path}; Max-Age=${Math.floor(lifeMs / 1000)}; HttpOnly; SameSite=Strict`;
  reply.header("set-cookie", `${nameFor(request, kind)}=${secret}; ${terms}${isSecure(request) ? "; Secure" : ""}`);
}

/** The base path is part of the name, so that services under several paths of one host do not share a cookie. */
function nameFor(request: FastifyRequest, kind: CookieKind): string {
  const { basePath } = request.server;
  const name = `${COOKIE_NAMES[kind]}${basePath.replaceAll("/", "_")}`;
  if (!isSecure(request)) return name;
  return `${basePath === "" ? HOST_PREFIX : SECURE_PREFIX}${name}`;
}

/** The service itself speaks plain HTTP; a trusted proxy states in `X-Forwarded-Proto` that the browser uses TLS. */
function isSecure(request: FastifyRequest): boolean {
  return request.protocol === "https";
}
