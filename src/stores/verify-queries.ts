import { type RawBuilder, sql } from "kysely";
import type { PortableDatabase } from "./tables.ts";

/** The statements of a check of the books. None reads more rows of an organization than a chunk, but for its newest. */

/** How long after its expiry an open hold may still wait for the sweeper. */
export const SWEEP_GRACE_MS = 30_000;
/** Of each kind of violation so many are told: the first is what sends a person looking. */
export const TOLD_MAX = 10;

/** Ids after one, up to another and with it; null: no end. */
export interface Range {
  organizationId: string;
  after: string;
  end: string | null;
}

function isIn(column: string, { after, end }: Range): RawBuilder<boolean> {
  const name = sql.ref(column);
  return end === null ? sql`${name} > ${after}` : sql`${name} > ${after} and ${name} <= ${end}`;
}

/** Where the chunk ends that begins after an id; no row where fewer are left. */
export function chunkEnd(table: "hold" | "idempotency_key", { organizationId, after }: Range, size: number) {
  const column = sql.ref(table === "hold" ? "id" : "key");
  return sql`
    select ${column} as id from ${sql.table(table)}
    where organization_id = ${organizationId} and ${column} > ${after}
    order by ${column} limit 1 offset ${sql.lit(size - 1)}`;
}

export function countHolds(range: Range) {
  return sql`select count(*) as holds from hold where organization_id = ${range.organizationId} and ${isIn("id", range)}`;
}

/** Holds that are open and older than the newest: few, and listed. */
export function oldOpenHolds(range: Range, newestFrom: string) {
  return sql`
    select id from hold
    where organization_id = ${range.organizationId} and ${isIn("id", range)} and id < ${newestFrom} and state = 'open'`;
}

/** The tokens with a cap, each with the one in whose row the cap is. */
function cappedTokens(organizationId: string) {
  return sql`(
    select token_id, coalesce(budget_id, token_id) as budget_id from token_balance
    where organization_id = ${organizationId}
  ) as capped`;
}

/** What the tokens of each cap spent by holds that have ended and are older than the newest. */
export function oldTokenSums(range: Range, newestFrom: string) {
  return sql`
    select capped.budget_id as token_id, cast(sum(charged - credited) as bigint) as spent
    from hold join ${cappedTokens(range.organizationId)} on capped.token_id = hold.token_id
    where organization_id = ${range.organizationId} and ${isIn("id", range)} and id < ${newestFrom} and state <> 'open'
    group by capped.budget_id`;
}

/** The newest holds, and those that are listed. */
function isNewest(newestFrom: string, listed: readonly string[]): RawBuilder<boolean> {
  if (listed.length === 0) return sql`id >= ${newestFrom}`;
  return sql`(id >= ${newestFrom} or id in (${sql.join(listed.map((id) => sql`${id}`))}))`;
}

export function openTotal(organizationId: string, newestFrom: string, listed: readonly string[]) {
  return sql`
    select cast(coalesce(sum(amount), 0) as bigint) as held from hold
    where organization_id = ${organizationId} and ${isNewest(newestFrom, listed)} and state = 'open'`;
}

/** The balances of tokens with a cap, beside the sums of the newest holds of all that share it. */
export function tokenBalances(organizationId: string, newestFrom: string, listed: readonly string[]) {
  return sql`
    select token_balance.token_id, token_balance.cap, token_balance.held, token_balance.spent,
      coalesce(newest.held, 0) as newest_held, coalesce(newest.spent, 0) as newest_spent
    from token_balance
    left join (
      select capped.budget_id, cast(sum(case state when 'open' then amount else 0 end) as bigint) as held,
        cast(sum(charged - credited) as bigint) as spent
      from hold join ${cappedTokens(organizationId)} on capped.token_id = hold.token_id
      where organization_id = ${organizationId} and ${isNewest(newestFrom, listed)}
      group by capped.budget_id
    ) as newest on newest.budget_id = token_balance.token_id
    where token_balance.organization_id = ${organizationId} and token_balance.budget_id is null`;
}

/** What the newest events come to, and those that closings stand for. */
export function newestEvents(organizationId: string, fromMs: bigint) {
  return sql`
    select cast(sum(events) as bigint) as events, cast(sum(spent) as bigint) as spent
    from (
      select count(*) as events, coalesce(sum(cost), 0) as spent
      from usage_event where organization_id = ${organizationId} and charged_at >= ${fromMs}
      union all
      select coalesce(sum(event_count), 0), coalesce(sum(cost_sum), 0)
      from closing where organization_id = ${organizationId}
    ) as parts`;
}

export function grantTotals(organizationId: string) {
  return sql`
    select cast(coalesce(sum(
        case when state = 'pending' then 0 when source = 'credit' then -revoked else amount - revoked end
      ), 0) as bigint) as granted,
      cast(coalesce(sum(case when state = 'active' then remaining else 0 end), 0) as bigint) as available
    from credit_grant where organization_id = ${organizationId}`;
}

export function adjustmentTotals(organizationId: string) {
  return sql`
    select cast(coalesce(sum(case kind when 'credit' then amount else 0 end), 0) as bigint) as credits,
      cast(coalesce(sum(case kind when 'revoke' then amount else 0 end), 0) as bigint) as revoked,
      cast(coalesce(sum(case kind when 'lapse' then amount else 0 end), 0) as bigint) as lapsed,
      (select cast(coalesce(sum(revoked), 0) as bigint) from credit_grant
        where organization_id = ${organizationId}) as revoked_of_grants
    from adjustment where organization_id = ${organizationId}`;
}

/** Holds that break one of the rules of `checkHold`. */
export function suspectHolds(database: PortableDatabase, range: Range) {
  const drawn = database.drawsSum();
  const { organizationId } = range;
  return sql`
    select hold.id, hold.state, hold.amount, hold.charged, hold.shortfall, ${drawn} as drawn,
      first.cost as first_cost, first.ending as first_ending, second.cost as second_cost,
      ${database.now()} - hold.expires_at as overdue_ms
    from hold
    left join (${eventsOf(range, 0)}) as first on first.hold_id = hold.id
    left join (${eventsOf(range, 1)}) as second on second.hold_id = hold.id
    where hold.organization_id = ${organizationId} and ${isIn("hold.id", range)} and (
      (hold.state in ('open', 'released')
        and (first.cost is not null or second.cost is not null or hold.charged <> 0 or hold.shortfall <> 0))
      or (hold.state in ('charged', 'expired')
        and (first.cost is null or hold.charged <> first.cost + coalesce(second.cost, 0)))
      or (second.cost is not null
        and (hold.state <> 'charged' or first.ending is null or first.ending <> 'recovered'))
      or ${drawn} <> case hold.state when 'open' then hold.amount when 'released' then 0 else hold.charged end
      or hold.amount < 0 or hold.charged < 0 or hold.shortfall < 0
      or (hold.state = 'open' and ${database.now()} - hold.expires_at > ${sql.lit(SWEEP_GRACE_MS)})
    )
    order by hold.id limit ${sql.lit(TOLD_MAX)}`;
}

function eventsOf(range: Range, sequence: 0 | 1) {
  return sql`
    select hold_id, cost, ending from usage_event
    where organization_id = ${range.organizationId} and ${isIn("hold_id", range)} and sequence = ${sql.lit(sequence)}`;
}

export function strayEvents(range: Range) {
  return sql`
    select usage_event.hold_id
    from usage_event
    left join hold on hold.organization_id = ${range.organizationId} and hold.id = usage_event.hold_id
    where usage_event.organization_id = ${range.organizationId} and ${isIn("usage_event.hold_id", range)}
      and hold.id is null
    order by usage_event.hold_id limit ${sql.lit(TOLD_MAX)}`;
}

export function repeatedReferences(organizationId: string) {
  return sql`
    select reference from credit_grant
    where organization_id = ${organizationId} and reference is not null
    group by reference having count(*) > 1
    order by reference limit ${sql.lit(TOLD_MAX)}`;
}

/** Keys whose hold is another's, was released, or is not there; and answers that no charge was made for. */
export function wrongKeys(range: Range) {
  return sql`
    select idempotency_key.key
    from idempotency_key
    left join hold on hold.organization_id = ${range.organizationId} and hold.id = idempotency_key.hold_id
    where idempotency_key.organization_id = ${range.organizationId} and ${isIn("idempotency_key.key", range)} and (
      hold.id is null or hold.state = 'released'
      or hold.idempotency_key is null or hold.idempotency_key <> idempotency_key.key
      or (idempotency_key.answer is not null and hold.state <> 'charged')
    )
    order by idempotency_key.key limit ${sql.lit(TOLD_MAX)}`;
}
