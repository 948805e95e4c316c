import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach } from "vitest";
import type { Ledger } from "../../src/ledger/ledger.ts";
import { GatedBooks } from "./gated-books.ts";
import { keepLog } from "./log.ts";
import { keyOf } from "./memory-books.ts";
import { factsOf, grantTo, HOLD_LIFE_MS, type LedgerSetup, ORGANIZATION, openLedger } from "./open-ledger.ts";

/** Books in memory and a ledger over them with 100 micro-credits, new for each test of a file. */
export class LedgerFixture {
  books = new GatedBooks();
  log = keepLog();
  clockMs = 0;
  dataDir = "";
  #ledger: Ledger | undefined;

  get ledger(): Ledger {
    if (this.#ledger === undefined) throw new Error("no ledger is open");
    return this.#ledger;
  }

  /** Replaces the ledger by one with other options. */
  async reopen(options: Partial<LedgerSetup>): Promise<void> {
    await this.#ledger?.stop();
    this.#ledger = await this.open(options);
  }

  /** Opens another ledger over the same books. */
  open(options: Partial<LedgerSetup> = {}): Promise<Ledger> {
    const { books, dataDir, log } = this;
    return openLedger({ books, dataDir, log, clock: () => this.clockMs, ...options });
  }

  async begin(): Promise<void> {
    this.dataDir = await mkdtemp(join(tmpdir(), "tollgate-ledger-"));
    this.books = new GatedBooks();
    this.books.addOrganization(ORGANIZATION);
    this.log = keepLog();
    this.clockMs = 0;
    this.#ledger = await this.open();
    await grantTo(this.#ledger, "grant_1", 100n);
  }

  async end(): Promise<void> {
    await this.#ledger?.stop();
    await rm(this.dataDir, { recursive: true });
  }

  hold(holdId: string, amount = 10n) {
    return this.ledger.hold({ callerId: "tok_1", facts: factsOf(holdId), least: amount, most: amount });
  }

  row(holdId: string) {
    return this.books.seen.get(keyOf(ORGANIZATION, holdId));
  }

  /** Books a hold of a process that died. */
  leaveHold(holdId: string, owner = "owner_0"): void {
    const terms = { least: 1n, most: 1n, lifeMs: HOLD_LIFE_MS };
    this.books.bookOne({ kind: "hold", callerId: "tok_1", facts: factsOf(holdId), ...terms, owner });
  }

  /** Counts the renewals so far. */
  renewals(): number {
    return this.books.batches.flatMap(({ transitions }) => transitions).filter(({ kind }) => kind === "renew").length;
  }
}

/** Registers the hooks that open a ledger before each test of a file and stop it afterwards. */
export function setUpLedger(): LedgerFixture {
  const fixture = new LedgerFixture();
  beforeEach(() => fixture.begin());
  afterEach(() => fixture.end());
  return fixture;
}
