import { join } from "node:path";
import { v7 as uuid } from "uuid";
import type { HoldFacts } from "../../src/credits/facts.ts";
import { FREE } from "../../src/credits/price.ts";
import { deadLetterFileOf, deadLettersIn } from "../../src/ledger/dead-letter.ts";
import { Ledger, type LedgerOptions } from "../../src/ledger/ledger.ts";
import { Spool } from "../../src/ledger/spool.ts";
import type { Books } from "../../src/stores/queries/books.ts";
import { takeLock } from "../../src/stores/sqlite/directory.ts";
import type { Store } from "../../src/stores/store.ts";

export const ORGANIZATION = "org_1";
export const HOLD_LIFE_MS = 1_000;

export interface LedgerSetup extends Partial<Omit<LedgerOptions, "books" | "allowances">> {
  /** The ledger asks neither for statements nor for a check of the books. */
  books: Pick<Books, "apply" | "recoverableHolds" | "balance" | "dueOrganizations">;
  dataDir: string;
  log: LedgerOptions["log"];
}

/** A ledger over books of the test's own, with a spool and dead letters in a directory. */
export async function openLedger({ books, dataDir, log, ...options }: LedgerSetup): Promise<Ledger> {
  const common = { clock: options.clock ?? (() => 0), random: () => 0, log };
  const spool = await Spool.open({ directory: join(dataDir, "spool"), takeLock, name: uuid(), ...common });
  const deadLetters = deadLettersIn({ file: deadLetterFileOf(dataDir), ...common });
  const often = { holdLifeMs: HOLD_LIFE_MS, recoveryMs: 0, isShared: false, renewEveryMs: 5, sweepEveryMs: 5 };
  const now = () => ({ monotonicMs: common.clock(), wallMs: common.clock() });
  const allowances = NO_ALLOWANCES as Store["allowances"];
  const collectDebts = async () => {};
  const parts = { books: books as Books, allowances, spool, deadLetters, collectDebts };
  return new Ledger({ ...parts, ...often, ...common, now, ...options });
}

/** Allowances are tested on real stores. */
const NO_ALLOWANCES: Pick<Store["allowances"], "due" | "advance"> = {
  due: async () => ({ nowMs: 0, rows: [] }),
  advance: async () => {},
};

/** A token of input costs a micro-credit. */
export function factsOf(holdId: string): HoldFacts {
  const request = {
    tokenId: "tok_1",
    requestId: "req_1",
    model: "m",
    upstream: "p/m",
    metadata: null,
    idempotencyKey: null,
  };
  return { holdId, organizationId: ORGANIZATION, prices: { ...FREE, input: 1_000_000n }, ...request };
}

export function grantTo(ledger: Ledger, grantId: string, amount: bigint, expiresAtMs: number | null = null) {
  const rest = { effectiveAtMs: null, priority: 0, reference: null };
  return ledger.book({ kind: "grant", organizationId: ORGANIZATION, grantId, amount, expiresAtMs, ...rest });
}

/** Waits for something that timers or the disk bring about, as long as the test has time. */
export async function until(isSo: () => boolean | Promise<boolean>): Promise<void> {
  while (!(await isSo())) await new Promise((resolve) => setTimeout(resolve, 2));
}
