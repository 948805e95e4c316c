import type { UsageReport } from "../api/usage.ts";
import { creditsFromMicro, type MicroCredits, parseCredits } from "../credits/amount.ts";
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

/** An amount of credits as a caller states it; undefined where it is finer or larger than the books take. */
export function microCreditsOf(credits: number): MicroCredits | undefined {
  return parseCredits(String(credits));
}
