import { afterAll, beforeAll, describe } from "vitest";
import { accountRaceCases } from "./account-races.ts";
import { accountCases } from "./accounts.ts";
import { adjustmentCases } from "./adjustments.ts";
import { adminCases } from "./admin.ts";
import { adminKeyCases } from "./admin-keys.ts";
import { allowanceCases } from "./allowances.ts";
import { conversationCases } from "./conversations.ts";
import { type ContractStore, Subject } from "./fixture.ts";
import { keyCases } from "./keys.ts";
import { raceCases } from "./races.ts";
import { readCases } from "./reads.ts";
import { refusalCases } from "./refusals.ts";
import { requestCases } from "./requests.ts";
import { transitionCases } from "./transitions.ts";
import { usageCases } from "./usage.ts";
import { repeatedReferenceCase, verifyCases } from "./verify.ts";

export type { ContractStore } from "./fixture.ts";

/**
 * What every store must do. `open` makes a store on a fresh database; the cases share one, each with organizations of
 * its own.
 */
export function storeContract(name: string, open: () => Promise<ContractStore>): void {
  describe(`${name} keeps the contract of stores`, () => {
    const subject = new Subject();
    beforeAll(async () => subject.start(await open()));
    afterAll(() => subject.stop());
    describe("accounts", () => accountCases(subject));
    describe("changes of accounts at the same time", () => accountRaceCases(subject));
    describe("transitions", () => transitionCases(subject));
    describe("idempotency keys", () => keyCases(subject));
    describe("adjustments, caps and checkpoints", () => adjustmentCases(subject));
    describe("operators and their records", () => adminCases(subject));
    describe("idempotency keys of administrators", () => adminKeyCases(subject));
    describe("allowances", () => allowanceCases(subject));
    describe("races", () => raceCases(subject));
    describe("reads", () => readCases(subject));
    describe("requests", () => requestCases(subject));
    describe("refusals", () => refusalCases(subject));
    describe("usage", () => usageCases(subject));
    describe("conversations", () => conversationCases(subject));
    describe("verification", () => verifyCases(subject));
    // Damages the schema, so it comes last.
    describe("verification without the index", () => repeatedReferenceCase(subject));
  });
}
