import { databaseOver } from "./database.ts";
import type { StoreDriver } from "./driver.ts";
import { accountRows } from "./queries/accounts.ts";
import { adminRows } from "./queries/admin.ts";
import { allowanceRows } from "./queries/allowances.ts";
import { bookRows, paymentRows } from "./queries/books.ts";
import { budgetRows } from "./queries/budgets.ts";
import { closingRows } from "./queries/closings.ts";
import { conversationRows } from "./queries/conversations.ts";
import { directoryRows } from "./queries/directory.ts";
import { erasureRows } from "./queries/erasure.ts";
import { eventRows } from "./queries/events.ts";
import { identityRows } from "./queries/identities.ts";
import { monthDigestRows } from "./queries/month-digests.ts";
import { monthlyStatementRows } from "./queries/monthly-statements.ts";
import { refusalRows } from "./queries/refusals.ts";
import { requestSumRows } from "./queries/request-sums.ts";
import { requestRows } from "./queries/requests.ts";
import { responseItemRows } from "./queries/response-items.ts";
import { topUpRows } from "./queries/top-ups.ts";
import { usageRows } from "./queries/usage.ts";
import { voucherRows } from "./queries/vouchers.ts";

/** A store: the queries over a driver, which fail as `StoreDriver` says. `test/stores/contract.ts` tests it on every driver. */
export type Store = ReturnType<typeof storeOver>;

/** Builds a store over a driver. */
export function storeOver(driver: StoreDriver) {
  const database = databaseOver(driver);
  return {
    kind: driver.kind,
    books: bookRows(database, driver),
    accounts: accountRows(database),
    allowances: allowanceRows(database),
    budgets: budgetRows(database),
    payments: paymentRows(database),
    vouchers: voucherRows(database),
    topUps: topUpRows(database),
    admin: adminRows(database),
    identities: identityRows(database),
    directory: directoryRows(database),
    requests: { ...requestRows(database), ...requestSumRows(database) },
    refusals: refusalRows(database),
    events: eventRows(database),
    usage: usageRows(database),
    conversations: conversationRows(database),
    responseItems: responseItemRows(database),
    closings: closingRows(database),
    erasure: erasureRows(database),
    monthDigests: monthDigestRows(database),
    monthlyStatements: monthlyStatementRows(database),
    /** See `StoreDriver.runExclusively`. */
    runExclusively: <T>(work: () => Promise<T>) => driver.runExclusively(work),
    /** Resolves if the store answers and accepts writes. */
    ping: () => driver.ping(),
    pools: () => driver.pools(),
    close: () => driver.close(),
    [Symbol.asyncDispose]: () => driver.close(),
  };
}
