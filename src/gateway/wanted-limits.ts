import type { Principal } from "../api/principal.ts";
import type { CatalogModel } from "../catalog/model.ts";
import type { Gateway } from "./gateway.ts";
import { type LimitKey, type WantedLimits, windowUses } from "./limits.ts";

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

/** Returns what a request takes from the limits of its caller and of a model, if it names one to be called. */
export function wantedLimits(
  gateway: Gateway,
  principal: Principal,
  tokens: number,
  model?: CatalogModel,
): WantedLimits {
  const ofModel = (unit: keyof Gateway["limitSettings"]) => (model === undefined ? [] : modelLimit(model, unit));
  const dayKey = { key: `organization:${principal.organizationId}`, limit: gateway.playground.tokensPerDay };
  const tokensPerMinute = [...limitKeys(gateway, principal, "tokensPerMinute"), ...ofModel("tokensPerMinute")];
  return {
    uses: [
      ...windowUses("requests", ofModel("requestsPerMinute"), 1),
      ...windowUses("tokens", tokensPerMinute, tokens),
      ...windowUses("tokensOfDay", principal.organizationKind === "playground" ? [dayKey] : [], tokens),
    ],
    tokens,
    concurrent: [...limitKeys(gateway, principal, "concurrentRequests"), ...ofModel("concurrentRequests")],
  };
}
