import { type RawBuilder, sql } from "kysely";
import type { AdjustmentRow, Draw, GrantRow, HoldRow, RequestRow } from "../../credits/books.ts";
import type { ClosingPartRow, ClosingRow } from "../../credits/closing.ts";
import { beganBefore } from "../../credits/request-id.ts";
import type { Database } from "../database.ts";
import { ADJUSTMENT, BALANCE, CLOSING, CLOSING_PART, GRANT, HOLD, KEY, REQUEST, TOKEN_BALANCE } from "../schema.ts";
import { isClosed } from "./closings.ts";
import { type RecordedBalance, RecordedBalances } from "./recorded-balances.ts";
import {
  checkAdjustment,
  checkBalance,
  checkClosing,
  checkGrant,
  checkHold,
  checkKey,
  checkNextChange,
  checkRequest,
  checkTokenBalance,
  type Taken,
} from "./verify-rows.ts";

export interface Violation {
  /** Number of the invariant, as in docs/ledger.md. */
  invariant: number;
  organizationId: string;
  holdId: string | null;
  message: string;
}

export interface OrganizationVerification {
  organizationId: string;
  holds: number;
  events: number;
  violations: Violation[];
}

/** Number of requests that are checked in one snapshot. */
const CHUNK_ROWS = 2_000;
/** Newer requests are added up together with the balance, in one snapshot, because more may follow. */
const NEWEST_MS = 20_000;
/** Sums that differ are computed again: the clock may have been set back, or a batch took longer. */
const ATTEMPTS = 3;
/** Number of violations of each invariant that are reported. */
const REPORTED_MAX = 10;

/**
 * Checks the books of one organization: its requests in chunks, each in a short snapshot, then everything that may change,
 * with the newest requests, in one more. The numbers are those of the invariants in docs/ledger.md. A service ends a hold
 * `endsWithinMs` after its expiry.
 */
export async function verifyOrganization(
  database: Database,
  organizationId: string,
  endsWithinMs: number,
): Promise<OrganizationVerification> {
  for (let attempt = 1; ; ) {
    const check = new Check(database, organizationId, endsWithinMs);
    const verification = await check.run();
    // Requests that were closed meanwhile were added up twice, or not at all.
    if (check.isOutdated) continue;
    if (verification.violations.length === 0 || attempt === ATTEMPTS) return verification;
    attempt += 1;
  }
}

const BOOK_TABLES = [
  ["balance", "token_balance", "credit_grant", "hold"],
  [
    "request",
    "idempotency_key",
    "adjustment",
    "statement_balance",
    "allowance",
    "token",
    "month_digest",
    "closing",
    "closing_part",
  ],
].flat();

/** Finds rows of organizations that do not exist, at most a few of each table. */
export async function verifyOwners(database: Database): Promise<Violation[]> {
  const queries = BOOK_TABLES.map(
    (table) => sql`
      select distinct organization_id from ${sql.table(table)}
      where not exists (select 1 from organization where organization.id = ${sql.table(table)}.organization_id)
      limit ${sql.lit(REPORTED_MAX)}`,
  );
  const found = (await snapshot(database, queries)) as { organization_id: string }[][];
  return found.flatMap((rows, index) =>
    rows.map(({ organization_id: organizationId }) => {
      const message = `The table ${BOOK_TABLES[index]} has rows of an organization that does not exist.`;
      return { invariant: 10, organizationId, holdId: null, message };
    }),
  );
}

/** Sums over the rows read so far. */
class Sums {
  costs = 0n;
  readonly spentOfToken = new Map<string, bigint>();
  readonly taken = new Map<string, Taken>();

  charge(tokenId: string, cost: bigint, draws: readonly Draw[]): void {
    this.costs += cost;
    this.spentOfToken.set(tokenId, (this.spentOfToken.get(tokenId) ?? 0n) + cost);
    this.take("drawn", draws);
  }

  take(how: keyof Taken, draws: readonly Draw[]): void {
    for (const { grantId, amount } of draws) {
      const taken = this.taken.get(grantId) ?? {};
      this.taken.set(grantId, { ...taken, [how]: (taken[how] ?? 0n) + amount });
    }
  }
}

class Check {
  readonly #database: Database;
  readonly #organizationId: string;
  readonly #endsWithinMs: number;
  readonly #violations: Violation[] = [];
  readonly #sums = new Sums();
  #recorded = new RecordedBalances([]);
  #closing: ClosingRow | undefined;
  #requests = 0;
  #charges = 0;
  /** Time at which a request began or ended last. */
  #bookedMs = 0;
  /** Requests were closed while they were read. */
  isOutdated = false;

  constructor(database: Database, organizationId: string, endsWithinMs: number) {
    this.#database = database;
    this.#organizationId = organizationId;
    this.#endsWithinMs = endsWithinMs;
  }

  async run(): Promise<OrganizationVerification> {
    const of = sql`where organization_id = ${this.#organizationId}`;
    const [[clock], recorded, closings, parts] = (await snapshot(this.#database, [
      sql`select ${this.#database.now()} as now`,
      sql`select before_at, balance from statement_balance
        ${of} and before_at >= coalesce((select before_at from closing ${of}), 0) order by before_at`,
      sql`select * from closing ${of}`,
      sql`select * from closing_part ${of}`,
    ])) as [[{ now: bigint }], RecordedBalance[], object[], object[]];
    this.#recorded = new RecordedBalances(recorded);
    this.#addClosing(closings.map(CLOSING.fromRecord)[0], parts.map(CLOSING_PART.fromRecord), recorded);
    const newestFromMs = Number(clock.now) - NEWEST_MS;
    for (let after = ""; ; ) {
      const last = await this.#checkRequests(after, newestFromMs);
      if (last === undefined) break;
      after = last;
    }
    const holds = await this.#checkRest(newestFromMs);
    const organizationId = this.#organizationId;
    return { organizationId, holds: this.#requests + holds, events: this.#charges, violations: this.#violations };
  }

  /** Adds what the closed requests add up to. */
  #addClosing(closing: ClosingRow | undefined, parts: ClosingPartRow[], recorded: readonly RecordedBalance[]): void {
    this.#closing = closing;
    checkClosing(closing, parts, this.#report);
    if (closing === undefined) return;
    const { beforeAtMs, cost, requests } = closing;
    if (Number(recorded[0]?.before_at) !== beforeAtMs) {
      this.#report(3, `No balance is recorded for ${beforeAtMs}, before which requests are closed.`);
    }
    this.#requests += requests;
    this.#recorded.add(beforeAtMs - 1, -cost);
    for (const { dimension, name, amount } of parts) {
      if (dimension === "token") this.#sums.charge(name, amount, []);
      else this.#sums.take("drawn", [{ grantId: name, amount }]);
    }
  }

  /** Checks the requests after an id; returns the last id of the chunk, undefined at the end. */
  async #checkRequests(after: string, newestFromMs: number): Promise<string | undefined> {
    const id = this.#organizationId;
    // Rows that are closed count as absent, removed or not.
    const isOpen = this.#closing === undefined ? sql`1 = 1` : sql`not ${isClosed(this.#closing.beforeAtMs)}`;
    const chunk = sql`
      from request where organization_id = ${id} and id > ${after} and ${isOpen} order by id limit ${sql.lit(CHUNK_ROWS)}`;
    const [rows = [], adjustmentRows = []] = await snapshot(this.#database, [
      sql`select * ${chunk}`,
      sql`
        select adjustment.* from adjustment
        where organization_id = ${id} and kind = 'late_settlement' and hold_id in (select id ${chunk})`,
    ]);
    const late = Map.groupBy(adjustmentRows.map(ADJUSTMENT.fromRecord), ({ holdId }) => holdId);
    for (const request of rows.map(REQUEST.fromRecord)) {
      checkRequest(request, late.get(request.holdId) ?? [], this.#report);
      this.#requests += 1;
      this.#bookedMs = Math.max(this.#bookedMs, request.endedAtMs);
      if (request.end !== "released") this.#charges += 1;
      this.#recorded.add(request.endedAtMs, -request.cost);
      if (request.endedAtMs < newestFromMs) this.#sums.charge(request.tokenId, request.cost, request.draws);
    }
    return rows.length < CHUNK_ROWS ? undefined : (rows.at(-1)?.id as string | undefined);
  }

  /** Checks everything else; returns the number of open holds. */
  async #checkRest(newestFromMs: number): Promise<number> {
    const of = sql`where organization_id = ${this.#organizationId}`;
    const named = sql`select hold_id from adjustment ${of} union select hold_id from idempotency_key ${of}`;
    const results = await snapshot(this.#database, [
      sql`select ${this.#database.now()} as now`,
      ...["balance", "credit_grant", "hold", "token_balance", "idempotency_key", "adjustment"].map(
        (table) => sql`select * from ${sql.table(table)} ${of}`,
      ),
      sql`select * from request ${of} and ended_at >= ${BigInt(newestFromMs)} and ending <> 'released'`,
      sql`select * from request ${of} and id in (${named})`,
      sql`select hold.id from hold
          join request on request.organization_id = hold.organization_id and request.id = hold.id
          where hold.organization_id = ${this.#organizationId}`,
      sql`select before_at from closing ${of}`,
    ]);
    const [[clock] = [], balances = [], grants = [], holds = [], tokens = []] = results;
    const [keys = [], adjustments = [], newest = [], namedRequests = [], both = [], closings = []] = results.slice(5);
    this.isOutdated = (closings[0]?.before_at ?? 0n) !== BigInt(this.#closing?.beforeAtMs ?? 0);
    for (const { id } of both as { id: string }[]) this.#report(7, "The request is both open and ended.", id);
    for (const { tokenId, cost, draws } of newest.map(REQUEST.fromRecord)) this.#sums.charge(tokenId, cost, draws);
    const open = holds.map(HOLD.fromRecord);
    const bookedMs = open.reduce((last, { madeAtMs }) => Math.max(last, madeAtMs), this.#bookedMs);
    const limits = { nowMs: Number(clock?.now), bookedMs, endsWithinMs: this.#endsWithinMs };
    for (const hold of open) checkHold(hold, limits, this.#report);
    const rest = {
      open,
      requests: new Map(namedRequests.map(REQUEST.fromRecord).map((row) => [row.holdId, row])),
      adjustments: adjustments.map(ADJUSTMENT.fromRecord),
      grants: grants.map(GRANT.fromRecord),
    };
    this.#checkAdjustments(rest);
    this.#checkKeys(keys.map(KEY.fromRecord), rest);
    const [balance] = balances.map(BALANCE.fromRecord);
    for (const { source, amount, createdAtMs } of rest.grants) {
      if (source === "grant") this.#recorded.add(createdAtMs, amount);
    }
    this.#recorded.check(this.#report);
    this.#checkTotals(balance, rest);
    this.#checkTokens(tokens.map(TOKEN_BALANCE.fromRecord), rest);
    return open.length;
  }

  #checkAdjustments({ adjustments, requests, grants }: Rest): void {
    const credited = new Map<string, bigint>();
    for (const row of adjustments) {
      const request = row.holdId === null ? undefined : requests.get(row.holdId);
      const isRemoved = request === undefined && this.#isClosed(row.holdId);
      checkAdjustment(row, isRemoved ? "removed" : request, this.#report);
      const { kind, amount, draws, tokenId, holdId } = row;
      this.#recorded.add(row.madeAtMs, kind === "credit" ? amount : -amount);
      if (kind === "late_settlement") {
        this.#charges += 1;
        this.#sums.charge(tokenId ?? "", amount, draws);
      }
      if (kind === "lapse") this.#sums.take("lapsed", draws);
      if (kind === "revoke") this.#sums.take("revoked", draws);
      if (kind === "credit") this.#sums.charge(tokenId ?? "", -amount, []);
      if (kind === "credit" && holdId !== null) credited.set(holdId, (credited.get(holdId) ?? 0n) + amount);
      const late = kind === "late_settlement" ? amount : 0n;
      if (holdId !== null && late !== 0n) credited.set(holdId, (credited.get(holdId) ?? 0n) - late);
      const grant = kind === "credit" ? grants.find(({ id }) => id === row.id) : undefined;
      if (kind === "credit" && (grant?.source !== "credit" || grant.amount !== amount)) {
        this.#report(1, `The credit ${row.id} of ${amount} has no grant of this amount.`);
      }
    }
    for (const [holdId, amount] of credited) {
      if (!requests.has(holdId) && this.#isClosed(holdId)) continue;
      const cost = requests.get(holdId)?.cost ?? 0n;
      if (amount > cost) this.#report(5, `Credits return ${amount - cost} more than the request was charged.`, holdId);
    }
    const credits = new Set(adjustments.filter(({ kind }) => kind === "credit").map(({ id }) => id));
    for (const { id, source } of grants) {
      if (source === "credit" && !credits.has(id)) this.#report(3, `The grant ${id} was made for no credit.`);
    }
    this.#checkReferences(grants.map(({ reference }) => reference));
    for (const group of Map.groupBy(adjustments, ({ kind }) => kind).values()) {
      this.#checkReferences(group.map(({ reference }) => reference));
    }
  }

  #isClosed(holdId: string | null): boolean {
    return holdId !== null && beganBefore(holdId, this.#closing?.beforeAtMs ?? null);
  }

  #checkReferences(references: readonly (string | null)[]): void {
    const seen = new Set<string>();
    for (const reference of references) {
      if (reference === null) continue;
      if (seen.has(reference)) this.#report(9, `The reference ${JSON.stringify(reference)} was booked more than once.`);
      seen.add(reference);
    }
  }

  #checkKeys(keys: readonly ReturnType<typeof KEY.fromRecord>[], { open, requests, adjustments }: Rest): void {
    const holds = new Map(open.map((hold) => [hold.holdId, hold]));
    const late = new Set(adjustments.filter(({ kind }) => kind === "late_settlement").map(({ holdId }) => holdId));
    for (const key of keys) {
      const { holdId } = key;
      const of = { hold: holds.get(holdId), request: requests.get(holdId), isSettledLate: late.has(holdId) };
      checkKey(key, of, this.#report);
    }
  }

  #checkTotals(balance: ReturnType<typeof BALANCE.fromRecord> | undefined, { open, grants }: Rest): void {
    if (balance === undefined) {
      this.#report(1, "The organization has no balance.");
      return;
    }
    for (const { draws } of open) this.#sums.take("drawn", draws);
    const { taken, costs } = this.#sums;
    const known = new Set(grants.map(({ id }) => id));
    for (const grantId of taken.keys()) {
      if (!known.has(grantId)) this.#report(2, `The grant ${grantId}, which is drawn on, does not exist.`);
    }
    for (const grant of grants) checkGrant(grant, taken.get(grant.id) ?? {}, this.#report);
    const inForce = grants.filter(({ state }) => state !== "pending");
    const totals = {
      granted: total(inForce, ({ source, amount, revoked }) => (source === "credit" ? -revoked : amount - revoked)),
      available: total(inForce, ({ remaining }) => remaining),
      held: total(open, ({ amount }) => amount),
      spent: costs,
      expired: total([...taken.values()], ({ lapsed = 0n }) => lapsed),
    };
    checkBalance(balance, totals, this.#report);
    this.#checkClosedBefore(balance, open);
    checkNextChange(balance, grants, this.#report);
  }

  #checkClosedBefore({ closedBeforeMs }: ReturnType<typeof BALANCE.fromRecord>, open: readonly HoldRow[]): void {
    const closed = this.#closing?.beforeAtMs;
    if (closed !== undefined && closed > (closedBeforeMs ?? 0)) {
      this.#report(9, `Requests before ${closed} are closed, but can be booked again.`);
    }
    for (const { holdId } of open) {
      if (beganBefore(holdId, closedBeforeMs)) this.#report(7, "The hold belongs to a closed period.", holdId);
    }
  }

  #checkTokens(rows: readonly ReturnType<typeof TOKEN_BALANCE.fromRecord>[], { open }: Rest): void {
    const ids = new Set(rows.map(({ tokenId }) => tokenId));
    for (const row of rows) {
      const { tokenId, budgetId } = row;
      if (budgetId !== null) {
        if (!ids.has(budgetId)) this.#report(10, `The token ${tokenId} shares the cap of a token that has none.`);
        if (row.held !== 0n || row.spent !== 0n) this.#report(2, `The token ${tokenId} shares a cap and has sums.`);
        continue;
      }
      const sharing = rows.filter((other) => other.tokenId === tokenId || other.budgetId === tokenId);
      const own = new Set(sharing.map((other) => other.tokenId));
      const held = total(
        open.filter(({ tokenId }) => own.has(tokenId)),
        ({ amount }) => amount,
      );
      const spent = total([...own], (id) => this.#sums.spentOfToken.get(id) ?? 0n);
      checkTokenBalance(row, { held, spent }, this.#report);
    }
  }

  #report = (invariant: number, message: string, holdId: string | null = null): void => {
    const organizationId = this.#organizationId;
    const reported = this.#violations.filter((violation) => violation.invariant === invariant).length;
    if (reported < REPORTED_MAX) this.#violations.push({ invariant, organizationId, holdId, message });
  };
}

interface Rest {
  open: HoldRow[];
  /** Requests that keys and adjustments name. */
  requests: Map<string, RequestRow>;
  adjustments: AdjustmentRow[];
  grants: GrantRow[];
}

function total<Row>(rows: readonly Row[], amountOf: (row: Row) => bigint): bigint {
  return rows.reduce((sum, row) => sum + amountOf(row), 0n);
}

function snapshot(database: Database, queries: RawBuilder<unknown>[]): Promise<Record<string, unknown>[][]> {
  return database.snapshot(queries.map((query) => query.compile(database.kysely)));
}
