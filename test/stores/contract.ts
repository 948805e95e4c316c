import { afterAll, beforeAll, describe } from "vitest";
import { accountRaceCases } from "./account-races.ts";
import { accountCases } from "./accounts.ts";
import { adjustmentCases } from "./adjustments.ts";
import { adminCases } from "./admin.ts";
import { adminKeyCases } from "./admin-keys.ts";
import { allowanceCases } from "./allowances.ts";
import { closingSumCases } from "./closing-sums.ts";
import { closingCases } from "./closings.ts";
import { conversationCases } from "./conversations.ts";
import { eventCases } from "./events.ts";
import { type ContractStore, Subject } from "./fixture.ts";
import { flipCases } from "./flips.ts";
import { keyCases } from "./keys.ts";
import { monthDigestCases } from "./month-digests.ts";
import { monthlyStatementCases } from "./monthly-statements.ts";
import { paymentCases } from "./payments.ts";
import { raceCases } from "./races.ts";
import { readCases } from "./reads.ts";
import { refusalCases } from "./refusals.ts";
import { requestSumCases } from "./request-sums.ts";
import { requestCases } from "./requests.ts";
import { responseItemCases } from "./response-items.ts";
import { tokenChangeCases } from "./token-changes.ts";
import { transitionCases } from "./transitions.ts";
import { usageCases } from "./usage.ts";
import { repeatedReferenceCase, verifyCases } from "./verify.ts";
import { voucherCases } from "./vouchers.ts";

export type { ContractStore } from "./fixture.ts";

/**
 * The tests that every store passes. `open` opens a store on a new database, which the cases share, each with its own
 * organizations.
 */
export function storeContract(name: string, open: () => Promise<ContractStore>): void {
  describe(`${name} fulfils the contract of stores`, () => {
    const subject = new Subject();
    beforeAll(async () => subject.start(await open()));
    afterAll(() => subject.stop());
    describe("accounts", () => accountCases(subject));
    describe("concurrent changes of accounts", () => accountRaceCases(subject));
    describe("changes of tokens", () => tokenChangeCases(subject));
    describe("transitions", () => transitionCases(subject));
    describe("idempotency keys", () => keyCases(subject));
    describe("adjustments, caps and checkpoints", () => adjustmentCases(subject));
    describe("operators and audit records", () => adminCases(subject));
    describe("idempotency keys of administrators", () => adminKeyCases(subject));
    describe("allowances", () => allowanceCases(subject));
    describe("payments", () => paymentCases(subject));
    describe("vouchers", () => voucherCases(subject));
    describe("races", () => raceCases(subject));
    describe("reads", () => readCases(subject));
    describe("requests", () => requestCases(subject));
    describe("sums of requests", () => requestSumCases(subject));
    describe("refusals", () => refusalCases(subject));
    describe("events", () => eventCases(subject));
    describe("usage", () => usageCases(subject));
    describe("kept conversations", () => conversationCases(subject));
    describe("items of responses", () => responseItemCases(subject));
    describe("closings", () => closingCases(subject));
    describe("sums of closings", () => closingSumCases(subject));
    describe("digests of months", () => monthDigestCases(subject));
    describe("monthly statements", () => monthlyStatementCases(subject));
    describe("verification", () => verifyCases(subject));
    // Last, because it damages the schema.
    describe("verification without the index", () => repeatedReferenceCase(subject));
  });
  describe(`verification of changes in ${name}`, () => {
    const subject = new Subject();
    beforeAll(async () => subject.start(await open()));
    afterAll(() => subject.stop());
    flipCases(subject);
  });
}
