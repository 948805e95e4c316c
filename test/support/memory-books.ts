import { isDeepStrictEqual } from "node:util";
import type {
  BalanceRow,
  BookRows,
  BookWrites,
  GrantRow,
  HoldRow,
  Outcomes,
  Transition,
  UsageEventRow,
} from "../../src/credits/books.ts";
import { decide } from "../../src/credits/decide.ts";
import type { Books, HoldReference, Lane, OutcomesOf } from "../../src/stores/store.ts";

/**
 * Books in memory, with the real decision between reading and writing. Like a store it hands `decide` only the rows
 * that a batch concerns; unlike one it refuses rows that are written without need.
 */
export class MemoryBooks implements Pick<Books, "apply" | "overdueHolds" | "balance"> {
  readonly balances = new Map<string, BalanceRow>();
  readonly grants = new Map<string, GrantRow>();
  readonly holds = new Map<string, HoldRow>();
  readonly events = new Map<string, UsageEventRow>();
  nowMs = 1_000;

  addOrganization(organizationId: string): void {
    const zero = { granted: 0n, available: 0n, held: 0n, spent: 0n, expired: 0n };
    this.balances.set(organizationId, { organizationId, ...zero, nextChangeAtMs: null });
  }

  /** Books a batch at once. */
  book<T extends Transition[]>(transitions: [...T]): OutcomesOf<T> {
    const { outcomes, writes } = decide(freeze(this.#read(transitions)), transitions);
    this.#write(writes);
    return outcomes as OutcomesOf<T>;
  }

  bookOne<T extends Transition>(transition: T): Outcomes[T["kind"]] {
    const [outcome] = this.book([transition]);
    return outcome as Outcomes[T["kind"]];
  }

  async apply<T extends Transition[]>(_lane: Lane, transitions: [...T]): Promise<OutcomesOf<T>> {
    return this.book(transitions);
  }

  async overdueHolds(options: { afterHoldId: string | null; limit: number }): Promise<HoldReference[]> {
    return [...this.holds.values()]
      .filter(({ state, expiresAtMs }) => state === "open" && expiresAtMs <= this.nowMs)
      .filter(({ holdId }) => options.afterHoldId === null || holdId > options.afterHoldId)
      .sort((a, b) => (a.holdId < b.holdId ? -1 : 1))
      .slice(0, options.limit)
      .map(({ organizationId, holdId }) => ({ organizationId, holdId }));
  }

  async balance(organizationId: string): Promise<BalanceRow | undefined> {
    const row = this.balances.get(organizationId);
    return row && { ...row };
  }

  #read(transitions: Transition[]): BookRows {
    const organizationIds = new Set(transitions.map((transition) => ownerOf(transition).organizationId));
    const holds = new Map<string, HoldRow>();
    const references = new Set<string>();
    const grantIds = new Set<string>();
    for (const transition of transitions) {
      const { organizationId, holdId } = ownerOf(transition);
      const hold = holdId === undefined ? undefined : this.holds.get(keyOf(organizationId, holdId));
      if (hold !== undefined) holds.set(keyOf(organizationId, hold.holdId), hold);
      if (transition.kind !== "grant") continue;
      grantIds.add(keyOf(organizationId, transition.grantId));
      if (transition.reference !== null) references.add(keyOf(organizationId, transition.reference));
    }
    for (const hold of holds.values()) {
      for (const { grantId } of hold.draws) grantIds.add(keyOf(hold.organizationId, grantId));
    }
    const concerned = ({ organizationId, id, state, remaining, reference }: GrantRow) =>
      organizationIds.has(organizationId) &&
      (state === "pending" ||
        remaining > 0n ||
        grantIds.has(keyOf(organizationId, id)) ||
        (reference !== null && references.has(keyOf(organizationId, reference))));
    return {
      nowMs: this.nowMs,
      balances: [...this.balances.values()].filter((row) => organizationIds.has(row.organizationId)),
      grants: [...this.grants.values()].filter(concerned),
      holds: [...holds.values()],
    };
  }

  #write(writes: BookWrites): void {
    for (const row of writes.balances) change(this.balances, row.organizationId, row);
    for (const row of writes.newGrants) insert(this.grants, keyOf(row.organizationId, row.id), row);
    for (const row of writes.changedGrants) change(this.grants, keyOf(row.organizationId, row.id), row);
    for (const row of writes.newHolds) insert(this.holds, keyOf(row.organizationId, row.holdId), row);
    for (const row of writes.changedHolds) change(this.holds, keyOf(row.organizationId, row.holdId), row);
    for (const row of writes.events) insert(this.events, keyOf(row.organizationId, row.holdId, row.sequence), row);
  }
}

export function keyOf(...parts: (string | number)[]): string {
  return parts.join(" ");
}

function ownerOf(transition: Transition): { organizationId: string; holdId?: string } {
  return "facts" in transition ? transition.facts : transition;
}

function insert<Row>(rows: Map<string, Row>, key: string, row: Row): void {
  if (rows.has(key)) throw new Error(`${key} is there already`);
  rows.set(key, row);
}

function change<Row>(rows: Map<string, Row>, key: string, row: Row): void {
  const before = rows.get(key);
  if (before === undefined) throw new Error(`${key} is not there`);
  if (isDeepStrictEqual(before, row)) throw new Error(`${key} is written though it has not changed, or a second time`);
  rows.set(key, row);
}

/** A decision that changed its rows in place would throw. */
function freeze<Value>(value: Value): Value {
  if (typeof value === "object" && value !== null) for (const part of Object.values(value)) freeze(part);
  return Object.freeze(value);
}
