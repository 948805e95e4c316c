import type { PricesByClass, TokensByClass } from "../api/admin/common.ts";
import type { Credits } from "../api/admin/organization.ts";
import { creditsFromMicro } from "./amount.ts";
import type { BalanceRow } from "./books.ts";
import { pricePerMillion, type TokenCounts, type UnitPrices } from "./price.ts";

/** Formats a balance for the admin API: amounts in credits; the total excludes expired credits. */
export function creditsOf(balance: Omit<BalanceRow, "organizationId" | "nextChangeAtMs">): Credits {
  return {
    available: creditsFromMicro(balance.available),
    held: creditsFromMicro(balance.held),
    used: creditsFromMicro(balance.spent),
    total: creditsFromMicro(balance.granted - balance.expired),
  };
}

/** Formats token counts for the admin API. */
export function tokensByClass({ input, cachedInput, cacheWrite, output, reasoning }: TokenCounts): TokensByClass {
  return { input, cached_input: cachedInput, cache_write: cacheWrite, output, reasoning };
}

/** Formats prices for the admin API, in credits per million tokens. */
export function pricesByClass({ input, cachedInput, cacheWrite, output, reasoning }: UnitPrices): PricesByClass {
  return {
    input: pricePerMillion(input),
    cached_input: pricePerMillion(cachedInput),
    cache_write: pricePerMillion(cacheWrite),
    output: pricePerMillion(output),
    reasoning: pricePerMillion(reasoning),
  };
}
