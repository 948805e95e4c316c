import type { STATEMENT_BALANCE } from "../schema.ts";
import type { RowOf } from "../table.ts";
import type { ReportViolation } from "./verify-report.ts";

export type RecordedBalance = RowOf<typeof STATEMENT_BALANCE>;

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
      if ((this.#rows[middle]?.beforeAtMs ?? 0) > atMs) end = middle;
      else first = middle + 1;
    }
    const sum = this.#sums[first];
    if (sum !== undefined) this.#sums[first] = sum + amount;
  }

  /** Compares the differences between recorded balances, so that one wrong entry is reported once. */
  check(report: ReportViolation): void {
    let previous = 0n;
    for (const [index, { beforeAtMs, balance }] of this.#rows.entries()) {
      const expected = previous + (this.#sums[index] ?? 0n);
      previous = balance;
      if (balance === expected) continue;
      report(
        3,
        `The statement's balance recorded for ${beforeAtMs} is ${balance}, but its entries add up to ${expected}.`,
      );
    }
  }
}
