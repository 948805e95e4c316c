import type { RequestSum, UsageCounts, UsageDayRow } from "../stores/queries/usage.ts";

/** Stands for all organizations together. */
export const ALL_ORGANIZATIONS = "*";

export const NO_USAGE: UsageCounts = { requests: 0, errors: 0, charged: 0n, inputTokens: 0, outputTokens: 0 };

/** Sums over the requests of a day, in the rows that are kept of it. */
export class UsageTally {
  readonly #day: number;
  readonly #rows = new Map<string, UsageDayRow>();

  constructor(day: number) {
    this.#day = day;
  }

  add(sums: readonly RequestSum[]): void {
    for (const sum of sums) {
      const { organizationId, tokenId, model, bucket } = sum;
      for (const owner of [organizationId, ALL_ORGANIZATIONS]) {
        this.#addTo(owner, "model", model, sum);
        this.#addTo(owner, "token", tokenId, sum);
        if (bucket !== null) this.#addTo(owner, "first_token", String(bucket), sum);
      }
      this.#addTo(ALL_ORGANIZATIONS, "organization", organizationId, sum);
    }
  }

  /** Returns the ids of the organizations that made requests. */
  organizations(): string[] {
    return this.rows().flatMap(({ dimension, name }) => (dimension === "organization" ? [name] : []));
  }

  rows(): UsageDayRow[] {
    return [...this.#rows.values()];
  }

  #addTo(organizationId: string, dimension: UsageDayRow["dimension"], name: string, sum: UsageCounts): void {
    const key = `${organizationId} ${dimension} ${name}`;
    const row = this.#rows.get(key);
    if (row === undefined) this.#rows.set(key, { organizationId, dimension, day: this.#day, name, ...countsOf(sum) });
    else addCounts(row, sum);
  }
}

/** Adds counts to others, in place. */
export function addCounts(into: UsageCounts, more: UsageCounts): void {
  into.requests += more.requests;
  into.errors += more.errors;
  into.charged += more.charged;
  into.inputTokens += more.inputTokens;
  into.outputTokens += more.outputTokens;
}

export function countsOf({ requests, errors, charged, inputTokens, outputTokens }: UsageCounts): UsageCounts {
  return { requests, errors, charged, inputTokens, outputTokens };
}

/** The sums of rows that share a key. */
export function sumBy<Row extends UsageCounts, Key>(
  rows: Iterable<Row>,
  keyOf: (row: Row) => Key,
): Map<Key, UsageCounts> {
  const sums = new Map<Key, UsageCounts>();
  for (const row of rows) {
    const key = keyOf(row);
    const sum = sums.get(key);
    if (sum === undefined) sums.set(key, countsOf(row));
    else addCounts(sum, row);
  }
  return sums;
}
