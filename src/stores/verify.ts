import { sql } from "kysely";
import type { BalanceRow, EventEnd, HoldState } from "../credits/books.ts";
import { balanceFromTable } from "./rows.ts";
import type { OrganizationVerification, Violation } from "./store.ts";
import type { PortableDatabase } from "./tables.ts";

/** How long after its expiry an open hold may still wait for the sweeper. */
const SWEEP_GRACE_MS = 30_000;
/** Of each kind of violation so many are told: the first is what sends a person looking. */
const TOLD_MAX = 10;

interface Totals {
  holds: bigint;
  held: bigint;
}
interface EventTotals {
  events: bigint;
  spent: bigint;
}
interface GrantTotals {
  granted: bigint;
  available: bigint;
}
interface AdjustmentTotals {
  credits: bigint;
  revoked: bigint;
  revoked_of_grants: bigint;
  lapsed: bigint;
}
interface SuspectHold {
  id: string;
  state: HoldState;
  amount: bigint;
  charged: bigint;
  shortfall: bigint;
  drawn: bigint;
  first_cost: bigint | null;
  first_ending: EventEnd | null;
  second_cost: bigint | null;
  overdue_ms: bigint;
}

/**
 * Checks the books of one organization in one snapshot, with memory that does not grow with them. The numbers are
 * those of the invariants in docs/ledger.md.
 */
export async function verifyOrganization(
  database: PortableDatabase,
  organizationId: string,
): Promise<OrganizationVerification> {
  const { kysely } = database;
  const results = await database.snapshot([
    sql`select * from balance where organization_id = ${organizationId}`.compile(kysely),
    holdTotals(organizationId).compile(kysely),
    eventTotals(organizationId).compile(kysely),
    grantTotals(organizationId).compile(kysely),
    adjustmentTotals(organizationId).compile(kysely),
    suspectHolds(database, organizationId).compile(kysely),
    strayEvents(organizationId).compile(kysely),
    repeatedReferences(organizationId).compile(kysely),
    wrongTokenBalances(organizationId).compile(kysely),
    wrongKeys(organizationId).compile(kysely),
  ]);
  const [balances, [holds], [events], [grants], [adjustments], suspects, strays, references, tokens, keys] =
    results as [
      Parameters<typeof balanceFromTable>[0][],
      [Totals],
      [EventTotals],
      [GrantTotals],
      [AdjustmentTotals],
      SuspectHold[],
      { hold_id: string }[],
      { reference: string }[],
      WrongTokenBalance[],
      { key: string }[],
    ];
  const violations: Violation[] = [];
  const report = (invariant: number, message: string, holdId: string | null = null) =>
    violations.push({ invariant, organizationId, holdId, message });

  const [balance] = balances;
  if (balance === undefined) report(1, "The organization has no balance.");
  else checkBalance(balanceFromTable(balance), { ...holds, ...events, ...grants, ...adjustments }, report);
  for (const hold of suspects) checkHold(hold, report);
  for (const { hold_id } of strays) report(4, "There is a usage event for a hold that does not exist.", hold_id);
  for (const { reference } of references) report(9, `The reference "${reference}" was granted more than once.`);
  for (const token of tokens) reportToken(token, report);
  for (const { key } of keys) report(9, `The idempotency key ${JSON.stringify(key)} does not fit its hold.`);
  return { organizationId, holds: Number(holds.holds), events: Number(events.events), violations };
}

type AllTotals = Totals & EventTotals & GrantTotals & AdjustmentTotals;
type Report = (invariant: number, message: string, holdId?: string | null) => void;

function checkBalance(balance: BalanceRow, totals: AllTotals, report: Report): void {
  const { granted, available, held, spent, expired } = balance;
  const sum = available + held + spent + expired;
  if (granted !== sum) report(1, `Granted is ${granted}, but available, held, spent and expired add up to ${sum}.`);
  if (granted !== totals.granted) report(1, `Granted is ${granted}, but the grants add up to ${totals.granted}.`);
  if (available !== totals.available) {
    report(1, `Available is ${available}, but what remains of the grants adds up to ${totals.available}.`);
  }
  if (held !== totals.held) report(2, `Held is ${held}, but the open holds add up to ${totals.held}.`);
  const costs = totals.spent - totals.credits;
  if (spent !== costs) report(3, `Spent is ${spent}, but the usage events less the credits add up to ${costs}.`);
  if (totals.revoked !== totals.revoked_of_grants) {
    report(1, `Revocations add up to ${totals.revoked}, but those of the grants to ${totals.revoked_of_grants}.`);
  }
  if (expired !== totals.lapsed) report(1, `Expired is ${expired}, but the lapses add up to ${totals.lapsed}.`);
  for (const [name, amount] of Object.entries({ granted, available, held, spent, expired })) {
    if (amount < 0n) report(6, `The balance has ${amount} ${name}.`);
  }
}

function checkHold(hold: SuspectHold, report: Report): void {
  const { id, state, amount, charged, shortfall, drawn } = hold;
  const ended = state === "charged" || state === "expired";
  const costs = (hold.first_cost ?? 0n) + (hold.second_cost ?? 0n);
  if (!ended && (hold.first_cost !== null || hold.second_cost !== null)) {
    report(4, `The hold is ${state} and has a usage event.`, id);
  }
  if (!ended && (charged !== 0n || shortfall !== 0n)) {
    report(4, `The hold is ${state}, yet charged ${charged} with a shortfall of ${shortfall}.`, id);
  }
  if (ended && charged !== costs) report(4, `The hold was charged ${charged}, but its events cost ${costs}.`, id);
  if (ended && hold.first_cost === null) report(7, `The hold is ${state} and has no event 0.`, id);
  if (hold.second_cost !== null && (state !== "charged" || hold.first_ending !== "recovered")) {
    report(7, "The hold has an event 1, but was not settled after an expiry.", id);
  }
  const expected = state === "open" ? amount : ended ? charged : 0n;
  if (drawn !== expected) report(4, `The hold draws ${drawn} on grants instead of ${expected}.`, id);
  if (amount < 0n || charged < 0n || shortfall < 0n) report(6, "The hold has an amount below 0.", id);
  if (state === "open" && hold.overdue_ms > SWEEP_GRACE_MS) {
    report(8, `The hold is open ${hold.overdue_ms} ms after its expiry.`, id);
  }
}

function holdTotals(organizationId: string) {
  return sql`
    select count(*) as holds,
      cast(coalesce(sum(case when state = 'open' then amount else 0 end), 0) as bigint) as held
    from hold where organization_id = ${organizationId}`;
}

function eventTotals(organizationId: string) {
  return sql`
    select cast(sum(events) as bigint) as events, cast(sum(spent) as bigint) as spent
    from (
      select count(*) as events, coalesce(sum(cost), 0) as spent
      from usage_event where organization_id = ${organizationId}
      union all
      select coalesce(sum(event_count), 0), coalesce(sum(cost_sum), 0)
      from closing where organization_id = ${organizationId}
    ) as parts`;
}

function grantTotals(organizationId: string) {
  return sql`
    select cast(coalesce(sum(
        case when state = 'pending' then 0 when source = 'credit' then -revoked else amount - revoked end
      ), 0) as bigint) as granted,
      cast(coalesce(sum(case when state = 'active' then remaining else 0 end), 0) as bigint) as available
    from credit_grant where organization_id = ${organizationId}`;
}

function adjustmentTotals(organizationId: string) {
  return sql`
    select cast(coalesce(sum(case kind when 'credit' then amount else 0 end), 0) as bigint) as credits,
      cast(coalesce(sum(case kind when 'revoke' then amount else 0 end), 0) as bigint) as revoked,
      cast(coalesce(sum(case kind when 'lapse' then amount else 0 end), 0) as bigint) as lapsed,
      (select cast(coalesce(sum(revoked), 0) as bigint) from credit_grant
        where organization_id = ${organizationId}) as revoked_of_grants
    from adjustment where organization_id = ${organizationId}`;
}

/** Holds that break one of the rules of `checkHold`. */
function suspectHolds(database: PortableDatabase, organizationId: string) {
  const drawn = database.drawsSum();
  return sql`
    select hold.id, hold.state, hold.amount, hold.charged, hold.shortfall, ${drawn} as drawn,
      first.cost as first_cost, first.ending as first_ending, second.cost as second_cost,
      ${database.now()} - hold.expires_at as overdue_ms
    from hold
    left join usage_event as first
      on first.organization_id = hold.organization_id and first.hold_id = hold.id and first.sequence = 0
    left join usage_event as second
      on second.organization_id = hold.organization_id and second.hold_id = hold.id and second.sequence = 1
    where hold.organization_id = ${organizationId} and (
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

function strayEvents(organizationId: string) {
  return sql`
    select usage_event.hold_id
    from usage_event
    left join hold on hold.organization_id = usage_event.organization_id and hold.id = usage_event.hold_id
    where usage_event.organization_id = ${organizationId} and hold.id is null
    order by usage_event.hold_id limit ${sql.lit(TOLD_MAX)}`;
}

function repeatedReferences(organizationId: string) {
  return sql`
    select reference from credit_grant
    where organization_id = ${organizationId} and reference is not null
    group by reference having count(*) > 1
    order by reference limit ${sql.lit(TOLD_MAX)}`;
}

interface WrongTokenBalance {
  token_id: string;
  held: bigint;
  spent: bigint;
  holds_held: bigint;
  holds_spent: bigint;
}

function reportToken({ token_id, held, spent, holds_held, holds_spent }: WrongTokenBalance, report: Report): void {
  if (held < 0n || spent < 0n) report(6, `The balance of the token ${token_id} is below 0.`);
  if (held !== holds_held)
    report(2, `The token ${token_id} holds ${held}, but its open holds add up to ${holds_held}.`);
  if (spent !== holds_spent) {
    report(3, `The token ${token_id} has spent ${spent}, but its holds were charged ${holds_spent} less credits.`);
  }
}

/** Balances of tokens with a cap that are below 0, or differ from the token's holds: one look over those, for all tokens. */
function wrongTokenBalances(organizationId: string) {
  return sql`
    select * from (
      select token_balance.token_id, cap, held, spent,
        coalesce(holds_held, 0) as holds_held, coalesce(holds_spent, 0) as holds_spent
      from token_balance
      left join (
        select token_id, cast(sum(case state when 'open' then amount else 0 end) as bigint) as holds_held,
          cast(sum(charged - credited) as bigint) as holds_spent
        from hold
        where organization_id = ${organizationId}
          and token_id in (select token_id from token_balance where organization_id = ${organizationId})
        group by token_id
      ) as used on used.token_id = token_balance.token_id
      where organization_id = ${organizationId}
    ) as balances
    where cap < 0 or held < 0 or spent < 0 or held <> holds_held or spent <> holds_spent
    order by token_id limit ${sql.lit(TOLD_MAX)}`;
}

/** Keys whose hold is another's, was released, or is not there; and answers that no charge was made for. */
function wrongKeys(organizationId: string) {
  return sql`
    select idempotency_key.key
    from idempotency_key
    left join hold on hold.organization_id = idempotency_key.organization_id and hold.id = idempotency_key.hold_id
    where idempotency_key.organization_id = ${organizationId} and (
      hold.id is null or hold.state = 'released'
      or hold.idempotency_key is null or hold.idempotency_key <> idempotency_key.key
      or (idempotency_key.answer is not null and hold.state <> 'charged')
    )
    order by idempotency_key.key limit ${sql.lit(TOLD_MAX)}`;
}
