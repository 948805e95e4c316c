import { LRUCache } from "lru-cache";
import type { BalanceRow, BudgetRow } from "../credits/books.ts";
import { BudgetIndex } from "../credits/budgets.ts";

const ORGANIZATIONS_MAX = 10_000;
const NONE: ReadonlyMap<string, BudgetIndex> = new Map();

/** The budgets of organizations as read last. `budgetVersion` of the balance, read under its lock, shows changes elsewhere. */
export class BudgetCache {
  readonly #read = new LRUCache<string, { version: number; budgets: BudgetIndex | undefined }>({
    max: ORGANIZATIONS_MAX,
  });

  /** Returns the organizations whose budgets must be read again, in the order of the balances. */
  outdated(balances: readonly BalanceRow[]): string[] {
    const isOutdated = ({ organizationId, budgetVersion }: BalanceRow) =>
      budgetVersion !== 0 && this.#read.get(organizationId)?.version !== budgetVersion;
    return balances.filter(isOutdated).map(({ organizationId }) => organizationId);
  }

  /** Stores the budgets of organizations, which were read under the locks of their balances. */
  set(balances: readonly BalanceRow[], organizationIds: readonly string[], rows: readonly BudgetRow[]): void {
    const own = Map.groupBy(rows, ({ organizationId }) => organizationId);
    for (const { organizationId, budgetVersion: version } of balances) {
      if (!organizationIds.includes(organizationId)) continue;
      const budgets = own.get(organizationId);
      this.#read.set(organizationId, { version, budgets: budgets && new BudgetIndex(budgets) });
    }
  }

  /** Returns the budgets of each organization that has some. None of them may be outdated. */
  of(balances: readonly BalanceRow[]): ReadonlyMap<string, BudgetIndex> {
    if (balances.every(({ budgetVersion }) => budgetVersion === 0)) return NONE;
    const found = new Map<string, BudgetIndex>();
    for (const { organizationId } of balances) {
      const budgets = this.#read.get(organizationId)?.budgets;
      if (budgets !== undefined) found.set(organizationId, budgets);
    }
    return found;
  }
}
