import type { UsageReport } from "../contract/usage.ts";
import { creditsFromMicro } from "../credits/amount.ts";
import type { BalanceRow } from "../credits/books.ts";

/** An organization's balance as `GET /v1/usage` tells it: amounts in credits, what has lapsed not counted. */
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
