import type { MicroCredits } from "../../credits/amount.ts";
import type { AuditRow } from "../../credits/audit.ts";
import type { BudgetRow, BudgetUseRow } from "../../credits/books.ts";
import { counterIdOf } from "../../credits/budget-uses.ts";
import type { BudgetUse } from "../../credits/facts.ts";
import { UNWARNED_USE } from "../../credits/warnings.ts";
import type { Database, IdPage } from "../database.ts";
import { BUDGET, BUDGET_USE } from "../schema.ts";
import { allOf, equal, join, raw, type Sql, sql } from "../sql.ts";
import { recordOf } from "./admin.ts";

export type BudgetKey = Pick<BudgetRow, "organizationId" | "id">;
type BudgetTerms = Pick<BudgetRow, "name" | "amount" | "limits">;
/** Budgets. A change writes its audit record in the same transaction, and is in force from the next hold on, on every node. */
export function budgetRows(database: Database) {
  const { find, findRows, now, writeIf } = database;
  return {
    ...budgetCallers(database),
    /** Writes a budget. Returns false if the organization does not exist. */
    insertBudget: (row: BudgetRow, audit: AuditRow): Promise<boolean> =>
      writeIf([budgetsChange(row.organizationId), BUDGET.insert(row)], recordOf(audit, { budget: [row] })),
    budgets: (organizationId: string): Promise<BudgetRow[]> =>
      findRows(BUDGET)`select * from budget where organization_id = ${organizationId} order by id`,
    /** Writes the terms of a budget that was read as `old`. Returns false, and writes nothing, if it has changed since. */
    changeBudget(old: BudgetRow, { name, amount, limits }: BudgetTerms, audit: AuditRow) {
      const asRead = sql`
        ${ofBudget(old)} and name = ${old.name} and amount is not distinct from ${old.amount}
          and limits is not distinct from ${old.limits && JSON.stringify(old.limits)}`;
      const change = sql`update budget set ${BUDGET.set({ name, amount, limits })} where ${asRead}`;
      const record = recordOf(audit, { budget: [{ id: old.id, name, amount, limits }] });
      return writeIf([budgetsChange(old.organizationId), change], record);
    },
    /** Deletes a budget with its counters. Returns false if it does not exist. */
    deleteBudget(key: BudgetKey, audit: AuditRow): Promise<boolean> {
      const removal = sql`delete from budget where ${ofBudget(key)}`;
      const record = recordOf(audit, { budget: [{ id: key.id, isDeleted: true }] });
      return writeIf([budgetsChange(key.organizationId), removal], [deleteBudgetUses(key), ...record]);
    },
    /** Adds to the amount of one counter, which it can begin. Returns false if the budget does not exist. Locks the balance. */
    raiseBudget(organizationId: string, use: BudgetUse, amount: MicroCredits, audit: AuditRow): Promise<boolean> {
      const { budgetId, windowAtMs, value } = use;
      const lock = sql`
        update balance set closed_before = closed_before where organization_id = ${organizationId}
          and exists (select 1 from budget where ${ofBudget({ organizationId, id: budgetId })})`;
      const nothing = { held: 0n, spent: 0n, opening: 0n, ...UNWARNED_USE };
      const raise = sql`
        ${BUDGET_USE.insert({ organizationId, budgetId, windowAtMs, value, ...nothing, raised: amount })}
        on conflict (organization_id, budget_id, window_at, value)
        do update set raised = budget_use.raised + excluded.raised`;
      return writeIf([lock, raise], recordOf(audit, { budget_use: [{ id: counterIdOf(use), raisedBy: amount }] }));
    },
    /** Returns the named counters of an organization that have a row. */
    async namedUses(organizationId: string, uses: readonly BudgetUse[]): Promise<BudgetUseRow[]> {
      if (uses.length === 0) return [];
      const named = uses.map(({ budgetId, windowAtMs, value }) => {
        return sql`(budget_id = ${budgetId} and window_at = ${windowAtMs} and value = ${value})`;
      });
      const condition = sql`organization_id = ${organizationId} and (${join(named, " or ")})`;
      return findRows(BUDGET_USE)`select * from budget_use where ${condition}`;
    },
    /** Returns the counters of a budget in a window, in the order of their values, from the one after `after` on. */
    usesInWindow: ({ organizationId, id }: BudgetKey, windowAtMs: number, { after, limit }: IdPage) =>
      findRows(BUDGET_USE)`
          select * from budget_use
          where ${equal({ organization_id: organizationId, budget_id: id, window_at: windowAtMs })}
            and value > ${after ?? ""} order by value limit ${limit}`,
    /** Returns the store's time, which tells the current windows. */
    async budgetTime(): Promise<number> {
      const [row] = await find(sql`select ${now()} as now`);
      return Number(row?.now);
    },
  };
}

function budgetCallers({ jsonHas, now, read }: Database) {
  return {
    /** Returns the token that a cap is changed with now, by its caller: of each rotation the last one. */
    async capHolders(organizationId: string): Promise<ReadonlyMap<string, string>> {
      const rows = await read<{ cap_of: string; id: string }>(sql`
        select budget.cap_of, token.id from budget
          join token on token.organization_id = budget.organization_id and token.caller_id = budget.cap_of
        where budget.organization_id = ${organizationId} and token.successor_id is null
        order by case when token.revoked_at is null then 1 else 0 end, token.created_at`);
      return new Map(rows.map(({ cap_of, id }) => [cap_of, id]));
    },
    /**
     * Returns true if a caller that a budget covers can choose the value of one of these keys of metadata: a token that is
     * valid and does not pin it, or a caller of one of the issuers that `issuersWithout` returns for the key.
     */
    async hasFreeCaller(
      { organizationId, callerIds }: Pick<BudgetRow, "organizationId" | "callerIds">,
      keys: readonly string[],
      issuersWithout: (key: string) => readonly string[],
    ): Promise<boolean> {
      const isFree = keys.map((key) => {
        const issuers = join(["", ...issuersWithout(key)]);
        return sql`(not ${jsonHas(raw("token.pinned"), key)}
          and (token.kind = 'secret' or identity.issuer in (${issuers})))`;
      });
      const condition = allOf(
        sql`token.organization_id = ${organizationId} and token.revoked_at is null and identity.blocked_at is null`,
        sql`(token.expires_at is null or token.expires_at > ${now()})`,
        sql`token.scopes like '%"chat.completions:write"%' and (${join(isFree, " or ")})`,
        callerIds !== null && sql`token.caller_id in (${join(callerIds)})`,
      );
      const rows = await read(sql`
        select token.id from token left join identity on identity.id = token.created_by where ${condition} limit 1`);
      return rows.length > 0;
    },
  };
}

/** Locks the balance of an organization, and lets every process read its budgets again with its next batch. */
export function budgetsChange(organizationId: string): Sql {
  return sql`update balance set budget_version = budget_version + 1 where organization_id = ${organizationId}`;
}

export function deleteBudgetUses({ organizationId, id }: BudgetKey): Sql {
  return sql`delete from budget_use where ${equal({ organization_id: organizationId, budget_id: id })}`;
}

function ofBudget({ organizationId, id }: BudgetKey): Sql {
  return equal({ organization_id: organizationId, id });
}
