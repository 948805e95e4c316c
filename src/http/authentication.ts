import type { Socket } from "node:net";
import type { FastifyRequest } from "fastify";
import { tokenHashHex } from "../admin/token.ts";
import type { Principal } from "../api/principal.ts";
import type { Scope } from "../api/scope.ts";
import { limitKeys } from "../gateway/admit.ts";
import type { Gateway } from "../gateway/gateway.ts";
import type { LimitKey } from "../gateway/limits.ts";
import { markAuthenticated } from "./anonymous-connections.ts";
import { bearerToken, requireScope, withChallenge } from "./auth.ts";
import { clientAddressKey } from "./client-address.ts";

export interface TokenAuthenticator {
  /**
   * Returns whom a token stands for, at once where that is known. Takes its SHA-256 in hexadecimal digits, undefined for a
   * text that can be no token. Throws or rejects with ApiError or StoreUnavailableError.
   */
  authenticate(hash: string | undefined): Principal | Promise<Principal>;
}

/** The token of a connection's last authenticated request, and its hash: most clients send the same one each time. */
const LAST_TOKEN = Symbol("last token of a connection");
interface HashedToken {
  token: string;
  hash: string | undefined;
}
type TokenSocket = Socket & { [LAST_TOKEN]?: HashedToken };

/** What every operation asks before it reads a body: who is calling, whether they may, and how often they did. */
export function gatekeeper(gateway: Gateway, authenticator: TokenAuthenticator, scope: Scope) {
  return async (request: FastifyRequest): Promise<void> => {
    const socket: TokenSocket = request.raw.socket;
    const token = hashedToken(socket, bearerToken(request));
    const principal = await principalFor(authenticator, token.hash);
    request.principal = principal;
    socket[LAST_TOKEN] = token;
    markAuthenticated(socket);
    requireScope(principal, scope);
    const requestStanding = gateway.limits.countRequest(requestKeys(gateway, principal, request.ip));
    request.caller = { principal, requestStanding, isToldLimits: scope === "chat.completions:write" };
  };
}

function hashedToken({ [LAST_TOKEN]: last }: TokenSocket, token: string): HashedToken {
  return last?.token === token ? last : { token, hash: tokenHashHex(token) };
}

async function principalFor(authenticator: TokenAuthenticator, hash: string | undefined): Promise<Principal> {
  try {
    return await authenticator.authenticate(hash);
  } catch (error) {
    throw withChallenge(error);
  }
}

/** A guest of the playground shares its token with all others, so there the address is counted too. */
function requestKeys(gateway: Gateway, principal: Principal, address: string): LimitKey[] {
  const keys = limitKeys(gateway, principal, "requestsPerMinute");
  if (principal.organizationKind !== "playground") return keys;
  return [{ key: `address:${clientAddressKey(address)}`, limit: gateway.playground.requestsPerMinute }, ...keys];
}
