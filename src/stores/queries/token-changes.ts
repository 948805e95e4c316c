import type { MicroCredits } from "../../credits/amount.ts";
import type { AuditRow } from "../../credits/audit.ts";
import type { Database } from "../database.ts";
import { AUDIT_ENTRY, TOKEN } from "../schema.ts";
import { isAsRead, raw, type Sql, sql } from "../sql.ts";
import type { RowOf } from "../table.ts";
import { isClosed } from "./closings.ts";

type TokenRow = RowOf<typeof TOKEN>;
/** A token as it was read, with its cap. */
type ReadToken = TokenRow & { budget: { cap: MicroCredits } | null };
const TERMS = ["name", "scopes", "models", "limits", "expiresAtMs"] as const;

/** Terms of a token to change; absent ones stay unchanged. */
export type TokenUpdate = Partial<Pick<TokenRow, (typeof TERMS)[number]>> & {
  /** Null: no cap. */
  cap?: MicroCredits | null;
};

/** Transactions that end requests take less time than this. */
const BOOKED_AFTER_MS = 60_000;

/**
 * Changes the terms of a token that was read as `old`, with the audit record, in one transaction. Returns false if it was
 * revoked or its terms were changed since it was read; then nothing is written. A cap is shared by all tokens of the
 * rotations that the token belongs to, and counts what they have spent since the first of them was created.
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
  const ofCap = cap === undefined ? { required: [], rest: [] } : await capWrites(database, old, cap);
  return database.writeIf([...ofCap.required, update], [...ofCap.rest, AUDIT_ENTRY.insert(audit)]);
}

function termsOf(row: TokenRow): Partial<TokenRow> {
  return Object.fromEntries(TERMS.map((name) => [name, row[name]]));
}

/**
 * Returns the writes that set or remove a cap; a required one changes no row if the cap was changed since it was read. The
 * first ones lock the tokens that share the cap, so that no rotation adds another one, and the balance, so that no charge is
 * booked meanwhile; the snapshots of later ones are newer than the locks.
 */
async function capWrites(database: Database, old: ReadToken, cap: MicroCredits | null): Promise<CapWrites> {
  const { organizationId, callerId, id, budget } = old;
  const of = sql`organization_id = ${organizationId}`;
  const sharing = sql`(select id from token where ${of} and caller_id = ${callerId})`;
  const holder = sql`(select coalesce(budget_id, token_id) from token_balance where ${of} and token_id = ${id})`;
  const locks = [
    sql`update token set name = name where ${of} and caller_id = ${callerId}`,
    sql`update balance set closed_before = closed_before where ${of}`,
  ];
  if (budget !== null) {
    const isAsRead = sql`exists (
      select 1 from token_balance where ${of} and token_id = ${holder} and cap = ${budget.cap})`;
    const change =
      cap === null
        ? sql`delete from token_balance where ${of} and token_id in ${sharing} and ${isAsRead}`
        : sql`update token_balance set cap = ${cap} where ${of} and token_id = ${holder} and ${isAsRead}`;
    return { required: [...locks, change], rest: [] };
  }
  const held = sql`(select coalesce(sum(amount), 0) from hold where ${of} and token_id in ${sharing})`;
  const columns = sql`(organization_id, token_id, budget_id, cap, held, spent)`;
  const spent = await spentBy(database, organizationId, sharing);
  const first = sql`insert into token_balance ${columns}
    select organization_id, id, null, ${cap}, ${held}, ${spent} from token
    where ${of} and id = ${id} and not exists (select 1 from token_balance where ${of} and token_id in ${sharing})`;
  const others = sql`insert into token_balance ${columns}
    select organization_id, id, ${id}, 0, 0, 0 from token where ${of} and caller_id = ${callerId} and id <> ${id}`;
  return { required: [...locks, first], rest: [others] };
}

interface CapWrites {
  required: Sql[];
  rest: Sql[];
}

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
