import type { ModelRoute } from "../api/admin/model.ts";
import { isoTime } from "../api/time.ts";
import { type CatalogModel, upstreamOf } from "../catalog/model.ts";
import { pricesByClass } from "../credits/api-format.ts";
import type { RouteHealth } from "./circuit.ts";

/** The routes of a model with their prices, and how they fare where that is known. */
export function reportRoutes({ routes }: CatalogModel, known: readonly RouteHealth[]): ModelRoute[] {
  return routes.map((route) => {
    const health = known.find((one) => one.provider === route.providerId && one.model === route.model);
    return {
      route: upstreamOf(route),
      weight: route.weight ?? null,
      prices: pricesByClass(route.prices),
      health: health === undefined ? null : toHealth(health),
    };
  });
}

function toHealth(health: RouteHealth): ModelRoute["health"] {
  const { state, lastFailure, recent, firstByteMs } = health;
  return {
    state,
    next_probe_at: isoTime(health.nextProbeAtMs),
    limited_until: isoTime(health.limitedUntilMs),
    last_failure: lastFailure && { failure: lastFailure.failure, at: isoTime(lastFailure.atMs) },
    last_success_at: isoTime(health.lastSuccessAtMs),
    recent,
    first_byte_ms: firstByteMs,
  };
}
