import type { FastifyRequest } from "fastify";
import type { Principal } from "../contract/principal.ts";
import type { Scope } from "../contract/scope.ts";
import { limitKeys } from "../gateway/admit.ts";
import type { Gateway } from "../gateway/gateway.ts";
import type { LimitKey } from "../gateway/limits.ts";
import { markAuthenticated } from "./anonymous-connections.ts";
import { bearerToken, requireScope, withChallenge } from "./auth.ts";
import { clientAddressKey } from "./client-address.ts";

/** Tells whom a token stands for; answers at once where it is known, and rejects with ApiError or StoreUnavailableError. */
export interface TokenAuthenticator {
  authenticate(token: string): Principal | Promise<Principal>;
}

/** What every operation asks before it reads a body: who is calling, whether they may, and how often they did. */
export function gatekeeper(gateway: Gateway, authenticator: TokenAuthenticator, scope: Scope) {
  return async (request: FastifyRequest): Promise<void> => {
    const principal = await principalFor(authenticator, bearerToken(request));
    request.principal = principal;
    markAuthenticated(request.raw.socket);
    requireScope(principal, scope);
    const requestStanding = gateway.limits.countRequest(requestKeys(gateway, principal, request.ip));
    request.caller = { principal, requestStanding, isToldLimits: scope === "chat.completions:write" };
  };
}

async function principalFor(authenticator: TokenAuthenticator, token: string): Promise<Principal> {
  try {
    return await authenticator.authenticate(token);
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
