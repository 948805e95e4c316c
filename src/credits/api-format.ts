import type { PricesByClass, TokensByClass } from "../api/admin/common.ts";
import type { Credits } from "../api/admin/organization.ts";
import type { UsageReport } from "../api/usage.ts";
import { creditsFromMicro, type MicroCredits, parseCredits } from "./amount.ts";
import type { BalanceRow } from "./books.ts";
import { pricePerMillion, type TokenCounts, type UnitPrices } from "./price.ts";

/** Formats a balance for `GET /v1/usage`: amounts in credits; the total excludes expired credits. */
export function usageReport(balance: BalanceRow): UsageReport {
  return {
    object: "usage",
    organization_id: balance.organizationId,
    creditsAvailable: creditsFromMicro(balance.available),
    creditsTotal: creditsFromMicro(balance.granted - balance.expired),
    creditsUsed: creditsFromMicro(balance.spent),
    creditsHeld: creditsFromMicro(balance.held),
  };
}

/** Converts a requested amount of credits; undefined if it is more precise or larger than the books allow. */
export function microCreditsOf(credits: number): MicroCredits | undefined {
  return parseCredits(String(credits));
}

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
