import type { FastifyReply, FastifyRequest } from "fastify";

/** With this prefix a browser takes the cookie from this very host alone, and over TLS (RFC 6265bis, section 4.1.3.2). */
const SECURE_NAME = "__Host-tollgate_session";
const PLAIN_NAME = "tollgate_session";
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

function cookie(request: FastifyRequest, value: string, maxAgeSeconds: number): string {
  const secure = isSecure(request) ? "; Secure" : "";
  return `${nameFor(request)}=${value}; Path=/; Max-Age=${maxAgeSeconds}; HttpOnly; SameSite=Strict${secure}`;
}

function nameFor(request: FastifyRequest): string {
  return isSecure(request) ? SECURE_NAME : PLAIN_NAME;
}

/** The service itself speaks plain HTTP; a proxy whose word is taken says when the browser speaks TLS. */
function isSecure(request: FastifyRequest): boolean {
  return request.protocol === "https";
}
