import type { LimitSettings, Principal } from "../api/principal.ts";
import type { CatalogModel } from "../catalog/model.ts";
import type { Gateway } from "./gateway.ts";
import { type LimitKey, type WantedLimits, windowUses } from "./limits.ts";

type LimitUnit = keyof LimitSettings;
type CallerLimits = Record<LimitUnit, readonly [LimitKey, LimitKey]>;

/** The limits of principals under the settings of their last request. The authenticator keeps a principal for many requests. */
const knownLimits = new WeakMap<Principal, { settings: LimitSettings; limits: CallerLimits }>();

/** Returns the limits of a token and of its organization, in this order. */
export function limitKeys(
  { limitSettings: settings }: Pick<Gateway, "limitSettings">,
  principal: Principal,
  unit: LimitUnit,
): CallerLimits[LimitUnit] {
  let known = knownLimits.get(principal);
  if (known?.settings !== settings) {
    known = { settings, limits: limitsOf(principal, settings) };
    knownLimits.set(principal, known);
  }
  return known.limits[unit];
}

function limitsOf(
  { tokenId, organizationId, limits, organizationLimits }: Principal,
  settings: LimitSettings,
): CallerLimits {
  const keysOf = (unit: LimitUnit): CallerLimits[LimitUnit] => {
    const organizationLimit = organizationLimits?.[unit] ?? settings[unit];
    return [
      { key: `token:${tokenId}`, limit: limits?.[unit] ?? organizationLimit },
      { key: `organization:${organizationId}`, limit: organizationLimit },
    ];
  };
  return {
    requestsPerMinute: keysOf("requestsPerMinute"),
    tokensPerMinute: keysOf("tokensPerMinute"),
    concurrentRequests: keysOf("concurrentRequests"),
  };
}

const NONE: readonly LimitKey[] = [];

/** Returns the limit of a model, for all callers together; none if the configuration sets none. */
export function modelLimit({ id, limits }: CatalogModel, unit: LimitUnit): readonly LimitKey[] {
  const limit = limits?.[unit];
  return limit === undefined ? NONE : [{ key: `model:${id}`, limit }];
}

/** Returns what a request takes from the limits of its caller and of a model, if it names one to be called. */
export function wantedLimits(
  gateway: Gateway,
  principal: Principal,
  tokens: number,
  model?: CatalogModel,
): WantedLimits {
  const ofModel = (unit: LimitUnit) => (model === undefined ? NONE : modelLimit(model, unit));
  const uses = windowUses("requests", ofModel("requestsPerMinute"), 1);
  const add = (kind: "tokens" | "tokensOfDay", { key, limit }: LimitKey) => {
    uses.push({ kind, key, limit, amount: tokens });
  };
  for (const one of limitKeys(gateway, principal, "tokensPerMinute")) add("tokens", one);
  for (const one of ofModel("tokensPerMinute")) add("tokens", one);
  if (principal.organizationKind === "playground") {
    add("tokensOfDay", { key: `organization:${principal.organizationId}`, limit: gateway.playground.tokensPerDay });
  }
  const concurrent = limitKeys(gateway, principal, "concurrentRequests");
  const further = ofModel("concurrentRequests");
  return { uses, tokens, concurrent: further.length === 0 ? concurrent : [...concurrent, ...further] };
}
