import type { MicroCredits } from "../../credits/amount.ts";
import type { AuditRow } from "../../credits/audit.ts";
import type { BudgetRow } from "../../credits/books.ts";
import type { WrittenRows } from "../admin-schema.ts";
import type { Database } from "../database.ts";
import { BUDGET, TOKEN } from "../schema.ts";
import { isAsRead, raw, type Sql, sql } from "../sql.ts";
import type { RowOf } from "../table.ts";
import { recordOf } from "./admin.ts";
import { budgetsChange, deleteBudgetUses } from "./budgets.ts";
import { isClosed } from "./closings.ts";

type TokenRow = RowOf<typeof TOKEN>;
type ReadToken = TokenRow & { budget: { cap: MicroCredits } | null };
const TERMS = ["name", "scopes", "models", "limits", "expiresAtMs", "pinned"] as const;

/** Terms of a token to change; absent ones stay unchanged. */
export type TokenUpdate = Partial<Pick<TokenRow, (typeof TERMS)[number]>> & {
  /** Null: no cap. If the token has one, only the amount of it changes. */
  cap?: BudgetRow | null;
};

/** Transactions that end requests take less time than this. */
const BOOKED_AFTER_MS = 60_000;

/**
 * Changes the terms of a token that was read as `old`, with the audit record. Returns false, and writes nothing, if it was
 * revoked or changed since. A cap is shared by all tokens of its rotations, and counts what they have spent since the first.
 */
export async function writeTokenTerms(
  database: Database,
  old: ReadToken,
  { cap, ...terms }: TokenUpdate,
  audit: AuditRow,
): Promise<boolean> {
  const [row] = await database.find(sql`select * from token where id = ${old.id}`);
  if (row === undefined || JSON.stringify(termsOf(TOKEN.fromRecord(row))) !== JSON.stringify(termsOf(old)))
    return false;
  // The name is written as it is if only the cap changes, which locks the row.
  const update = sql`
    update token set ${TOKEN.set({ name: old.name, ...terms })}
    where id = ${old.id} and revoked_at is null and ${isAsRead(TOKEN.columnsOf(TERMS), row)}`;
  const ofCap = cap === undefined ? NO_CHANGE : await capWrites(database, old, cap);
  const rows = { token: [{ id: old.id, ...terms }], budget: ofCap.rows };
  return database.writeIf([...ofCap.required, update], [...ofCap.rest, ...recordOf(audit, rows)]);
}

function termsOf(row: TokenRow): Partial<TokenRow> {
  return Object.fromEntries(TERMS.map((name) => [name, row[name]]));
}

/**
 * Returns the writes that set or remove a cap; a required one changes no row if the cap was changed since it was read. The
 * first ones lock the tokens that share the cap, so that no rotation adds another one, and the balance, so that no charge is
 * booked meanwhile; the snapshots of later ones are newer than the locks.
 */
async function capWrites(database: Database, old: ReadToken, cap: BudgetRow | null): Promise<CapWrites> {
  const { organizationId, callerId, budget } = old;
  const of = sql`organization_id = ${organizationId}`;
  const locks = [
    sql`update token set name = name where ${of} and caller_id = ${callerId}`,
    budgetsChange(organizationId),
  ];
  if (budget !== null) {
    const [row] = await database.find(sql`select id from budget where ${of} and cap_of = ${callerId}`);
    const id = String(row?.id);
    const asRead = sql`${of} and id = ${id} and amount = ${budget.cap}`;
    if (cap === null) {
      const removal = sql`delete from budget where ${asRead}`;
      const rest = [deleteBudgetUses({ organizationId, id })];
      return { required: [...locks, removal], rest, rows: [{ id, isDeleted: true }] };
    }
    const update = sql`update budget set amount = ${cap.amount} where ${asRead}`;
    return { required: [...locks, update], rest: [], rows: [{ id, amount: cap.amount }] };
  }
  if (cap === null) return NO_CHANGE;
  const ifFirst = sql`${BUDGET.insert(cap)} on conflict (organization_id, cap_of) where cap_of is not null do nothing`;
  return { required: [...locks, ifFirst], rest: await openingWrites(database, cap, callerId), rows: [cap] };
}

/**
 * Returns the writes that let a new cap count what its tokens have spent and what their open holds hold: these record it as
 * if they had been made under it. A later refund or late settlement of an earlier request does not change it.
 */
async function openingWrites(database: Database, { organizationId, id }: BudgetRow, callerId: string): Promise<Sql[]> {
  const of = sql`organization_id = ${organizationId}`;
  const tokens = sql`(select id from token where ${of} and caller_id = ${callerId})`;
  const held = sql`(select coalesce(sum(amount), 0) from hold where ${of} and token_id in ${tokens})`;
  const spent = await spentBy(database, organizationId, tokens);
  const use = JSON.stringify([id, 0, ""]);
  return [
    sql`insert into budget_use (organization_id, budget_id, window_at, value, held, spent, opening, raised)
      values (${organizationId}, ${id}, 0, '', ${held}, ${spent}, ${spent}, 0)`,
    sql`update hold set budgets = case when budgets is null then ${`[${use}]`}
        else substr(budgets, 1, length(budgets) - 1) || ${`,${use}]`} end
      where ${of} and token_id in ${tokens}`,
  ];
}

interface CapWrites {
  required: Sql[];
  rest: Sql[];
  rows: WrittenRows[string];
}

const NO_CHANGE: CapWrites = { required: [], rest: [], rows: [] };

/**
 * Returns an expression for what tokens have spent, less refunds. What was charged a while ago, which no longer changes, is
 * added up here, so that the transaction reads only the newest requests.
 */
async function spentBy(database: Database, organizationId: string, tokens: Sql) {
  const of = sql`organization_id = ${organizationId}`;
  const closedAt = sql`coalesce((select before_at from closing where ${of}), 0)`;
  for (;;) {
    const [before] = await database.read<{ now: bigint; closed: bigint }>(
      sql`select ${database.now()} as now, ${closedAt} as closed`,
    );
    const [sinceMs, closed] = [(before?.now ?? 0n) - BigInt(BOOKED_AFTER_MS), before?.closed ?? 0n];
    const [sums] = await database.read<{ spent: bigint; closed: bigint }>(sql`
        select ${closedAt} as closed, cast((
          select coalesce(sum(cost), 0) from request
          where ${of} and token_id in ${tokens} and ended_at < ${sinceMs} and not ${isClosed(Number(closed))}
        ) + (
          select coalesce(sum(amount), 0) from closing_part
          where ${of} and dimension = 'token' and name in ${tokens}
        ) as bigint) as spent`);
    // Otherwise requests were closed in between, and added up twice.
    if (sums?.closed === closed) return sql`cast(${sums.spent} + ${newestCharges(of, tokens, sinceMs)} as bigint)`;
  }
}

/** Charges since a time, by the two indexes of a request's end, and all adjustments, which are few. */
function newestCharges(of: Sql, tokens: Sql, sinceMs: bigint): Sql {
  const charged = (isLate: number) => sql`(
    select coalesce(sum(cost), 0) from request
    where ${of} and token_id in ${tokens} and is_late = ${raw(isLate)} and ending <> 'released'
      and ended_at >= ${sinceMs})`;
  return sql`${charged(0)} + ${charged(1)} + (
    select coalesce(sum(case when kind = 'credit' then -amount else amount end), 0) from adjustment
    where ${of} and token_id in ${tokens} and kind in ('credit', 'late_settlement'))`;
}
