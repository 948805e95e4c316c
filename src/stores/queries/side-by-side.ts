import { DatabaseSync, type StatementSync } from "node:sqlite";
import { type Counts, SUMMED } from "../../credits/provider-line.ts";

/** The sums of one side under a key. Null: not stated. */
export interface SideEntry extends Counts {
  /** Begin of its bucket, or time of the request. */
  atMs: number | bigint;
  model: string;
  /** Its position, for a reader. */
  place: string;
  cost: bigint | null;
  charged: bigint | null;
}

/** `edge` has the counts of requests that may be in this bucket of time or in the next. */
export type Pair = { key: string } & Partial<Record<(typeof SIDES)[number], SideEntry & { lines: bigint }>>;

const SIDES = ["provider", "service", "edge"] as const;

/** Two lists that are joined by key, in a temporary file of SQLite, so that only a few pages of it are in memory. */
export class SideBySide {
  readonly #database = new DatabaseSync("", { readBigInts: true });
  readonly #add: StatementSync;
  readonly #has: StatementSync;

  constructor() {
    this.#database.exec(`
      pragma journal_mode = off; pragma synchronous = off; pragma cache_size = -16000;
      create table entry (key, side, atMs, model, place, lines, ${SUMMED.join(", ")}, primary key (key, side)) without rowid;
      begin`);
    this.#add = this.#database.prepare(`
      insert into entry values (?, ?, ?, ?, ?, 1, ${SUMMED.map(() => "?").join(", ")})
      on conflict do update set ${["lines", ...SUMMED].map((name) => `${name} = ${name} + excluded.${name}`).join(", ")}`);
    this.#has = this.#database.prepare("select 1 from entry where key = ? and side = 'provider'");
  }

  /** Adds an entry to those of its side under a key; the first one keeps its time, model and place. */
  add(side: (typeof SIDES)[number], key: string, entry: SideEntry): void {
    const { atMs, model, place } = entry;
    this.#add.run(key, side, atMs, model, place, ...SUMMED.map((name) => entry[name]));
  }

  /** Tests whether the provider's side has a key. */
  has(key: string): boolean {
    return this.#has.get(key) !== undefined;
  }

  /** Yields the entries of all keys, in the order of the keys. */
  *pairs(): Generator<Pair> {
    let pair: Pair | undefined;
    for (const row of this.#database.prepare("select * from entry order by key").iterate()) {
      const { key, side, ...entry } = row as unknown as Required<Pair>["provider"] & { key: string; side: "provider" };
      if (pair?.key !== key) {
        if (pair !== undefined) yield pair;
        pair = { key };
      }
      pair[side] = entry;
    }
    if (pair !== undefined) yield pair;
  }

  [Symbol.dispose](): void {
    this.#database.close();
  }
}
