import type { Principal } from "../api/principal.ts";
import type { CatalogModel } from "../catalog/model.ts";
import type { Gateway } from "./gateway.ts";
import type { LimitKey, WantedLimits } from "./limits.ts";

/** Returns the limits of a token and of its organization, in this order. */
export function limitKeys(
  { limitSettings }: Pick<Gateway, "limitSettings">,
  { tokenId, organizationId, limits, organizationLimits }: Principal,
  unit: keyof Gateway["limitSettings"],
): [LimitKey, LimitKey] {
  const organizationLimit = organizationLimits?.[unit] ?? limitSettings[unit];
  return [
    { key: `token:${tokenId}`, limit: limits?.[unit] ?? organizationLimit },
    { key: `organization:${organizationId}`, limit: organizationLimit },
  ];
}

/** Returns the limit of a model, for all callers together; none if the configuration sets none. */
export function modelLimit({ id, limits }: CatalogModel, unit: keyof Gateway["limitSettings"]): LimitKey[] {
  const limit = limits?.[unit];
  return limit === undefined ? [] : [{ key: `model:${id}`, limit }];
}

/** Returns what a request takes from the limits of its caller and its model. */
export function wantedLimits(
  gateway: Gateway,
  principal: Principal,
  model: CatalogModel,
  tokens: number,
): WantedLimits {
  const own = callerLimits(gateway, principal, tokens);
  return {
    ...own,
    requests: modelLimit(model, "requestsPerMinute"),
    tokensPerMinute: [...own.tokensPerMinute, ...modelLimit(model, "tokensPerMinute")],
    concurrentRequests: [...own.concurrentRequests, ...modelLimit(model, "concurrentRequests")],
  };
}

/** Returns what a request takes from the limits of its caller, and of no model. */
export function callerLimits(gateway: Gateway, principal: Principal, tokens: number): WantedLimits {
  const dayKey = { key: `organization:${principal.organizationId}`, limit: gateway.playground.tokensPerDay };
  return {
    requests: [],
    tokens,
    tokensPerMinute: limitKeys(gateway, principal, "tokensPerMinute"),
    tokensPerDay: principal.organizationKind === "playground" ? [dayKey] : [],
    concurrentRequests: limitKeys(gateway, principal, "concurrentRequests"),
  };
}
