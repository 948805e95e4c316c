import { isDeepStrictEqual } from "node:util";
import type { AuditRow } from "../../src/credits/audit.ts";
import type { BookRows, BookWrites } from "../../src/credits/batch.ts";
import {
  type AdjustmentRow,
  type BalanceRow,
  type BrokenAttemptRow,
  type BudgetRow,
  type BudgetUseRow,
  endedStateOf,
  type GrantRow,
  type HoldRow,
  type HoldState,
  type IdempotencyKeyRow,
  type NewValuesRow,
  type RequestRow,
  type Transition,
} from "../../src/credits/books.ts";
import { budgetUsesOf } from "../../src/credits/budget-counters.ts";
import { counterIdOf } from "../../src/credits/budget-uses.ts";
import { BudgetIndex } from "../../src/credits/budgets.ts";
import { decodeLines } from "../../src/credits/charge-lines.ts";
import { decide } from "../../src/credits/decide.ts";
import type { BudgetUse, CallerKey, Draw, RecordedUses, Retry, Trace } from "../../src/credits/facts.ts";
import { mergeDraws } from "../../src/credits/funds.ts";
import { callersOf, grantsOf, holdNamesOf, keyIdOf, keysOf, namesOf, type RowName } from "../../src/credits/names.ts";
import type { Outcomes } from "../../src/credits/outcomes.ts";
import { addTokens, type TokenCounts, type UnitPrices } from "../../src/credits/price.ts";
import { type EventRow, UNWARNED_USE } from "../../src/credits/warnings.ts";
import type { Durability } from "../../src/stores/driver.ts";
import type { Books, HoldSearch, OutcomesOf } from "../../src/stores/queries/books.ts";
import { chargeEvent, lateEvent, type UsageEvent } from "../../src/stores/queries/statement.ts";

/**
 * Books in memory, with the real decision between reading and writing. Like a store it hands `decide` only the rows
 * that a batch concerns; unlike one it refuses rows that are written without need.
 */
export class MemoryBooks implements Pick<Books, "apply" | "recoverableHolds" | "balance" | "dueOrganizations"> {
  readonly balances = new Map<string, BalanceRow>();
  readonly budgets = new Map<string, BudgetRow>();
  readonly budgetUses = new Map<string, BudgetUseRow>();
  /** By organization and caller. */
  readonly newValues = new Map<string, NewValuesRow>();
  readonly grants = new Map<string, GrantRow>();
  readonly holds = new Map<string, HoldRow>();
  readonly requests = new Map<string, RequestRow>();
  readonly keys = new Map<string, IdempotencyKeyRow>();
  readonly brokenAttempts = new Map<string, BrokenAttemptRow>();
  readonly adjustments = new Map<string, AdjustmentRow>();
  readonly auditEntries = new Map<string, AuditRow>();
  /** Warnings by key. */
  readonly warnings = new Map<string, EventRow>();
  nowMs = 1_000;

  addOrganization(organizationId: string): void {
    const zero = { granted: 0n, available: 0n, held: 0n, spent: 0n, expired: 0n };
    const rest = {
      nextChangeAtMs: null,
      closedBeforeMs: null,
      budgetVersion: 0,
      topUp: 0n,
      warnAt: null,
      announced: null,
    };
    this.balances.set(organizationId, { organizationId, ...zero, ...rest });
  }

  /** Adds a budget, or replaces the one with its id. */
  putBudget(row: BudgetRow): void {
    this.budgets.set(keyOf(row.organizationId, row.id), row);
  }

  /** Removes a budget with its counters. */
  removeBudget({ organizationId, id }: Pick<BudgetRow, "organizationId" | "id">): void {
    this.budgets.delete(keyOf(organizationId, id));
    for (const [key, use] of this.budgetUses) {
      if (use.organizationId === organizationId && use.budgetId === id) this.budgetUses.delete(key);
    }
  }

  raise(organizationId: string, use: BudgetUse, amount: bigint): void {
    const key = keyOf(organizationId, counterIdOf(use));
    const empty = { organizationId, ...use, held: 0n, spent: 0n, opening: 0n, raised: 0n, ...UNWARNED_USE };
    const row = this.budgetUses.get(key) ?? empty;
    this.budgetUses.set(key, { ...row, raised: row.raised + amount });
  }

  /** Every table, for whoever compares two books. */
  get tables() {
    const { balances, budgetUses, grants, holds, requests, keys, brokenAttempts, adjustments } = this;
    const { auditEntries, warnings } = this;
    const books = { balances, budgetUses, grants, holds, requests, keys, brokenAttempts, adjustments };
    return { ...books, auditEntries, warnings };
  }

  /** Every request, open or ended, its late settlement and its credits included. */
  get seen(): Map<string, SeenRequest> {
    const seen = new Map<string, SeenRequest>();
    for (const [key, hold] of this.holds) seen.set(key, seenHold(hold));
    for (const [key, request] of this.requests) {
      const own = [...this.adjustments.values()].filter(
        ({ organizationId, holdId }) => organizationId === request.organizationId && holdId === request.holdId,
      );
      if (seen.has(key)) throw new Error(`${key} is both open and ended`);
      seen.set(key, seenRequest(request, own));
    }
    return seen;
  }

  /** Charges by organization, hold and sequence. */
  get events(): Map<string, UsageEvent> {
    const all = [...this.seen.values()].flatMap(({ events }) => events);
    return new Map(all.map((event) => [keyOf(event.organizationId, event.holdId, event.sequence), event]));
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

  async apply<T extends Transition[]>(_durability: Durability, transitions: [...T]): Promise<OutcomesOf<T>> {
    return this.book(transitions);
  }

  async recoverableHolds({ lifeMs, owners, afterHoldId, limit }: HoldSearch) {
    const isOfOwner = (owner: string) => ("only" in owners ? owners.only.includes(owner) : owner !== owners.allBut);
    const found = [...this.holds.values()]
      .filter(({ owner, expiresAtMs }) => {
        return expiresAtMs <= this.nowMs || expiresAtMs > this.nowMs + lifeMs || isOfOwner(owner);
      })
      .filter(({ holdId }) => afterHoldId === null || holdId > afterHoldId)
      .sort((a, b) => (a.holdId < b.holdId ? -1 : 1))
      .slice(0, limit);
    const holds = found.map(({ organizationId, holdId, owner, expiresAtMs }) => {
      return { organizationId, holdId, owner, expiresAtMs };
    });
    return { nowMs: this.nowMs, holds };
  }

  async dueOrganizations({ after }: { after: string | null }): Promise<string[]> {
    const due = [...this.balances.values()].filter(
      ({ nextChangeAtMs }) => nextChangeAtMs !== null && nextChangeAtMs <= this.nowMs,
    );
    const ids = due.map(({ organizationId }) => organizationId).sort();
    return ids.filter((id) => after === null || id > after);
  }

  async balance(organizationId: string): Promise<BalanceRow | undefined> {
    const row = this.balances.get(organizationId);
    return row && { ...row };
  }

  #read(transitions: Transition[]): BookRows {
    const names = namesOf(transitions);
    const namedKeys = pick(this.keys, names.keys);
    const brokenAttempts = [...this.brokenAttempts.values()].filter((row) =>
      names.brokenAttempts.some(
        ({ organizationId, callerId, fingerprint }) =>
          row.organizationId === organizationId && row.callerId === callerId && row.fingerprint === fingerprint,
      ),
    );
    const ofHolds = [...names.newHolds, ...names.holds, ...holdNamesOf([...namedKeys, ...brokenAttempts])];
    const [holds, requests] = [pick(this.holds, ofHolds), pick(this.requests, ofHolds)];
    const drawnOn = new Set(pick(this.grants, [...names.grants, ...grantsOf(holds), ...grantsOf(requests)]));
    const isOf = (row: { organizationId: string; reference: string | null }, referred: RowName[]) =>
      referred.some(({ organizationId, id }) => organizationId === row.organizationId && id === row.reference);
    const isConcerned = (row: GrantRow) =>
      (names.organizationIds.includes(row.organizationId) && (row.state === "pending" || row.remaining > 0n)) ||
      drawnOn.has(row) ||
      isOf(row, names.referredGrants);
    const own = [...this.budgets.values()].sort((a, b) => (a.id < b.id ? -1 : 1));
    const named = Map.groupBy(own, ({ organizationId }) => organizationId);
    const budgets = new Map([...named].map(([organizationId, rows]) => [organizationId, new BudgetIndex(rows)]));
    const uses = budgetUsesOf({ nowMs: this.nowMs, budgets, holds, requests }, transitions);
    const adjusted = new Set(pick(this.adjustments, names.adjustments));
    return {
      nowMs: this.nowMs,
      balances: [...this.balances.values()].filter((row) => names.organizationIds.includes(row.organizationId)),
      budgets,
      budgetUses: pick(this.budgetUses, uses),
      newValues: pick(this.newValues, callersOf(transitions)),
      grants: [...this.grants.values()].filter(isConcerned),
      holds,
      requests,
      brokenAttempts,
      payments: [],
      vouchers: [],
      closed: [],
      keys: pick(this.keys, [...names.keys, ...keysOf(holds, requests)]),
      adjustments: [...this.adjustments.values()].filter(
        (row) =>
          adjusted.has(row) ||
          requests.some(
            ({ organizationId, holdId }) => organizationId === row.organizationId && holdId === row.holdId,
          ) ||
          isOf(
            row,
            names.referredAdjustments.filter(({ kind }) => kind === row.kind),
          ),
      ),
    };
  }

  #write(writes: BookWrites): void {
    for (const row of writes.balances) change(this.balances, row.organizationId, row);
    for (const row of writes.newBudgetUses) insert(this.budgetUses, keyOf(row.organizationId, counterIdOf(row)), row);
    for (const row of writes.changedBudgetUses) {
      change(this.budgetUses, keyOf(row.organizationId, counterIdOf(row)), row);
    }
    for (const row of writes.newValues) this.newValues.set(keyOf(row.organizationId, row.callerId), row);
    for (const row of writes.newGrants) insert(this.grants, keyOf(row.organizationId, row.id), row);
    for (const row of writes.changedGrants) change(this.grants, keyOf(row.organizationId, row.id), row);
    for (const row of writes.newHolds) insert(this.holds, keyOf(row.organizationId, row.holdId), row);
    for (const row of writes.renewedHolds) changeOnly(this.holds, row, RENEWED);
    for (const { organizationId, holdId } of writes.removedHolds) {
      if (!this.holds.delete(keyOf(organizationId, holdId))) throw new Error(`the hold ${holdId} is not there`);
    }
    for (const row of writes.newRequests) insert(this.requests, keyOf(row.organizationId, row.holdId), row);
    for (const row of writes.removedKeys) {
      if (!this.keys.delete(keyOf(row.organizationId, keyIdOf(row))))
        throw new Error(`the key ${row.key} is not there`);
    }
    for (const row of writes.keys) this.keys.set(keyOf(row.organizationId, keyIdOf(row)), row);
    for (const { organizationId, holdId = "" } of writes.removedBrokenAttempts) {
      if (!this.brokenAttempts.delete(`${organizationId} ${holdId}`)) throw new Error(`no attempt ${holdId} is there`);
    }
    for (const row of writes.brokenAttempts) insert(this.brokenAttempts, keyOf(row.organizationId, row.holdId), row);
    for (const row of writes.newAdjustments) insert(this.adjustments, keyOf(row.organizationId, row.id), row);
    for (const row of writes.newAuditEntries) insert(this.auditEntries, row.id, row);
    for (const row of writes.newEvents) if (!this.warnings.has(row.key)) insert(this.warnings, row.key, row);
  }
}

/** The columns that a store writes when it renews a hold. */
const RENEWED = ["owner", "expiresAtMs", "details"] as const satisfies (keyof HoldRow)[];

/** A request as the model sees it. */
export interface SeenRequest {
  organizationId: string;
  holdId: string;
  tokenId: string;
  budgets: RecordedUses;
  idempotencyKey: CallerKey | null;
  upstream: string;
  prices: UnitPrices;
  state: HoldState;
  isSettledLate: boolean;
  amount: bigint;
  tokens: TokenCounts;
  draws: Draw[];
  charged: bigint;
  shortfall: bigint;
  credited: bigint;
  expiresAtMs: number | null;
  trace: Trace | null;
  retry: Retry | null;
  events: UsageEvent[];
}

function seenHold({ details, ...hold }: HoldRow): SeenRequest {
  const { organizationId, holdId, tokenId, budgets, amount, draws, expiresAtMs } = hold;
  const { idempotencyKey, upstream, charge, retry } = details;
  const { tokens, prices } = decodeLines(charge);
  const facts = { organizationId, holdId, tokenId, budgets, idempotencyKey, upstream, prices };
  const nothing = { charged: 0n, shortfall: 0n, credited: 0n, isSettledLate: false, trace: null, events: [] };
  return { ...facts, state: "open", retry, amount, tokens, draws, expiresAtMs, ...nothing };
}

function seenRequest(request: RequestRow, adjustments: AdjustmentRow[]): SeenRequest {
  const { organizationId, holdId, tokenId, budgets, idempotencyKey, amount, cost, shortfall, end, retry } = request;
  const late = adjustments.find(({ kind }) => kind === "late_settlement");
  const credits = adjustments.filter(({ kind }) => kind === "credit");
  const { upstream, charge, trace } = late?.settlement ?? request;
  const { tokens, prices } = decodeLines(charge);
  const all = late?.settlement ? addTokens(decodeLines(request.charge).tokens, tokens) : tokens;
  const events = end === "released" ? [] : [chargeEvent(request)];
  return {
    ...{
      organizationId,
      holdId,
      tokenId,
      budgets,
      idempotencyKey,
      upstream,
      prices,
      trace,
      amount,
      retry,
      expiresAtMs: null,
    },
    state: endedStateOf(end),
    isSettledLate: late !== undefined,
    tokens: all,
    draws: mergeDraws(request.draws, late?.draws ?? []).filter((draw) => draw.amount !== 0n),
    charged: cost + (late?.amount ?? 0n),
    shortfall: shortfall + (late?.settlement?.shortfall ?? 0n),
    credited: credits.reduce((sum, credit) => sum + credit.amount, 0n),
    events: late === undefined ? events : [...events, lateEvent(request, late)],
  };
}

export function keyOf(...parts: (string | number)[]): string {
  return parts.join(" ");
}

function pick<Row>(rows: Map<string, Row>, names: RowName[]): Row[] {
  const keys = new Set(names.map(({ organizationId, id }) => keyOf(organizationId, id)));
  return [...keys].flatMap((key) => rows.get(key) ?? []);
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

function changeOnly(rows: Map<string, HoldRow>, row: HoldRow, columns: readonly (keyof HoldRow)[]): void {
  const key = keyOf(row.organizationId, row.holdId);
  const before = rows.get(key);
  change(rows, key, row);
  for (const column of Object.keys(row) as (keyof HoldRow)[]) {
    if (!columns.includes(column) && !isDeepStrictEqual(before?.[column], row[column])) {
      throw new Error(`${key} changed its ${column}, which a store would not write`);
    }
  }
}

/** A decision that changed its rows in place would throw. */
function freeze<Value>(value: Value): Value {
  if (typeof value === "object" && value !== null) for (const part of Object.values(value)) freeze(part);
  return Object.freeze(value);
}
