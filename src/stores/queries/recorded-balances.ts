import type { ReportViolation } from "./verify-rows.ts";

/** A row of `statement_balance`. */
export interface RecordedBalance {
  before_at: bigint;
  balance: bigint;
}

/** Entries of a statement, added up between the times whose balance is recorded. */
export class RecordedBalances {
  readonly #rows: readonly RecordedBalance[];
  readonly #sums: bigint[];

  /** Rows in the order of their times. */
  constructor(rows: readonly RecordedBalance[]) {
    this.#rows = rows;
    this.#sums = rows.map(() => 0n);
  }

  add(atMs: number, amount: bigint): void {
    let [first, end] = [0, this.#rows.length];
    while (first < end) {
      const middle = (first + end) >> 1;
      if (Number(this.#rows[middle]?.before_at) > atMs) end = middle;
      else first = middle + 1;
    }
    const sum = this.#sums[first];
    if (sum !== undefined) this.#sums[first] = sum + amount;
  }

  /** Compares the differences between recorded balances, so that one wrong entry is reported once. */
  check(report: ReportViolation): void {
    let previous = 0n;
    for (const [index, { before_at, balance }] of this.#rows.entries()) {
      const expected = previous + (this.#sums[index] ?? 0n);
      previous = balance;
      if (balance === expected) continue;
      report(
        3,
        `The statement's balance recorded for ${before_at} is ${balance}, but its entries add up to ${expected}.`,
      );
    }
  }
}
