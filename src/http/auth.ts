import type { FastifyRequest } from "fastify";
import type { Principal } from "../api/principal.ts";
import type { Scope } from "../api/scope.ts";
import { ApiError } from "../errors.ts";

/** RFC 6750, section 2.1; the scheme's name is case-insensitive (RFC 9110, section 11.1). */
const BEARER = /^bearer +([A-Za-z0-9\-._~+/]+=*) *$/i;
const CHALLENGE = 'Bearer realm="tollgate"';

/**
 * The token of a request's Authorization header. Throws missing_token, or invalid_value where credentials are sent
 * twice or in two ways (RFC 6750, section 2).
 */
export function bearerToken(request: FastifyRequest): string {
  const header = request.headers.authorization;
  const query = request.query as Record<string, unknown> | undefined;
  if (query?.access_token !== undefined || hasSeveralAuthorizations(request.raw.rawHeaders)) {
    throw new ApiError(
      "invalid_value",
      "Send one access token, once: in a single header `Authorization: Bearer <token>`.",
      { param: "Authorization" },
    );
  }
  const token = header === undefined ? undefined : BEARER.exec(header)?.[1];
  if (token !== undefined) return token;
  throw new ApiError("missing_token", undefined, { headers: { "www-authenticate": CHALLENGE } });
}

function hasSeveralAuthorizations(rawHeaders: readonly string[]): boolean {
  let seen = 0;
  for (let index = 0; index < rawHeaders.length; index += 2) {
    const name = rawHeaders[index] ?? "";
    if (name.length === 13 && name.toLowerCase() === "authorization") seen += 1;
  }
  return seen > 1;
}

/** Adds to a refused token's error how to authenticate (RFC 6750, section 3). */
export function withChallenge(error: unknown): unknown {
  if (!(error instanceof ApiError) || error.status !== 401) return error;
  const challenge = `${CHALLENGE}, error="invalid_token", error_description="${error.message}"`;
  return new ApiError(error.code, error.message, { headers: { "www-authenticate": challenge } });
}

/** Throws insufficient_scope where the token lacks the scope that an operation needs. */
export function requireScope(principal: Principal, scope: Scope): void {
  if (principal.scopes.has(scope)) return;
  const message = `The access token lacks the scope \`${scope}\` that this operation needs.`;
  const challenge = `${CHALLENGE}, error="insufficient_scope", scope="${scope}"`;
  throw new ApiError("insufficient_scope", message, { headers: { "www-authenticate": challenge } });
}
