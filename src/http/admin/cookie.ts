import type { FastifyReply, FastifyRequest } from "fastify";

const NAME = "tollgate_session";
/**
 * With these prefixes a browser accepts the cookie over TLS only; with `__Host-` also only with the path `/` (RFC
 * 6265bis, section 4.1.3).
 */
const HOST_PREFIX = "__Host-";
const SECURE_PREFIX = "__Secure-";
const VALUE = /^[0-9A-Za-z]{43}$/;

/** The secret of the session cookie; undefined where there is none, or more than one. */
export function sessionSecret(request: FastifyRequest): string | undefined {
  const prefix = `${nameFor(request)}=`;
  const pairs = (request.headers.cookie ?? "").split(";").map((pair) => pair.trim());
  const values = pairs.filter((pair) => pair.startsWith(prefix)).map((pair) => pair.slice(prefix.length));
  const [value] = values;
  return values.length === 1 && value !== undefined && VALUE.test(value) ? value : undefined;
}

/** Gives the browser a session's secret. It is out of reach of scripts, and of requests from other sites. */
export function setSessionCookie(request: FastifyRequest, reply: FastifyReply, secret: string, lifeMs: number): void {
  reply.header("set-cookie", cookie(request, secret, Math.floor(lifeMs / 1000)));
}

export function clearSessionCookie(request: FastifyRequest, reply: FastifyReply): void {
  reply.header("set-cookie", cookie(request, "", 0));
}

/** The cookie is sent to the service's base path only: other services of the same host do not receive it. */
function cookie(request: FastifyRequest, value: string, maxAgeSeconds: number): string {
  const path = request.server.basePath || "/";
  const secure = isSecure(request) ? "; Secure" : "";
  return `${nameFor(request)}=${value}; Path=${path}; Max-Age=${maxAgeSeconds}; HttpOnly; SameSite=Strict${secure}`;
}

/** The base path is part of the name, so that services under several paths of one host do not share a cookie. */
function nameFor(request: FastifyRequest): string {
  const { basePath } = request.server;
  const name = `${NAME}${basePath.replaceAll("/", "_")}`;
  if (!isSecure(request)) return name;
  return `${basePath === "" ? HOST_PREFIX : SECURE_PREFIX}${name}`;
}

/** The service itself speaks plain HTTP; a trusted proxy says in `X-Forwarded-Proto` that the browser uses TLS. */
function isSecure(request: FastifyRequest): boolean {
  return request.protocol === "https";
}
