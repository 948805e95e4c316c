import type { Credits } from "../contract/admin/organization.ts";
import { creditsFromMicro } from "./amount.ts";
import type { BalanceRow } from "./books.ts";

/** A balance as the admin API shows it: amounts in credits, what has lapsed not counted. */
export function creditsOf(balance: Omit<BalanceRow, "organizationId" | "nextChangeAtMs">): Credits {
  return {
    available: creditsFromMicro(balance.available),
    held: creditsFromMicro(balance.held),
    used: creditsFromMicro(balance.spent),
    total: creditsFromMicro(balance.granted - balance.expired),
  };
}
