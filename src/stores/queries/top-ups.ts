import { monthStart } from "../../api/time.ts";
import type { MicroCredits } from "../../credits/amount.ts";
import type { AuditRow } from "../../credits/audit.ts";
import type { EventRow } from "../../credits/warnings.ts";
import { EVENT, TOP_UP, TOP_UP_CHARGE } from "../admin-schema.ts";
import type { Database } from "../database.ts";
import { type Sql, sql } from "../sql.ts";
import type { RowOf } from "../table.ts";
import { recordOf } from "./admin.ts";

export type TopUpRow = RowOf<typeof TOP_UP>;
export type TopUpCharge = RowOf<typeof TOP_UP_CHARGE>;

/** The automatic top-up of an organization, with all that decides what happens next. */
export interface TopUpState {
  row: TopUpRow;
  pending: TopUpCharge | undefined;
  available: MicroCredits;
  organizationStatus: string;
  /** Money of the charges of the month that have not failed, in the present currency. */
  used: bigint;
  /** True if a charge since it was set was refunded or disputed. */
  isReturned: boolean;
}

/** A change of a top-up, with its audit record; a change without one only postpones the next attempt. */
export interface TopUpChange {
  row: Partial<Omit<TopUpRow, "id" | "revision">>;
  /** The pending charge in its new state, or a new one. */
  charge?: TopUpCharge;
  event?: EventRow;
  audit?: AuditRow;
}

/** Automatic top-ups of organizations, and their charges. */
export function topUpRows({ find, findRow, read, writeIf }: Database) {
  const stateOf = async (id: string, nowMs: number): Promise<TopUpState | undefined> => {
    const charges = sql`from top_up_charge as charge`;
    const [found] = await find(sql`
      select top_up.*, available, organization.status as organization_status,
        (select cast(coalesce(sum(charge.price), 0) as bigint) ${charges} where charge.organization_id = ${id}
          and charge.created_at >= ${monthStart(nowMs)} and charge.state <> 'failed'
          and charge.currency = top_up.currency) as used,
        (select count(*) ${charges} join payment on payment.id = charge.payment_id where charge.organization_id = ${id}
          and charge.created_at >= top_up.set_at and payment.refunded + payment.disputed > 0) as returned
      from top_up join balance on balance.organization_id = top_up.organization_id
        join organization on organization.id = top_up.organization_id
      where top_up.organization_id = ${id}`);
    if (found === undefined) return undefined;
    // Read after the row: a charge that begins or ends meanwhile changes its revision.
    const pending = await findRow(TOP_UP_CHARGE)`
      select * from top_up_charge where organization_id = ${id} and state = 'pending'`;
    return {
      ...{ row: TOP_UP.fromRecord(found), pending, isReturned: Number(found.returned) > 0 },
      ...{ available: found.available as bigint, used: found.used as bigint },
      organizationStatus: String(found.organization_status),
    };
  };
  return {
    read: stateOf,
    /**
     * Finds organizations with a charge that is pending, or with fewer credits than the threshold of their top-up. A next attempt
     * that is further ahead than the longest pause, or the next month, was set by a clock that was ahead.
     */
    async due(nowMs: number, longestPauseMs: number, limit: number): Promise<string[]> {
      const isDue = (latestMs: number) => sql`(next_at <= ${nowMs} or next_at > ${latestMs})`;
      const rows = await read<{ organization_id: string }>(sql`
        select top_up.organization_id, next_at from top_up_charge
          join top_up on top_up.organization_id = top_up_charge.organization_id
        where top_up_charge.state = 'pending' and ${isDue(nowMs + longestPauseMs)}
        union
        select top_up.organization_id, next_at from top_up
          join balance on balance.organization_id = top_up.organization_id
          join organization on organization.id = top_up.organization_id
        where top_up.status = 'on' and ${isDue(monthStart(nowMs, 1))} and card is not null and available < threshold
          and organization.status = 'active'
        order by next_at limit ${limit}`);
      return rows.map((row) => row.organization_id);
    },
    /**
     * Writes the change that `decide` makes of the state, in one transaction, unless the state has changed meanwhile: then it is
     * decided again. Returns the change; undefined if there is none.
     */
    async change(
      id: string,
      nowMs: number,
      decide: (state: TopUpState | undefined) => TopUpChange | undefined,
    ): Promise<TopUpChange | undefined> {
      for (;;) {
        const state = await stateOf(id, nowMs);
        const change = decide(state);
        if (change === undefined) return undefined;
        const [row, ...others] = writesOf(id, state, change);
        if (await writeIf([row], others)) return change;
      }
    },
  };
}

/** Returns the writes of a change, of which the first one changes no row if the state is not the present one. */
function writesOf(
  id: string,
  state: TopUpState | undefined,
  { row: changed, charge, event, audit }: TopUpChange,
): [Sql, ...Sql[]] {
  const { revision = 0 } = state?.row ?? {};
  const row = { ...changed, revision: revision + 1 };
  const isNew = charge?.id !== state?.pending?.id;
  const written = charge && (isNew ? charge : { id: charge.id, state: charge.state });
  const rows = { top_up: [{ id, ...row }], top_up_charge: written ? [written] : [] };
  const writes = recordOf(audit, rows);
  if (event !== undefined) writes.push(sql`${EVENT.insert(event)} on conflict do nothing`);
  if (charge !== undefined && isNew) writes.push(TOP_UP_CHARGE.insert(charge));
  else if (charge !== undefined) {
    const ended = TOP_UP_CHARGE.set({ state: charge.state, paymentId: charge.paymentId });
    writes.push(sql`update top_up_charge set ${ended} where organization_id = ${id} and id = ${charge.id}`);
  }
  if (state === undefined)
    return [sql`${TOP_UP.insert({ ...(row as TopUpRow), id })} on conflict do nothing`, ...writes];
  return [
    sql`update top_up set ${TOP_UP.set(row)} where organization_id = ${id} and revision = ${revision}`,
    ...writes,
  ];
}
